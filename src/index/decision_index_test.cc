#include "index/decision_index.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/alloc_counter.h"

namespace kvr::index {
namespace {

constexpr Rank kA{WorkerId{1}, 0};
constexpr Rank kB{WorkerId{2}, 0};

Nanos Seconds(double seconds) {
  return Nanos(static_cast<Nanos::rep>(seconds * 1e9));
}

// Blocks first, first+1, ... of one chain; a chain goes by the number of its first block.
struct Path {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> names;

  Path(std::uint64_t chain, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back(BlockHash{chain * 1'000 + i});
      names.push_back(SequenceHash{chain * 1'000'000 + i});
    }
  }
};

class DecisionIndexTest : public ::testing::Test {
 protected:
  void Add(Rank rank, const Path& path, double now, double ttl = 1) {
    ASSERT_TRUE(index.Add(rank, path.blocks, path.names, Seconds(now), Seconds(ttl)));
  }
  DecisionIndex::Lease Acquire(Rank rank, const Path& path, double now, double ttl = 1) {
    auto lease = index.Acquire(rank, path.blocks, path.names, Seconds(now), Seconds(ttl));
    EXPECT_TRUE(lease);
    return *std::move(lease);
  }
  std::uint32_t DepthAt(double now, const Path& path, Rank rank = kA) {
    index.Expire(Seconds(now));
    return Depth(path, rank);
  }
  std::uint32_t Depth(const Path& path, Rank rank = kA) const {
    OverlapScores scores;
    index.Match(path.blocks, scores);
    for (const RankSlot slot : scores.scored()) {
      if (scores.at(slot).rank == rank) return scores.at(slot).depth();
    }
    return 0;
  }

