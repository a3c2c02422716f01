// Rows of the published contract: what any engine or router of this family computes.
#include "hashing/block_hash.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hashing/xxh3.h"

namespace kvr::hashing {
namespace {

using testing::ElementsAre;

std::vector<TokenId> Iota(TokenId first, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Numbers, so that a failing row prints the hash in decimal as the tables do.
template <typename Hash>
std::vector<std::uint64_t> Raws(const std::vector<Hash>& hashes) {
  std::vector<std::uint64_t> out;
  for (const Hash hash : hashes)
    out.push_back(Raw(hash));
  return out;
}

std::vector<std::uint64_t> Blocks(const std::vector<TokenId>& tokens, const BlockHashing& how,
                                  const std::vector<BlockMm>& mm = {}) {
  std::vector<BlockHash> out;
  HashBlocks(tokens, how, mm, out);
  return Raws(out);
}

std::vector<std::uint64_t> Chain(const std::vector<TokenId>& tokens, const BlockHashing& how) {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> out;
  HashBlocks(tokens, how, blocks);
  ChainHashes(blocks, out);
  return Raws(out);
}

std::uint64_t Block(const std::vector<TokenId>& window, const std::vector<MmHash>& mm = {}) {
  return Raw(HashBlock(window, Seed(), mm));
}

TEST(Xxh3, C21PinnedValues) {
  EXPECT_EQ(Xxh3("test data", 1337), 13226331709069118873u);
  EXPECT_EQ(Xxh3("", 1337), 15128690059815094969u);
  EXPECT_EQ(Xxh3(std::as_bytes(std::span("test data", 9)), 1337), 13226331709069118873u);
}

TEST(Seed, C21MixesLoraAndSalt) {
  struct Row {
    std::string lora, salt;
    std::uint64_t seed;
  };
  for (const Row& row : {
           Row{"", "", 1337u},
           Row{"sql", "", 10423510420207655334u},
           Row{"adapter-a", "", 8842669519798868182u},
           Row{"", "tenant-a", 1948188790972764086u},
           Row{"adapter-a", "tenant-a", 10790858310771630931u},
       }) {
    EXPECT_EQ(Seed(row.lora, row.salt).raw(), row.seed) << row.lora << " + " << row.salt;
  }
  EXPECT_EQ(Seed().raw(), 1337u);
  EXPECT_EQ(Seed::FromRaw(7).raw(), 7u);
}

TEST(Seed, HashesLikeXxh3AtEveryLength) {
  std::vector<std::byte> bytes(2200);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * i);
  const std::span<const std::byte> all(bytes);
  for (const std::uint64_t raw : {std::uint64_t{0}, kBaseSeed, ~std::uint64_t{0}}) {
    const Seed seed = Seed::FromRaw(raw);
    for (std::size_t length = 0; length <= bytes.size(); ++length)
      ASSERT_EQ(seed.Hash(all.first(length)), Xxh3(all.first(length), raw)) << length;
  }
}

TEST(HashBlocks, C21TwelveTokens) {
  const BlockHashing how{.block_size = 4};
  EXPECT_THAT(Blocks(Iota(1, 12), how),
              ElementsAre(14643705804678351452u, 16777012769546811212u, 483935686894639516u));
  EXPECT_THAT(Chain(Iota(1, 12), how),
              ElementsAre(14643705804678351452u, 4945711292740353085u, 12583592247330656132u));
}

TEST(HashBlocks, SignedFormIsTheSameBits) {
  const auto blocks = Blocks(Iota(1, 12), {.block_size = 4});
  EXPECT_EQ(static_cast<std::int64_t>(blocks[0]), -3803038269031200164);
  EXPECT_EQ(static_cast<std::int64_t>(blocks[1]), -1669731304162740404);
  EXPECT_EQ(static_cast<std::int64_t>(blocks[2]), 483935686894639516);
  const auto chain = Chain(Iota(1, 12), {.block_size = 4});
  EXPECT_EQ(static_cast<std::int64_t>(chain[2]), -5863151826378895484);
}

TEST(HashBlocks, C21IdentityChangesEveryBlock) {
  struct Row {
    std::string lora, salt;
    std::uint64_t b0, b1, s1;
  };
  for (const Row& row : {
           Row{"", "", 9143094415614847814u, 12124091508212882195u, 9510318385840434533u},
           Row{"adapter-a", "", 6665157333201000639u, 11721812545976571723u, 13351519314849170528u},
           Row{"", "tenant-a", 17009624042690211646u, 10000672136415158886u, 18279821067719767880u},
           Row{"adapter-a", "tenant-a", 8269515957840517240u, 11937877779520612889u,
               16913744751721653295u},
           Row{"tenant-a", "adapter-a", 3458330314521087086u, 12434688825433360059u,
               6947330184025951234u},
       }) {
    SCOPED_TRACE(row.lora + " + " + row.salt);
    const BlockHashing how{.block_size = 4, .seed = Seed(row.lora, row.salt)};
    EXPECT_THAT(Blocks(Iota(0, 8), how), ElementsAre(row.b0, row.b1));
    EXPECT_THAT(Chain(Iota(0, 8), how), ElementsAre(row.b0, row.s1));
  }
}

TEST(HashBlocks, C11C12IdentityOfOneBlock) {
  const auto hash = [](std::string_view lora, std::string_view salt) {
    return Blocks(Iota(1, 4), {.block_size = 4, .seed = Seed(lora, salt)});
  };
  EXPECT_THAT(hash("sql", ""), ElementsAre(14015314787876343978u));
  EXPECT_EQ(static_cast<std::int64_t>(hash("sql", "")[0]), -4431429285833207638);
  EXPECT_THAT(hash("", "tenant-a"), ElementsAre(5738685477468498325u));
  EXPECT_THAT(hash("sql", "tenant-a"), ElementsAre(2292810287918939514u));
  EXPECT_EQ(hash("", ""), Blocks(Iota(1, 4), {.block_size = 4}));  // C11
  EXPECT_NE(hash("x", ""), hash("", "x"));                         // C12
}

TEST(HashBlocks, C21OtherSizes) {
  EXPECT_EQ(Block(std::vector<TokenId>(16, 0)), 5523182284766269584u);
  EXPECT_EQ(Block(std::vector<TokenId>(4, 0xFFFFFFFF)), 12410542959481710713u);
  EXPECT_EQ(Block(Iota(0, 16)), 15310707395893867146u);
  EXPECT_EQ(Block(Iota(0, 64)), 3480597578098033343u);
  EXPECT_EQ(Block(Iota(0, 512)), 9967019188267418660u);
}

TEST(HashBlocks, C21EagleWindowsShareAToken) {
  const BlockHashing how{.block_size = 4, .eagle = true};
  EXPECT_THAT(Blocks(Iota(1, 9), how), ElementsAre(1914873892905420881u, 1929047464662796003u));
  EXPECT_THAT(Chain(Iota(1, 9), how), ElementsAre(1914873892905420881u, 13136491855314414045u));
  // Bigrams (1,2),(2,3),(3,4),(4,5) are the tokens 1..5.
  EXPECT_THAT(Blocks(Iota(1, 5), how), ElementsAre(1914873892905420881u));
  EXPECT_EQ(Block(Iota(1, 5)), 1914873892905420881u);
  EXPECT_EQ(Block(Iota(5, 5)), 1929047464662796003u);
  EXPECT_THAT(Blocks(Iota(0, 17), {.block_size = 16, .eagle = true}),
              ElementsAre(11423441316381344367u));
}

TEST(BlockCount, CountsCompleteBlocks) {
  struct Row {
    std::string_view id;
    std::size_t tokens, block_size;
    bool eagle;
    std::size_t count;
  };
  constexpr auto kMax = static_cast<std::size_t>(-1);
  for (const Row& row : {
           Row{"C1", 8, 4, false, 2},
           Row{"C3", 7, 4, false, 1},
           Row{"C4", 8, 4, true, 1},
           Row{"C5", 9, 4, true, 2},
           Row{"C19", 9, 0, false, 0},
           Row{"C19", 9, 0, true, 0},
           Row{"C20", 3, 4, false, 0},
           Row{"C20", 4, 4, true, 0},
           Row{"C20", 0, 4, false, 0},
           Row{"C20", 0, 4, true, 0},
           Row{"n - 1 must not wrap", 0, 1, true, 0},
           Row{"size + 1 must not wrap", 9, kMax, true, 0},
           Row{"as many as there are", kMax, 1, false, kMax},
       }) {
    EXPECT_EQ(BlockCount(row.tokens, row.block_size, row.eagle), row.count)
        << row.id << ": " << row.tokens << " tokens, size " << row.block_size
        << (row.eagle ? ", eagle" : "");
  }
  EXPECT_TRUE(Blocks(Iota(1, 9), {.block_size = 0}).empty());                 // C19
  EXPECT_TRUE(Blocks(Iota(1, 9), {.block_size = 0, .eagle = true}).empty());  // C19
  EXPECT_TRUE(Blocks(Iota(1, 3), {.block_size = 4}).empty());
}

TEST(HashBlock, C14C21MultimodalObjects) {
  EXPECT_EQ(Block({1, 2, 3, 4}, {7}), 5863904876152881626u);
  EXPECT_EQ(Block({1, 2, 3, 4}, {42}), 14000361058806882387u);
  EXPECT_EQ(Block({1, 2, 3, 4}, {42, 7}), 6295130183325757331u);
  EXPECT_EQ(Block({1, 2, 3, 4}, {7, 42}), 6295130183325757331u);  // C14
  EXPECT_EQ(Block({1, 2, 3, 4}, {42, 42}), 8640070372475032416u);
  EXPECT_EQ(Block({1, 2, 3, 4}, {}), 14643705804678351452u);
  EXPECT_EQ(Block({1, 2, 3, 4}, {0x0123456789abcdef}), 2142804768136187117u);
}

TEST(HashBlock, ManyObjectsHashLikeTheConcatenation) {
  for (const std::size_t count : {1u, 31u, 200u, 255u, 480u, 481u, 496u, 497u, 2000u}) {
    std::vector<MmHash> mm;
    for (std::size_t i = 0; i < count; ++i)
      mm.push_back(0x9E3779B97F4A7C15u * (i + 1));
    const auto window = Iota(1, 64);
    std::string bytes(reinterpret_cast<const char*>(window.data()), window.size() * 4);
    auto sorted = mm;
    std::sort(sorted.begin(), sorted.end());
    for (const MmHash hash : sorted) {
      for (int shift = 0; shift < 64; shift += 8)
        bytes += static_cast<char>(hash >> shift);
    }
    EXPECT_EQ(Block(window, mm), Xxh3(bytes, kBaseSeed)) << count;
  }
}

TEST(HashBlocks, MultimodalObjectsGoToTheirBlock) {
  const BlockHashing how{.block_size = 4};
  const auto plain = Blocks(Iota(1, 12), how);
  EXPECT_THAT(Blocks(Iota(1, 12), how, {{0, 42}, {0, 7}, {3, 9}}),
              ElementsAre(6295130183325757331u, plain[1], plain[2]));
  const auto last = Blocks(Iota(1, 12), how, {{2, 42}, {9, 7}});
  EXPECT_THAT(last, ElementsAre(plain[0], plain[1], Block({9, 10, 11, 12}, {42})));
}

TEST(HashBlockBytes, C22ReadsLittleEndianAtAnyAlignment) {
  std::vector<std::byte> room(8 + 16 + 3);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    for (std::size_t token = 0; token < 4; ++token) {
      for (std::size_t i = 0; i < 4; ++i)
        room[shift + token * 4 + i] = i == 0 ? static_cast<std::byte>(token + 1) : std::byte{0};
    }
    const auto window = std::span<const std::byte>(room).subspan(shift, 16);
    EXPECT_EQ(Raw(HashBlockBytes(window, Seed())), 14643705804678351452u) << shift;
    const MmHash mm[] = {42};
    EXPECT_EQ(Raw(HashBlockBytes(window, Seed(), mm)), 14000361058806882387u) << shift;
    const auto ragged = std::span<const std::byte>(room).subspan(shift, 19);
    EXPECT_EQ(Raw(HashBlockBytes(ragged, Seed())), 14643705804678351452u) << shift;
  }
}

TEST(HashBlocks, ReplacesTheOutputAndReusesItsRoom) {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> chain;
  HashBlocks(Iota(1, 400), {.block_size = 4}, blocks);
  ChainHashes(blocks, chain);
  const auto* block_room = blocks.data();
  const auto* chain_room = chain.data();
  HashBlocks(Iota(1, 12), {.block_size = 4}, blocks);
  ChainHashes(blocks, chain);
  EXPECT_EQ(blocks.size(), 3u);
  EXPECT_EQ(chain.size(), 3u);
  EXPECT_EQ(blocks.data(), block_room);
  EXPECT_EQ(chain.data(), chain_room);
  ChainHashes({}, chain);
  EXPECT_TRUE(chain.empty());
}

}  // namespace
}  // namespace kvr::hashing
