#include "sim/kv_pool.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kBlockSize = 2;

EngineHash H(std::uint64_t n) {
  return EngineHash{n};
}

KvPool::Options Small(std::uint32_t blocks_max, std::uint32_t host_blocks_max = 0) {
  return {.block_size = kBlockSize, .blocks_max = blocks_max, .host_blocks_max = host_blocks_max};
}

// Computes the chain `hashes` from scratch and returns the blocks held.
std::vector<KvPool::Block> Compute(KvPool& pool, const std::vector<EngineHash>& hashes) {
  std::vector<KvPool::Block> blocks;
  EXPECT_TRUE(pool.Reserve({}, static_cast<std::uint32_t>(hashes.size()), blocks));
  const std::vector<TokenId> tokens = {1, 2};
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    pool.Commit(blocks[i], i == 0 ? std::nullopt : std::optional(hashes[i - 1]), hashes[i], tokens);
  }
  return blocks;
}

std::vector<EngineHash> RemovedIn(const std::vector<KvEvent>& events, Tier tier = Tier::kDevice) {
  std::vector<EngineHash> removed;
  for (const KvEvent& event : events) {
    if (event.kind == PlacementKind::kRemoved && event.tier == tier) {
      removed.insert(removed.end(), event.hashes.begin(), event.hashes.end());
    }
  }
  return removed;
}

TEST(KvPool, AnnouncesOneRunAsOneEvent) {
  KvPool pool(Small(8));
  auto blocks = Compute(pool, {H(1), H(2), H(3)});
  const KvEvent stored{.kind = PlacementKind::kStored,
                       .tier = Tier::kDevice,
                       .hashes = {H(1), H(2), H(3)},
                       .tokens = {1, 2, 1, 2, 1, 2}};
  EXPECT_THAT(pool.TakeEvents(), ElementsAre(stored));
  pool.Release(blocks);
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
  EXPECT_THAT(blocks, IsEmpty());
  EXPECT_EQ(pool.active(), 0u);
  EXPECT_EQ(pool.idle(), 3u);
}

TEST(KvPool, FindsTheLongestRunAndSaysWhatIsHeld) {
  KvPool pool(Small(8));
  auto first = Compute(pool, {H(1), H(2)});
  auto second = Compute(pool, {H(1), H(2), H(3)});
  pool.Release(second);
  const std::vector<EngineHash> chain = {H(1), H(2), H(3), H(4)};
  const KvPool::Hit hit = pool.Find(chain);
  EXPECT_EQ(hit.device, 3u);
  EXPECT_EQ(hit.device_active, 2u);
  EXPECT_EQ(hit.host, 0u);
  EXPECT_EQ(pool.Find(std::vector<EngineHash>{H(2)}).device, 1u);
  EXPECT_EQ(pool.Find(std::vector<EngineHash>{H(9), H(1)}).device, 0u);
  pool.Release(first);
}

TEST(KvPool, M11_TwoCopiesOneStoredAndOneRemovedWhenTheLastGoes) {
  KvPool pool(Small(2));
  auto first = Compute(pool, {H(1)});
  auto second = Compute(pool, {H(1)});
  EXPECT_EQ(pool.active(), 2u);
  EXPECT_EQ(pool.TakeEvents().size(), 1u);
  pool.Release(first);
  pool.Release(second);

  std::vector<KvPool::Block> pressure;
  ASSERT_TRUE(pool.Reserve({}, 1, pressure));
  EXPECT_THAT(pool.TakeEvents(), IsEmpty()) << "one copy is left";
  EXPECT_EQ(pool.Find(std::vector<EngineHash>{H(1)}).device, 1u);
  ASSERT_TRUE(pool.Reserve({}, 1, pressure));
  EXPECT_THAT(RemovedIn(pool.TakeEvents()), ElementsAre(H(1)));
  EXPECT_EQ(pool.evicted(), 2u);
}

TEST(KvPool, M12_LeavesGoBeforeParentsOldestReleaseFirst) {
  KvPool pool(Small(4));
  auto old = Compute(pool, {H(1), H(2)});
  auto recent = Compute(pool, {H(11), H(12)});
  pool.Release(old);
  pool.Release(recent);
  (void)pool.TakeEvents();
  std::vector<KvPool::Block> pressure;
  ASSERT_TRUE(pool.Reserve({}, 4, pressure));
  EXPECT_THAT(RemovedIn(pool.TakeEvents()), ElementsAre(H(2), H(1), H(12), H(11)));
}

TEST(KvPool, M13_AReservationThatDoesNotFitChangesNothing) {
  KvPool pool(Small(4));
  auto idle = Compute(pool, {H(1), H(2)});
  pool.Release(idle);
  auto held = Compute(pool, {H(11)});
  (void)pool.TakeEvents();

  // One block is free and two are idle, but both idle ones are the prefix itself.
  const std::vector<EngineHash> prefix = {H(1), H(2)};
  std::vector<KvPool::Block> blocks;
  EXPECT_FALSE(pool.Reserve(prefix, 2, blocks));
  EXPECT_THAT(blocks, IsEmpty());
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
  EXPECT_EQ(pool.active(), 1u);
  EXPECT_EQ(pool.idle(), 2u);

  EXPECT_TRUE(pool.Reserve(prefix, 1, blocks));
  EXPECT_EQ(pool.active(), 4u);
  EXPECT_THAT(pool.TakeEvents(), IsEmpty()) << "the free block was enough";
}