  DecisionIndex index{{}};
};

TEST_F(DecisionIndexTest, P1_EachEntryLivesItsOwnTime) {
  const Path slow(1, 2);
  const Path quick(2, 2);
  Add(kA, slow, 0, 120);
  Add(kA, quick, 0, 2);
  EXPECT_EQ(DepthAt(1.9, quick), 2u);
  EXPECT_EQ(DepthAt(3, quick), 0u);
  EXPECT_EQ(DepthAt(3, slow), 2u);
  Add(kA, slow, 4, 2);  // takes nothing from what an earlier decision gave
  EXPECT_EQ(DepthAt(119, slow), 2u);
  EXPECT_EQ(DepthAt(121, slow), 0u);
  EXPECT_TRUE(index.empty());
}

// Mixed times and paths that share their beginning: after each Expire exactly what the decisions
// keep is there.
TEST_F(DecisionIndexTest, P1_EqualsAModelOfTimes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    DecisionIndex tried{{}};
    std::map<std::uint64_t, double> due;  // block → until when
    double now = 0;
    for (int step = 0; step < 400; ++step) {
      now += static_cast<double>(rng.Below(20)) / 10;
      const Path path(1 + rng.Below(4), 1 + rng.Below(8));
      const double ttl = rng.Below(2) == 0 ? 20 : 2;
      ASSERT_TRUE(tried.Add(kA, path.blocks, path.names, Seconds(now), Seconds(ttl)));
      for (const BlockHash block : path.blocks)
        due[Raw(block)] = std::max(due[Raw(block)], now + ttl);
      // Between two times of the rounding, so that neither side has to round alike.
      tried.Expire(Seconds(now + 0.05));
      std::erase_if(due, [&](const auto& entry) { return entry.second < now + 0.05; });
      ASSERT_EQ(tried.stats().blocks, due.size());
    }
    tried.Expire(Seconds(now + 30));
    EXPECT_TRUE(tried.empty());
  }
}

TEST_F(DecisionIndexTest, P1_TimeToLive) {
  const Path path(1, 3);
  Add(kA, path, 0);
  EXPECT_EQ(DepthAt(0.99, path), 3u);
  EXPECT_EQ(DepthAt(1.1, path), 0u);
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.stats().expired_blocks, 3u);
}

TEST_F(DecisionIndexTest, P1_RoundedUpToTheStep) {
  Add(kA, Path(1, 1), 0.05);
  EXPECT_EQ(DepthAt(1.05, Path(1, 1)), 1u);
  EXPECT_EQ(DepthAt(1.1, Path(1, 1)), 0u);
}

TEST_F(DecisionIndexTest, P2_ADecisionRefreshesItsPath) {
  Add(kA, Path(1, 3), 0);
  Add(kA, Path(1, 5), 0.9);
  EXPECT_EQ(DepthAt(1.05, Path(1, 5)), 5u);
  EXPECT_EQ(DepthAt(2.0, Path(1, 5)), 0u);
}

TEST_F(DecisionIndexTest, P2_AShorterPathLetsTheTailGo) {
  Add(kA, Path(1, 5), 0);
  Add(kA, Path(1, 2), 0.9);
  EXPECT_EQ(DepthAt(1.2, Path(1, 5)), 2u);
}

TEST_F(DecisionIndexTest, P3_ZeroIsGoneAtTheNextExpiry) {
  Add(kA, Path(1, 3), 1, 0);
  EXPECT_EQ(DepthAt(1, Path(1, 3)), 0u);
  // Also between two steps.
  Add(kA, Path(1, 3), 1.05, 0);
  EXPECT_EQ(Depth(Path(1, 3)), 3u);
  EXPECT_EQ(DepthAt(1.05, Path(1, 3)), 0u);
  // It takes nothing from what an earlier decision gave.
  Add(kA, Path(1, 2), 2.05, 0.5);
  Add(kA, Path(1, 3), 2.05, 0);
  EXPECT_EQ(DepthAt(2.05, Path(1, 3)), 2u);
}

TEST_F(DecisionIndexTest, P5_ListsOfDifferentLengths) {
  Path path(1, 3);
  path.names.pop_back();
  const auto refused = index.Add(kA, path.blocks, path.names, Seconds(0), Seconds(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "3 block hashes with 2 sequence hashes; there must be one each");
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.stats().ranks, 0u);
}

TEST_F(DecisionIndexTest, P6_OldTimersDoNotReachNewBlocks) {
  Add(kA, Path(1, 3), 0);
  index.Forget(kA);
  EXPECT_EQ(Depth(Path(1, 3)), 0u);
  Add(kA, Path(1, 3), 0.5);
  EXPECT_EQ(DepthAt(1.2, Path(1, 3)), 3u);
  EXPECT_EQ(DepthAt(1.6, Path(1, 3)), 0u);
}

TEST_F(DecisionIndexTest, P6_OldLeasesDoNotReachNewBlocks) {
  index.SetCapacity(kA, 3);
  auto old = Acquire(kA, Path(1, 3), 0);
  index.Forget(kA);
  index.SetCapacity(kA, 3);
  const auto running = Acquire(kA, Path(1, 3), 1);
  old.End();
  Add(kA, Path(2, 1), 2);
  EXPECT_EQ(Depth(Path(1, 3)), 3u);
}

TEST_F(DecisionIndexTest, P7_RefreshingCostsNoMemory) {
  const Path path(1, 20);
  Add(kA, path, 0);
  const std::uint64_t bytes = index.stats().bytes;
  for (int i = 1; i < 100'000; ++i)
    Add(kA, path, i * 1e-3);
  EXPECT_EQ(index.stats().blocks, 20u);
  EXPECT_EQ(index.stats().bytes, bytes);
}

TEST_F(DecisionIndexTest, RanksAreApart) {
  Add(kA, Path(1, 3), 0);
  Add(kB, Path(1, 2), 0.5);
  EXPECT_EQ(DepthAt(1.2, Path(1, 3)), 0u);
  EXPECT_EQ(Depth(Path(1, 3), kB), 2u);
  index.ForgetAllBut(std::vector<Rank>{kA});
  EXPECT_EQ(Depth(Path(1, 3), kB), 0u);
  EXPECT_EQ(index.stats().ranks, 1u);
}

TEST_F(DecisionIndexTest, CapacityEvictsTheLeastRecentlyReleased) {
  index.SetCapacity(kA, 6);
  Add(kA, Path(1, 3), 0);
  Add(kA, Path(2, 3), 1);
  Add(kA, Path(1, 1), 2);  // the head of the first path is younger than its tail now
  Add(kA, Path(3, 2), 3);
  EXPECT_EQ(Depth(Path(1, 3)), 1u);
  EXPECT_EQ(Depth(Path(2, 3)), 3u);
  EXPECT_EQ(Depth(Path(3, 2)), 2u);
  Add(kA, Path(4, 1), 4);
  EXPECT_EQ(Depth(Path(2, 3)), 2u);         // the deepest of a path first
  EXPECT_EQ(DepthAt(1e6, Path(3, 2)), 2u);  // time does not matter
  EXPECT_EQ(index.stats().evicted_blocks, 3u);
}

TEST_F(DecisionIndexTest, RunningRequestsKeepTheirBlocks) {
  index.SetCapacity(kA, 4);
  auto first = Acquire(kA, Path(1, 3), 0);
  auto second = Acquire(kA, Path(1, 3), 0);
  Add(kA, Path(2, 3), 1);
  EXPECT_EQ(Depth(Path(1, 3)), 3u);
  EXPECT_EQ(Depth(Path(2, 3)), 1u);
  first.End();
  Add(kA, Path(3, 4), 2);
  EXPECT_EQ(Depth(Path(1, 3)), 3u);
  second.End();
  Add(kA, Path(4, 4), 3);
  EXPECT_EQ(Depth(Path(1, 3)), 0u);
  EXPECT_EQ(Depth(Path(4, 4)), 4u);
}

TEST_F(DecisionIndexTest, MoreRunsThanTheCapacity) {
  index.SetCapacity(kA, 2);
  auto lease = Acquire(kA, Path(1, 5), 0);
  EXPECT_EQ(Depth(Path(1, 5)), 5u);
  lease.End();
  EXPECT_EQ(Depth(Path(1, 5)), 2u);
}

TEST_F(DecisionIndexTest, CapacityComesAndGoes) {
  Add(kA, Path(1, 5), 0);
  index.SetCapacity(kA, 3);
  EXPECT_EQ(DepthAt(10, Path(1, 5)), 3u);
  index.SetCapacity(kA, std::nullopt);
  EXPECT_EQ(DepthAt(10, Path(1, 5)), 0u);
}

TEST_F(DecisionIndexTest, NothingExpiresUnderARunningRequest) {
  auto lease = Acquire(kA, Path(1, 3), 0);
  EXPECT_EQ(DepthAt(100, Path(1, 3)), 3u);
  lease.End();
  EXPECT_EQ(DepthAt(100, Path(1, 3)), 0u);
}

TEST(DecisionIndexLimits, OldestGiveWayAndRanksAreRefused) {
  DecisionIndex::Options options;
  options.blocks_max = 4;
  options.index.ranks_max = 1;
  DecisionIndex index(options);
  const Path one(1, 3);
  const Path two(2, 3);
  ASSERT_TRUE(index.Add(kA, one.blocks, one.names, Seconds(0), Seconds(9)));
  ASSERT_TRUE(index.Add(kA, two.blocks, two.names, Seconds(1), Seconds(9)));
  EXPECT_EQ(index.stats().blocks, 4u);
  const auto refused = index.Add(kB, one.blocks, one.names, Seconds(1), Seconds(9));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(index.stats().refused, 1u);
  EXPECT_EQ(index.stats().ranks, 1u);
}

// A model that keeps, for each block, when it is due; in steps.
TEST(DecisionIndexModel, HoldsWhatIsNotDue) {
  Rng rng(3);
  const DecisionIndex::Options options;
  DecisionIndex index(options);
  std::map<std::uint64_t, int> due;  // by block
  int now = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += static_cast<int>(rng.Below(3));
    const Path path(rng.Below(20), 1 + rng.Below(30));
    if (rng.Below(3) > 0) {
      ASSERT_TRUE(index.Add(kA, path.blocks, path.names, now * options.step, 20 * options.step));
      for (const BlockHash block : path.blocks)
        due[Raw(block)] = now + 20;
      continue;
    }
    index.Expire(now * options.step);
    OverlapScores scores;
    index.Match(path.blocks, scores);
    std::uint32_t depth = 0;
    while (depth < path.blocks.size() && due[Raw(path.blocks[depth])] > now)
      ++depth;
    ASSERT_EQ(scores.scored().empty() ? 0u : scores.at(scores.scored().front()).depth(), depth)
        << i;
  }
}

// What is counted is what malloc gave, and it goes back when the entries go.
TEST_F(DecisionIndexTest, CountsItsMemoryAndGivesItBack) {
  const auto counted = [this] { return static_cast<double>(index.stats().bytes); };
  const std::int64_t before = test::HeapOfThisThread() - static_cast<std::int64_t>(counted());
  const auto heap = [before] { return static_cast<double>(test::HeapOfThisThread() - before); };
  for (std::uint64_t chain = 0; chain < 4'000; ++chain)
    Add(kA, Path(chain, 50), 1, chain < 40 ? 20 : 1);
  EXPECT_EQ(index.stats().blocks, 200'000u);
  EXPECT_NEAR(counted() / heap(), 1, 0.05);
  const double full = heap();
  index.Expire(Seconds(10));
  EXPECT_EQ(index.stats().blocks, 2'000u);
  EXPECT_NEAR(counted() / heap(), 1, 0.05);
  EXPECT_LT(heap(), full / 10);
  // What is left is in order yet.
  EXPECT_EQ(Depth(Path(7, 50)), 50u);
  Add(kA, Path(7, 30), 11, 20);
  EXPECT_EQ(DepthAt(22, Path(7, 50)), 30u);
  EXPECT_EQ(Depth(Path(8, 50)), 0u);
  {
    const auto lease = Acquire(kB, Path(5'000, 100), 12);
    EXPECT_NEAR(counted() / heap(), 1, 0.05);
  }
}

}  // namespace
}  // namespace kvr::index
