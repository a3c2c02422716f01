// What an index weighs, and what it does at its memory limit.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "index/index_workload.h"
#include "index/run_arena.h"
#include "support/alloc_counter.h"

namespace kvr::index {
namespace {

constexpr std::uint64_t kMany = 1u << 20;

// Conversation `number` of a rank, as its engine announces it: names are the rank's own if it says
// so.
struct Chain {
  std::vector<PlacedBlock> blocks;

  explicit Chain(std::uint64_t number, std::uint32_t length = 32, std::uint64_t own = 0) {
    for (std::uint32_t i = 0; i < length; ++i) {
      const std::uint64_t local = number * kMany + i + 1;
      blocks.push_back({EngineHash{local ^ (own << 50)}, BlockHash{local}});
    }
  }
  [[nodiscard]] std::vector<BlockHash> query() const {
    std::vector<BlockHash> locals;
    for (const PlacedBlock& block : blocks)
      locals.push_back(block.local);
    return locals;
  }
  [[nodiscard]] std::vector<EngineHash> names() const {
    std::vector<EngineHash> names;
    for (const PlacedBlock& block : blocks)
      names.push_back(block.engine);
    return names;
  }
};

class Arena {
 public:
  explicit Arena(std::uint64_t limit = 0)
      : options{.remembered_names_max = 0, .memory_limit = limit}, index(options) {}

  RankSlot Slot(std::uint64_t worker) { return *index.AddRank(Rank{WorkerId{worker}, 0}); }
  ApplyStatus Store(std::uint64_t worker, const Chain& chain, Tier tier = Tier::kDevice) {
    PlacementEvent event;
    event.tier = tier;
    event.blocks = chain.blocks;
    return Apply(worker, event);
  }
  ApplyStatus Remove(std::uint64_t worker, const Chain& chain) {
    const std::vector<EngineHash> names = chain.names();
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = names;
    return Apply(worker, event);
  }
  ApplyStatus Clear(std::uint64_t worker) {
    PlacementEvent event;
    event.kind = PlacementKind::kCleared;
    return Apply(worker, event);
  }
  ApplyStatus Apply(std::uint64_t worker, const PlacementEvent& event) {
    const ApplyStatus status = index.Apply(Slot(worker), event).status;
    if (options.memory_limit > 0) {
      EXPECT_LE(index.Stats().bytes, options.memory_limit);
    }
    return status;
  }
  std::uint32_t Depth(std::uint64_t worker, const Chain& chain) {
    index.Match(chain.query(), {}, scores);
    return scores.at(Slot(worker)).depth();
  }
  RankStats Of(std::uint64_t worker) { return index.StatsOf(Slot(worker)); }
  // Lets the clock of the index pass the uses until now.
  void Age() {
    for (int i = 0; i < 64; ++i)
      Store(77, Chain(77, 1));
  }