TEST(KvPool, PrivateBlocksAreFreeAgainWithoutAWord) {
  KvPool pool(Small(2));
  std::vector<KvPool::Block> blocks;
  ASSERT_TRUE(pool.Reserve({}, 2, blocks));
  pool.Release(blocks);
  EXPECT_EQ(pool.idle(), 0u);
  ASSERT_TRUE(pool.Reserve({}, 2, blocks));
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
}

TEST(KvPool, WithoutPrefixCachingOnlyRoomCounts) {
  KvPool::Options options = Small(2);
  options.prefix_caching = false;
  KvPool pool(options);
  auto blocks = Compute(pool, {H(1), H(2)});
  EXPECT_EQ(pool.Find(std::vector<EngineHash>{H(1)}).device, 0u);
  std::vector<KvPool::Block> more;
  EXPECT_FALSE(pool.Reserve({}, 1, more));
  pool.Release(blocks);
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
  EXPECT_TRUE(pool.Reserve({}, 2, more));
}

TEST(KvPool, ClearsOnlyWhenNothingIsHeld) {
  KvPool pool(Small(4, 4));
  auto blocks = Compute(pool, {H(1), H(2)});
  (void)pool.TakeEvents();
  EXPECT_FALSE(pool.Clear());
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
  pool.Release(blocks);
  EXPECT_TRUE(pool.Clear());
  EXPECT_THAT(pool.TakeEvents(), ElementsAre(KvEvent{.kind = PlacementKind::kCleared}));
  EXPECT_THAT(pool.Visible(Tier::kDevice), IsEmpty());
  EXPECT_THAT(pool.Visible(Tier::kHostPinned), IsEmpty());
  EXPECT_TRUE(pool.Reserve({}, 4, blocks));
  EXPECT_THAT(pool.TakeEvents(), IsEmpty());
}

TEST(KvPool, HostTierOutlivesTheDeviceAndEvictsLeavesFirst) {
  KvPool pool(Small(3, 4));
  auto blocks = Compute(pool, {H(1), H(2), H(3)});
  const auto stored = pool.TakeEvents();
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].tier, Tier::kDevice) << "a reader must know the block before its copy";
  EXPECT_EQ(stored[1].tier, Tier::kHostPinned);
  EXPECT_EQ(stored[1].hashes, stored[0].hashes);
  EXPECT_EQ(stored[1].tokens, stored[0].tokens);
  pool.Release(blocks);

  auto other = Compute(pool, {H(11), H(12)});
  const auto events = pool.TakeEvents();
  EXPECT_THAT(RemovedIn(events), ElementsAre(H(3), H(2)));
  EXPECT_THAT(RemovedIn(events, Tier::kHostPinned), ElementsAre(H(3)));
  const std::vector<EngineHash> chain = {H(1), H(2), H(3)};
  const KvPool::Hit hit = pool.Find(chain);
  EXPECT_EQ(hit.device, 1u);
  EXPECT_EQ(hit.host, 1u);
  pool.Release(other);
}

// Applies events as a reader of the stream would.
class Reader {
 public:
  void Apply(const std::vector<KvEvent>& events) {
    for (const KvEvent& event : events) {
      auto& tier = tiers_[event.tier];
      for (const EngineHash hash : event.hashes) {
        if (event.kind == PlacementKind::kStored) {
          EXPECT_TRUE(tier.insert(hash).second) << "stored twice";
        } else {
          EXPECT_EQ(tier.erase(hash), 1u) << "removed without being there";
        }
      }
      if (event.kind == PlacementKind::kCleared) tiers_.clear();
    }
  }
  std::vector<EngineHash> Visible(Tier tier) { return {tiers_[tier].begin(), tiers_[tier].end()}; }

 private:
  std::map<Tier, std::set<EngineHash>> tiers_;
};

TEST(KvPool, M21_EventsReplayedEqualWhatCanBeFoundUnderRandomUse) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    KvPool pool(Small(24, 16));
    Reader reader;
    std::vector<std::vector<KvPool::Block>> holders;
    for (int step = 0; step < 2'000; ++step) {
      const std::uint64_t action = rng.Below(10);
      if (action < 6) {
        // One of 8 documents, cut at a random depth; reuse what is there.
        std::vector<EngineHash> chain;
        const std::uint64_t document = rng.Below(8);
        for (std::uint64_t i = 0; i <= rng.Below(6); ++i)
          chain.push_back(H(document * 100 + i));
        const KvPool::Hit hit = pool.Find(chain);
        std::vector<KvPool::Block> blocks;
        const auto fresh = static_cast<std::uint32_t>(chain.size()) - hit.device;
        if (!pool.Reserve(std::span(chain).first(hit.device), fresh, blocks)) continue;
        const std::vector<TokenId> tokens = {7, 7};
        for (std::size_t i = hit.device; i < chain.size(); ++i) {
          pool.Commit(blocks[i], i == 0 ? std::nullopt : std::optional(chain[i - 1]), chain[i],
                      tokens);
        }
        holders.push_back(std::move(blocks));
      } else if (action < 9 && !holders.empty()) {
        std::swap(holders[rng.Below(holders.size())], holders.back());
        pool.Release(holders.back());
        holders.pop_back();
      } else if (holders.empty()) {
        EXPECT_TRUE(pool.Clear());
      }
      reader.Apply(pool.TakeEvents());
      ASSERT_LE(pool.active() + pool.idle(), pool.options().blocks_max);
      ASSERT_EQ(reader.Visible(Tier::kDevice), pool.Visible(Tier::kDevice));
      ASSERT_EQ(reader.Visible(Tier::kHostPinned), pool.Visible(Tier::kHostPinned));
    }
  }
}

}  // namespace
}  // namespace kvr::sim
