#include "hashing/mm_frames.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::hashing {
namespace {

using testing::ElementsAre;

std::vector<std::uint64_t> Framed(const std::vector<TokenId>& tokens, std::vector<MmRun> runs,
                                  const BlockHashing& how = {.block_size = 4}) {
  EXPECT_TRUE(SortMmRuns(runs, tokens.size()));
  std::vector<std::byte> scratch;
  std::vector<BlockHash> blocks;
  HashFramedBlocks(tokens, how, runs, scratch, blocks);
  std::vector<std::uint64_t> out;
  for (const BlockHash block : blocks)
    out.push_back(Raw(block));
  return out;
}

TEST(HashFramedBlocks, C21Vector) {
  EXPECT_THAT(Framed({1, 0, 0, 2}, {{42, 1, 2}}), ElementsAre(9110805482335493937u));
  // What the placeholder slots hold in the prompt does not matter.
  EXPECT_THAT(Framed({1, 7, 8, 2}, {{42, 1, 2}}), ElementsAre(9110805482335493937u));
}

TEST(HashFramedBlocks, BlocksWithoutRunArePlain) {
  const auto blocks = Framed({1, 2, 3, 4, 1, 0, 0, 2, 1, 2, 3, 4}, {{42, 5, 2}});
  EXPECT_THAT(blocks,
              ElementsAre(14643705804678351452u, 9110805482335493937u, 14643705804678351452u));
  EXPECT_THAT(Framed({1, 2, 3, 4}, {}), ElementsAre(14643705804678351452u));
}

TEST(HashFramedBlocks, ARunCountsOnAcrossBlocks) {
  const auto whole = Framed({0, 0, 0, 0, 0, 0, 0, 0}, {{42, 0, 8}});
  const auto split = Framed({0, 0, 0, 0, 0, 0, 0, 0}, {{42, 0, 4}, {42, 4, 4}});
  EXPECT_EQ(whole[0], split[0]);
  EXPECT_NE(whole[1], split[1]);  // positions 4..7 against 0..3
  EXPECT_EQ(split[0], split[1]);
}

TEST(HashFramedBlocks, NeighbouringRunsAndOtherObjectsDiffer) {
  const std::vector<TokenId> tokens = {0, 0, 0, 0};
  const auto two = Framed(tokens, {{9, 2, 2}, {7, 0, 2}});
  EXPECT_EQ(two, Framed(tokens, {{7, 0, 2}, {9, 2, 2}}));
  EXPECT_NE(two, Framed(tokens, {{9, 0, 2}, {7, 2, 2}}));
  EXPECT_NE(two, Framed(tokens, {{7, 0, 4}}));
}

TEST(HashFramedBlocks, SeedAndEagleApply) {
  const std::vector<TokenId> tokens = {1, 0, 0, 2, 5};
  EXPECT_NE(Framed(tokens, {{42, 1, 2}}, {.block_size = 4, .seed = Seed("sql", "")}),
            Framed(tokens, {{42, 1, 2}}));
  // The shared token of an eagle window makes the run a part of both windows.
  const auto eagle =
      Framed({1, 2, 3, 4, 0, 0, 0, 0, 0}, {{42, 4, 1}}, {.block_size = 4, .eagle = true});
  const auto plain = Framed({1, 2, 3, 4, 0, 0, 0, 0, 0}, {}, {.block_size = 4, .eagle = true});
  EXPECT_NE(eagle[0], plain[0]);
  EXPECT_NE(eagle[1], plain[1]);
}

TEST(SortMmRuns, C23Refuses) {
  constexpr auto kMax = std::numeric_limits<std::size_t>::max();
  struct Row {
    std::vector<MmRun> runs;
    std::string_view name;
    std::size_t position;
  };
  for (const Row& row : {
           Row{{{1, 3, 0}}, "EmptyRun", 3},
           Row{{{1, 1, kMax}}, "OffsetOverflow", 1},
           Row{{{1, kMax, 1}}, "OffsetOverflow", kMax},
           Row{{{1, 6, 3}}, "OutOfBounds", 8},
           Row{{{1, 9, 1}}, "OutOfBounds", 9},
           Row{{{1, 4, 2}, {2, 2, 3}}, "Overlapping", 4},
           Row{{{1, 4, 2}, {2, 4, 2}}, "Overlapping", 4},
           Row{{{1, 0, 8}, {2, 2, 3}}, "Overlapping", 2},
       }) {
    auto runs = row.runs;
    const auto result = SortMmRuns(runs, 8);
    ASSERT_FALSE(result) << row.name;
    EXPECT_EQ(MmRunErrorName(result.error().error), row.name);
    EXPECT_EQ(result.error().position, row.position) << row.name;
  }
}

TEST(SortMmRuns, SortsAndAcceptsTheEdges) {
  std::vector<MmRun> runs = {{2, 4, 4}, {1, 0, 4}};
  ASSERT_TRUE(SortMmRuns(runs, 8));
  EXPECT_THAT(runs, ElementsAre(MmRun{1, 0, 4}, MmRun{2, 4, 4}));
  std::vector<MmRun> none;
  EXPECT_TRUE(SortMmRuns(none, 0));
}

}  // namespace
}  // namespace kvr::hashing
