#include "hashing/lineage_hash.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "hashing/block_hash.h"

namespace kvr::hashing {
namespace {

std::string Hex(Hash128 hash) {
  return ToHex(ToBytes(hash));
}

constexpr SequenceHash kCurrent{0x1234567890ABCDEF};
constexpr SequenceHash kParent{0xFEDCBA9876543210};

std::vector<LineageHash> LineageOf(const std::vector<TokenId>& tokens) {
  std::vector<BlockHash> blocks;
  HashBlocks(tokens, {.block_size = 4}, blocks);
  std::vector<LineageHash> out = {LineageHash::Root(blocks[0])};
  for (std::size_t i = 1; i < blocks.size(); ++i)
    out.push_back(*out.back().Child(blocks[i]));
  return out;
}

TEST(LineageHash, C21OfTwelveTokens) {
  std::vector<TokenId> tokens(12);
  std::iota(tokens.begin(), tokens.end(), 1u);
  const auto lineage = LineageOf(tokens);
  ASSERT_EQ(lineage.size(), 3u);
  EXPECT_EQ(Hex(lineage[0].raw()), "0032ce3935fecb729700000000000000");
  EXPECT_EQ(Hex(lineage[1].raw()), "005128ac8de75b4f0f78e4d7fb2dca5c");
  EXPECT_EQ(Hex(lineage[2].raw()), "00aba8799e9b2033e122b2379d6d3c3d");
  EXPECT_EQ(Raw(lineage[2].current()), 12583592247330656132u);
  EXPECT_EQ(lineage[2].position(), 2u);
}

TEST(LineageHash, C24ModeSwitchesWithThePosition) {
  struct Row {
    std::uint64_t position;
    std::string_view hex;
    int fragment_bits;
  };
  for (const Row& row : {
           Row{255, "3fc48d159e242af37bdcba9876543210", 54},
           Row{256, "4040048d159e242af37bfa9876543210", 46},
           Row{65535, "7fffc48d159e242af37bfa9876543210", 46},
           Row{65536, "804000048d159e242af37bd876543210", 38},
       }) {
    const auto hash = LineageHash::Make(kCurrent, kParent, row.position);
    ASSERT_TRUE(hash) << row.position;
    EXPECT_EQ(Hex(hash->raw()), row.hex) << row.position;
    EXPECT_EQ(hash->position(), row.position);
    EXPECT_EQ(hash->current(), kCurrent);
    EXPECT_EQ(hash->parent_fragment(),
              Raw(kParent) & ((std::uint64_t{1} << row.fragment_bits) - 1));
  }
}

TEST(LineageHash, C25PositionsEnd) {
  EXPECT_TRUE(LineageHash::Make(kCurrent, kParent, LineageHash::kPositionEnd - 1));
  const auto beyond = LineageHash::Make(kCurrent, kParent, LineageHash::kPositionEnd);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kInvalidArgument);
  const auto last = LineageHash::Make(kCurrent, kParent, LineageHash::kPositionEnd - 1);
  EXPECT_FALSE(last->Child(BlockHash{1}));
}

TEST(LineageHash, RootKeepsNothingOfAParent) {
  EXPECT_EQ(LineageHash::Make(kCurrent, kParent, 0)->parent_fragment(), 0u);
  EXPECT_EQ(LineageHash::Root(BlockHash{Raw(kCurrent)}), *LineageHash::Make(kCurrent, kParent, 0));
}

TEST(LineageHash, OrderIsPositionThenCurrentThenRest) {
  const auto make = [](std::uint64_t current, std::uint64_t parent, std::uint64_t position) {
    return *LineageHash::Make(SequenceHash{current}, SequenceHash{parent}, position);
  };
  EXPECT_LT(make(9, 9, 1), make(1, 1, 2));
  EXPECT_LT(make(9, 9, 255), make(1, 1, 256));
  EXPECT_LT(make(1, 9, 5), make(2, 1, 5));
  EXPECT_LT(make(1, 1, 5), make(1, 2, 5));
  EXPECT_EQ(make(1, 1, 5), make(1, 1, 5));
}

TEST(LineageHash, TextIsPositionAndBase58) {
  EXPECT_EQ(LineageHash::Make(SequenceHash{0}, SequenceHash{0}, 0)->Text(), "0:11111111");
  EXPECT_EQ(LineageHash::Make(SequenceHash{57}, SequenceHash{0}, 0)->Text(), "0:1111111z");
  EXPECT_EQ(LineageHash::Make(SequenceHash{~0ull}, SequenceHash{58}, 3)->Text(),
            "3:jpXCZedGfVQ:111111121");
}

TEST(PositionalSequenceHash, C21Vectors) {
  EXPECT_EQ(Hex(*PositionalSequenceHash(SequenceHash{0xDEADBEEFCAFEBABE}, 12345,
                                        BlockHash{0x0123456789ABCDEF})),
            "4c0e456789abcdefdeadbeefcafebabe");
  EXPECT_EQ(Hex(*PositionalSequenceHash(SequenceHash{0x1234}, 100, BlockHash{0xABCD})),
            "190000000000abcd0000000000001234");
}

TEST(PositionalSequenceHash, ModeSwitchesWithThePosition) {
  struct Row {
    std::uint64_t position;
    std::uint64_t mode;
    int position_bits;
  };
  for (const Row& row :
       {Row{255, 0, 8}, Row{256, 1, 16}, Row{65535, 1, 16}, Row{65536, 2, 24},
        Row{(1u << 24) - 1, 2, 24}, Row{1u << 24, 3, 31}, Row{(1u << 31) - 1, 3, 31}}) {
    const auto hash = PositionalSequenceHash(kCurrent, row.position, BlockHash{0});
    ASSERT_TRUE(hash) << row.position;
    EXPECT_EQ(hash->high, row.mode << 62 | row.position << (62 - row.position_bits))
        << row.position;
  }
  EXPECT_FALSE(PositionalSequenceHash(kCurrent, std::uint64_t{1} << 31, BlockHash{0}));
}

TEST(ParentFragment, C21NamesBlocksForAConsolidator) {
  const std::vector<TokenId> tokens = {10, 20, 30, 40, 50, 60, 70, 80};
  const auto lineage = LineageOf(tokens);
  EXPECT_EQ(ParentFragment(lineage[0].current(), 0), 3114443937531979u);
  EXPECT_EQ(ParentFragment(lineage[1].current(), 1), 5370979798324801u);
  EXPECT_EQ(lineage[1].parent_fragment(), 3114443937531979u);
}

}  // namespace
}  // namespace kvr::hashing