  IndexOptions options;
  RunArena index;
  OverlapScores scores;
};

std::uint64_t Held(const RankStats& stats) {
  return std::accumulate(stats.blocks.begin(), stats.blocks.end(), std::uint64_t{0});
}

// Stores chains from `first` on until something is evicted; gives the number of the next.
std::uint64_t Fill(Arena& arena, std::uint64_t worker, std::uint64_t first) {
  const std::uint64_t before = arena.index.Stats().evicted_blocks;
  std::uint64_t next = first;
  while (arena.index.Stats().evicted_blocks == before)
    arena.Store(worker, Chain(next++));
  return next;
}

TEST(IndexEviction, KeepsItsLimitAndCountsWhatWent) {
  Arena arena(300'000);
  std::uint64_t stored = 0;
  for (std::uint64_t i = 0; i < 1'000; ++i, stored += 32)
    arena.Store(i % 3, Chain(i));
  const IndexStats stats = arena.index.Stats();
  EXPECT_GT(stats.bytes, 200'000u) << "the limit is there to be used";
  EXPECT_GT(stats.evicted_blocks, 0u);
  EXPECT_EQ(stats.evicted_blocks + stats.nodes, stored);
  EXPECT_EQ(stats.evicted_memberships + stats.memberships, stored);
  std::uint64_t evicted = 0;
  std::uint64_t held = 0;
  for (std::uint64_t worker = 0; worker < 3; ++worker) {
    evicted += arena.Of(worker).evicted;
    held += Held(arena.Of(worker));
  }
  EXPECT_EQ(evicted, stats.evicted_memberships);
  EXPECT_EQ(held, stats.memberships);
  EXPECT_EQ(std::accumulate(stats.bytes_of.begin(), stats.bytes_of.end(), std::uint64_t{0}),
            stats.bytes);
}

TEST(IndexEviction, LeastRecentlyMatchedGoesFirst) {
  Arena arena(300'000);
  const std::uint64_t full = Fill(arena, 0, 0);
  std::vector<std::uint64_t> asked;
  for (std::uint64_t i = full / 2; i < full; i += 3)
    asked.push_back(i);
  arena.Age();
  for (const std::uint64_t i : asked)
    EXPECT_EQ(arena.Depth(0, Chain(i)), 32u);
  arena.Age();
  // As many as all that nobody asked for.
  for (std::uint64_t i = full; i < full + full / 2; ++i)
    arena.Store(0, Chain(i));
  for (const std::uint64_t i : asked)
    EXPECT_EQ(arena.Depth(0, Chain(i)), 32u) << i;
  EXPECT_EQ(arena.Depth(0, Chain(0)), 0u);
}

TEST(IndexEviction, WhatIsAnnouncedAgainIsUsed) {
  Arena arena(300'000);
  const Chain again(1'000'000);
  arena.Store(0, again);
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    arena.Store(0, Chain(i));
    if (i % 8 == 0) {
      const std::uint64_t held = arena.index.Stats().memberships;
      arena.Store(0, again);
      ASSERT_EQ(arena.index.Stats().memberships, held) << "it was gone at " << i;
    }
  }
  EXPECT_GT(arena.index.Stats().evicted_blocks, 1'000u);
}

TEST(IndexEviction, TheWayToALeafStays) {
  Arena arena(300'000);
  // Branches behind a prompt that nobody asks for by itself.
  const Chain prompt(0, 8);
  for (std::uint64_t i = 1; i < 1'000; ++i) {
    Chain branch(i, 24);
    branch.blocks.insert(branch.blocks.begin(), prompt.blocks.begin(), prompt.blocks.end());
    arena.Store(0, branch);
  }
  EXPECT_GT(arena.index.Stats().evicted_blocks, 1'000u);
  EXPECT_EQ(arena.Depth(0, prompt), 8u);
}

TEST(IndexEviction, ATailBeyondTheLastBranchGoesAlone) {
  Arena arena(300'000);
  Chain first(0, 200);
  arena.Store(0, first);
  Chain branch(1, 50);
  branch.blocks.insert(branch.blocks.begin(), first.blocks.begin(), first.blocks.begin() + 100);
  arena.Store(0, branch);
  for (std::uint64_t i = 2; i < 1'000; ++i) {
    arena.Store(0, Chain(i));
    if (i % 8 == 0) {
      EXPECT_EQ(arena.Depth(0, branch), 150u);
    }
  }
  EXPECT_EQ(arena.Depth(0, first), 100u);
}

TEST(IndexEviction, WhoHoldsMostPays) {
  Arena arena(300'000);
  const Chain small(1'000'000, 300);
  arena.Store(1, small);
  arena.Age();
  for (std::uint64_t i = 0; i < 2'000; ++i)
    arena.Store(0, Chain(i));
  EXPECT_EQ(arena.Depth(1, small), 300u) << "though it is the oldest";
  EXPECT_EQ(arena.Of(1).evicted, 0u);
  EXPECT_GT(arena.Of(0).evicted, 0u);
  // Two that store as much end with as much.
  for (std::uint64_t i = 0; i < 4'000; ++i)
    arena.Store(1 + i % 2, Chain(10'000 + i));
  const double ratio =
      static_cast<double>(Held(arena.Of(1))) / static_cast<double>(Held(arena.Of(2)));
  EXPECT_NEAR(ratio, 1.0, 0.1);
}

TEST(IndexEviction, WhoSharesALeafLosesItToo) {
  Arena arena(300'000);
  const Chain shared(5'000);
  arena.Store(0, shared);
  arena.Store(1, shared);
  arena.Store(1, shared, Tier::kHostPinned);
  arena.Store(2, Chain(5'000, 32, 9), Tier::kDisk);  // under names of its own
  arena.Age();
  for (std::uint64_t i = 0; arena.Of(1).evicted == 0; ++i)
    arena.Store(0, Chain(i));
  for (std::uint64_t worker = 0; worker < 3; ++worker)
    EXPECT_EQ(arena.Depth(worker, shared), 0u);
  EXPECT_EQ(arena.Of(1).evicted, 64u);
  EXPECT_EQ(arena.Of(2).evicted, 32u);
  EXPECT_EQ(Held(arena.Of(1)) + Held(arena.Of(2)), 0u);
  // It comes back with the engine's next announcement, under its own names.
  const Chain own(5'000, 32, 9);
  EXPECT_EQ(arena.Store(2, own), ApplyStatus::kOk);
  EXPECT_EQ(arena.Depth(2, own), 32u);
  EXPECT_EQ(arena.scores.at(arena.Slot(2)).last, own.blocks.back().engine);
}

TEST(IndexEviction, EnginesMayGoOnNamingWhatWent) {
  Arena arena(300'000);
  const Chain gone(5'000);
  arena.Store(0, gone);
  arena.Age();
  Fill(arena, 0, 0);
  ASSERT_EQ(arena.Depth(0, gone), 0u);
  PlacementEvent child;
  child.parent = gone.blocks.back().engine;
  const Chain next(6'000, 1);
  child.blocks = next.blocks;
  EXPECT_EQ(arena.Apply(0, child), ApplyStatus::kParentNotFound);
  EXPECT_EQ(arena.Of(0).pending_blocks, 1u);
  EXPECT_EQ(arena.Remove(0, gone), ApplyStatus::kBlockNotFound);
  // The parent is announced again: what waits behind it is there.
  arena.Store(0, gone);
  Chain both = gone;
  both.blocks.push_back(next.blocks[0]);
  EXPECT_EQ(arena.Depth(0, both), 33u);
}

TEST(IndexEviction, AClearedRankHasLostNothing) {
  Arena arena(300'000);
  Fill(arena, 0, 0);
  EXPECT_GT(arena.Of(0).evicted, 0u);
  arena.Clear(0);
  EXPECT_EQ(arena.Of(0).evicted, 0u);
  EXPECT_GT(arena.index.Stats().evicted_blocks, 0u);
}

TEST(IndexEviction, WaitingBlocksCountToo) {
  Arena arena(300'000);
  arena.Store(0, Chain(0));
  for (std::uint64_t i = 1; i < 10'000; ++i) {
    const Chain orphan(i, 1);
    PlacementEvent event;
    event.parent = EngineHash{i * kMany + 500};
    event.blocks = orphan.blocks;
    arena.Apply(i % 2, event);
  }
  EXPECT_GT(arena.index.Stats().pending_dropped, 0u);
  EXPECT_GT(arena.index.Stats().pending_blocks, 0u);
  EXPECT_EQ(arena.Depth(0, Chain(0)), 32u) << "it takes less than its share";
}

TEST(IndexEviction, ALimitBelowWhatAnEmptyIndexTakesHoldsNothing) {
  RunArena index(IndexOptions{.memory_limit = 1});
  const RankSlot slot = *index.AddRank(Rank{WorkerId{1}, 0});
  const Chain chain(1, 1'000);
  PlacementEvent event;
  event.blocks = chain.blocks;
  EXPECT_EQ(index.Apply(slot, event).status, ApplyStatus::kOk);
  EXPECT_EQ(index.Stats().memberships, 0u);
  EXPECT_EQ(index.StatsOf(slot).evicted, 1'000u);
}

// Stats().bytes against the heap that malloc gave out.
class IndexWeight : public testing::Test {
 protected:
  // What is counted follows glibc's rounding; a sanitizer's allocator rounds less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr double kNear = 0.10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  static constexpr double kNear = 0.10;
#else
  static constexpr double kNear = 0.05;
#endif
#else
  static constexpr double kNear = 0.05;
#endif

  static void ExpectExact(RunArena& index, std::int64_t heap_before, const char* what) {
    const auto heap = static_cast<double>(test::HeapOfThisThread() - heap_before);
    const auto counted = static_cast<double>(index.Stats().bytes);
    EXPECT_GT(heap, 1'000'000) << what;
    EXPECT_NEAR(counted / heap, 1.0, kNear) << what;
  }
};

TEST_F(IndexWeight, IsWhatMallocGaveOut) {
  constexpr std::uint32_t kRanks = 16;
  struct Case {
    const char* name;
    std::uint32_t length;   // of a chain
    std::uint64_t chains;   // of a rank
    std::uint32_t sharers;  // of each chain
    bool own_names;
    std::uint32_t remembered;  // names a rank
    double removed;            // part of the chains
  };
  constexpr Case kCases[] = {{"long runs", 200, 100, 1, false, 0, 0},
                             {"single blocks", 1, 3'000, 1, false, 0, 0},
                             {"shared by all", 40, 800, kRanks, false, 0, 0},
                             {"names of their own", 40, 100, 4, true, 0, 0},
                             {"remembered", 10, 600, 1, false, 4'096, 0.6},
                             {"mostly removed", 10, 2'000, 1, false, 0, 0.8}};
  for (const Case& c : kCases) {
    const std::int64_t before = test::HeapOfThisThread();
    RunArena index(IndexOptions{.remembered_names_max = c.remembered});
    std::vector<RankSlot> slots;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      slots.push_back(*index.AddRank(Rank{WorkerId{rank}, 0}));
    for (const bool remove : {false, true}) {
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        for (std::uint64_t i = 0; i < c.chains; ++i) {
          if (remove && static_cast<double>(i) >= c.removed * static_cast<double>(c.chains)) break;
          const Chain chain((rank / c.sharers) * c.chains + i, c.length,
                            c.own_names ? rank + 1 : 0);
          const std::vector<EngineHash> names = chain.names();
          PlacementEvent event;
          event.kind = remove ? PlacementKind::kRemoved : PlacementKind::kStored;
          if (remove) {
            event.removed = names;
          } else {
            event.blocks = chain.blocks;
          }
          index.Apply(slots[rank], event);
        }
      }
    }
    ExpectExact(index, before, c.name);
  }
}

TEST_F(IndexWeight, OfManyRanks) {
  for (const std::uint32_t ranks : {4'096u, 60'000u}) {
    for (const bool leave : {false, true}) {
      const std::int64_t before = test::HeapOfThisThread();
      RunArena index(IndexOptions{.remembered_names_max = 0});
      const Chain chain(1, 1);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        PlacementEvent event;
        event.blocks = chain.blocks;
        index.Apply(*index.AddRank(Rank{WorkerId{rank}, 0}), event);
      }
      // All but each fourth, so that most slots are free.
      for (std::uint32_t rank = 0; leave && rank < ranks - 1 && ranks < 10'000; ++rank) {
        if (rank % 4 != 0) index.RemoveRank(Rank{WorkerId{rank}, 0});
      }
      ExpectExact(index, before, "ranks");
    }
  }
}

TEST_F(IndexWeight, OfWhatWaits) {
  const std::int64_t before = test::HeapOfThisThread();
  RunArena index(IndexOptions{});
  const RankSlot slot = *index.AddRank(Rank{WorkerId{1}, 0});
  for (std::uint64_t i = 1; i <= 16'000; ++i) {
    const Chain orphan(i, 1);
    PlacementEvent event;
    event.parent = EngineHash{i};
    event.blocks = orphan.blocks;
    index.Apply(slot, event);
  }
  ExpectExact(index, before, "pending");
}

TEST_F(IndexWeight, OfConversations) {
  const Workload workload({.ranks = 32, .capacity_blocks = 2'048, .requests = 8'000});
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{2'000'000}}) {
    const std::int64_t before = test::HeapOfThisThread();
    RunArena index(IndexOptions{.memory_limit = limit});
    std::vector<RankSlot> slots;
    for (std::uint32_t rank = 0; rank < 32; ++rank)
      slots.push_back(*index.AddRank(Rank{WorkerId{rank}, 0}));
    for (const Workload::Update& update : workload.updates())
      workload.Apply(update, slots, index);
    ExpectExact(index, before, limit == 0 ? "conversations" : "limited");
    if (limit > 0) {
      EXPECT_GT(index.Stats().evicted_blocks, 0u);
    }

    // All but one rank leave: what is left takes what it would take alone.
    for (std::uint32_t rank = 1; rank < 32; ++rank)
      index.RemoveRank(Rank{WorkerId{rank}, 0});
    const IndexStats left = index.Stats();
    EXPECT_LT(left.bytes, 64 * (left.nodes + left.idle_nodes) + 250'000);
    EXPECT_LT(test::HeapOfThisThread() - before, static_cast<std::int64_t>(left.bytes * 21 / 20));
  }
}

}  // namespace
}  // namespace kvr::index
