// Several sources of one rank as one: the rows D2, D4 to D6, D8, D12, K1 to K4 and K11 to K14, and
// snapshots. Copies within a source, of which the rows D1, D3, D9 and D11 speak, are counted before
// (EventTranslator); tests of the whole agent assert those.
#include "publish/block_book.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "publish/test_mutations.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

constexpr std::size_t kEngine = 0;
constexpr std::size_t kManager = 1;

struct Bench {
  explicit Bench(BlockBook::Options options = {}) : book(options) {}

  std::string Feed(std::size_t source, const Mutation& mutation) {
    book.Apply(source, mutation, out);
    return out.Drain();
  }
  // Every run, in order.
  [[nodiscard]] std::string Dump() const {
    const Snapshot snapshot = book.Build();
    Recorder runs;
    for (const Snapshot::Run& run : snapshot.runs) {
      runs.Take(StoreOf(snapshot, run));
    }
    std::sort(runs.taken.begin(), runs.taken.end());
    return runs.Drain();
  }

  Script script;
  Recorder out;
  BlockBook book;
};

TEST(BlockBook, ALoneSourcePassesAsItIs) {
  Bench b;
  EXPECT_EQ(b.Feed(kEngine, At(0, Eligible(In("s", b.script.Store({}, 1, 3))))),
            "+1,2,3@0 sce 's'");
  EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1, 3)), "+1,2,3") << "again";
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({3, 2})), "-3,2");
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({77})), "-77") << "D2, K4: unknown passes";
  EXPECT_EQ(b.Feed(kEngine, Script::Clear()), "!");
  EXPECT_EQ(b.book.blocks(), 0u) << "D12";
  EXPECT_EQ(b.book.stats().unknown_removals, 1u);
}

TEST(BlockBook, K12ToK14TheOrderIsTheSourcesOwn) {
  Bench b;
  EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1)), "+1");
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1})), "-1");
  EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1)), "+1") << "K12";
  EXPECT_EQ(b.Feed(kEngine, b.script.Store(2, 3)), "+2<3") << "K13: before its parent";
  EXPECT_EQ(b.Feed(kEngine, b.script.Store(1, 2)), "+1<2");
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1, 3, 2})), "-1,3,2") << "K14";
}

TEST(BlockBook, K1ToK3ABlockOfTwoSourcesIsToldOnce) {
  Bench b;
  EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1, 2)), "+1,2");
  EXPECT_EQ(b.Feed(kManager, b.script.Store({}, 1, 2)), "") << "K1";
  EXPECT_EQ(b.Feed(kManager, b.script.Store({}, 1, 3)), "+2<3") << "the part that is new";
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({2, 1})), "") << "K2";
  EXPECT_EQ(b.Feed(kManager, b.script.Remove({3, 2})), "-3,2") << "K3";
  EXPECT_EQ(b.Feed(kManager, b.script.Remove({1})), "-1");
  EXPECT_EQ(b.book.blocks(), 0u);
  EXPECT_EQ(b.book.stats().shared_stores, 4u);
  EXPECT_EQ(b.book.stats().held_removals, 2u);
}

TEST(BlockBook, AStoreIsCutRoundWhatIsKnown) {
  Bench b;
  b.Feed(kEngine, b.script.Store(2, 3));
  EXPECT_EQ(b.Feed(kManager, At(5, b.script.Store(9, 1, 5))), "+9<1,2@5; +3<4,5@8");
}

TEST(BlockBook, D5StoresAndRemovalsTakeTurns) {
  Bench b;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1)), "+1");
    EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1})), "-1");
  }
}

TEST(BlockBook, D6TiersAreHeldApart) {
  Bench b;
  b.Feed(kEngine, b.script.Store({}, 1));
  EXPECT_EQ(b.Feed(kManager, On(Tier::kHostPinned, b.script.Store({}, 1))), "+1/host_pinned");
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1})), "-1");
  EXPECT_EQ(b.Dump(), "+1/host_pinned");
  EXPECT_EQ(b.Feed(kManager, On(Tier::kHostPinned, b.script.Remove({1}))), "-1/host_pinned");
}

// A rank has a book of its own, so that what others hold is not its matter.
TEST(BlockBook, D7D8RanksAreHeldApartAndAClearIsOfAllTiersOfOne) {
  Bench rank0;
  Bench rank1;
  for (Bench* const b : {&rank0, &rank1}) {
    for (const std::size_t source : {kEngine, kManager}) {
      b->Feed(source, b->script.Store({}, 1));
      b->Feed(source, On(Tier::kHostPinned, b->script.Store({}, 1)));
    }
  }
  for (const std::size_t source : {kEngine, kManager})
    rank0.Feed(source, Script::Clear());
  EXPECT_EQ(rank0.book.blocks(), 0u) << "D8: in all tiers";
  EXPECT_EQ(rank1.Feed(kEngine, rank1.script.Remove({1})), "") << "D7: its count is kept";
  EXPECT_EQ(rank1.Feed(kManager, rank1.script.Remove({1})), "-1");
  EXPECT_EQ(rank1.Dump(), "+1/host_pinned");
}

TEST(BlockBook, D4ARemovalOfNothingSaysNothing) {
  Bench b;
  b.Feed(kEngine, b.script.Store({}, 1));
  b.Feed(kManager, b.script.Store({}, 1));
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1})), "");
  EXPECT_EQ(b.Feed(kManager, b.script.Remove({1, 1})), "-1,1");
}

TEST(BlockBook, K11AClearTakesWhatTheSourceAloneHeld) {
  Bench b;
  b.Feed(kEngine, b.script.Store({}, 1, 3));
  b.Feed(kManager, b.script.Store({}, 1, 2));
  b.Feed(kEngine, On(Tier::kDisk, b.script.Store({}, 1, 1)));
  EXPECT_EQ(b.Feed(kEngine, Script::Clear()), "-3; -1/disk");
  EXPECT_EQ(b.book.blocks(), 2u);
  EXPECT_EQ(b.Dump(), "+1,2");
  EXPECT_EQ(b.Feed(kManager, Script::Clear()), "!") << "the last one's is the rank's";
  EXPECT_EQ(b.book.blocks(), 0u);
}

TEST(BlockBook, StoresByNameGetTheirContent) {
  Bench b;
  b.Feed(kEngine, Eligible(b.script.Store({}, 1, 3)));
  EXPECT_EQ(b.Feed(kEngine, b.script.Names({1, 2, 3})), "+1,2,3/host_pinned sce");
  b.Feed(kEngine, b.script.Remove({1, 2, 3}));
  b.Feed(kEngine, On(Tier::kHostPinned, b.script.Remove({2, 3})));
  EXPECT_EQ(b.Feed(kEngine, On(Tier::kDisk, b.script.Names({3, 2, 99}))),
            "+2<3/disk sce; +1<2/disk sce")
      << "content outlives the last copy, and each hangs where it belongs";
  EXPECT_EQ(b.book.stats().unknown_content, 1u);
  EXPECT_EQ(b.Dump(), "+1/host_pinned sce; +1<2,3/disk sce");
}

TEST(BlockBook, ContentIsRememberedForSoManyBlocks) {
  BlockBook::Options options;
  options.remembered_max = 2;
  Bench b(options);
  b.Feed(kEngine, b.script.Store({}, 1, 3));
  b.Feed(kEngine, b.script.Remove({1, 2, 3}));
  EXPECT_EQ(b.Feed(kEngine, b.script.Names({1})), "");
  EXPECT_EQ(b.Feed(kEngine, b.script.Names({2, 3})), "+1<2,3/host_pinned");
  options.remembered_max = 0;
  Bench none(options);
  none.Feed(kEngine, none.script.Store({}, 1));
  none.Feed(kEngine, none.script.Remove({1}));
  EXPECT_EQ(none.Feed(kEngine, none.script.Names({1})), "");
}

TEST(BlockBook, ANameWithAnotherContentIsTold) {
  Bench b;
  b.Feed(kEngine, b.script.Store({}, 1, 2));
  EXPECT_EQ(b.Feed(kManager, b.script.Store(7, 2)), "-2; +7<2") << "another place";
  EXPECT_EQ(b.book.stats().renamed, 1u);
  EXPECT_EQ(b.Dump(), "+1; +7<2");
}

// Report 11: an engine whose names do not tell salts apart. Who follows the events and who takes a
// snapshot know the same, and nobody the content that may be gone.
TEST(BlockBook, ALoneSourceWithTwoContentsOfANameHasTheLater) {
  Bench b;
  std::array<PlacedBlock, 1> blocks{};
  const auto under = [&](std::uint64_t salt, Tier tier) {
    Mutation store = b.script.Store({}, 1);
    store.event.tier = tier;
    blocks[0] = {store.event.blocks[0].engine, BlockHash{salt}};
    store.event.blocks = blocks;
    return store;
  };
  EXPECT_EQ(b.Feed(kEngine, under(70, Tier::kDevice)), "+1=70");
  EXPECT_EQ(b.Feed(kEngine, under(70, Tier::kHostPinned)), "+1=70/host_pinned");
  EXPECT_EQ(b.Feed(kEngine, under(80, Tier::kDevice)), "-1; -1/host_pinned; +1=80");
  EXPECT_EQ(b.book.Build().blocks.at(0).local, BlockHash{80});
  EXPECT_EQ(b.book.stats().renamed, 1u);
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({1})), "-1");
  EXPECT_EQ(b.Dump(), "");
  EXPECT_EQ(b.book.blocks(), 0u);
}

TEST(BlockBook, EligibleIsWhatEveryStoreWas) {
  Bench b;
  b.Feed(kEngine, Eligible(b.script.Store({}, 1)));
  EXPECT_EQ(b.Dump(), "+1 sce");
  EXPECT_EQ(b.Feed(kManager, b.script.Store({}, 1)), "+1") << "to be known to those who follow";
  EXPECT_EQ(b.Dump(), "+1");
  EXPECT_EQ(b.Feed(kManager, b.script.Store({}, 1)), "") << "but once";
  b.Feed(kManager, Eligible(b.script.Store({}, 1)));
  EXPECT_EQ(b.Dump(), "+1") << "not known of the first any more";
  b.Feed(kEngine, b.script.Remove({1}));
  b.Feed(kManager, b.script.Remove({1}));
  b.Feed(kEngine, Eligible(b.script.Store({}, 1)));
  EXPECT_EQ(b.Dump(), "+1 sce");
}

TEST(BlockBook, AClearOfOneOfSeveralIsToldInPieces) {
  BlockBook::Options options;
  options.run_blocks_max = 100;
  Bench b(options);
  b.Feed(kManager, b.script.Store({}, 5'000));
  b.Feed(kEngine, b.script.Store({}, 1, 250));
  b.book.Apply(kEngine, Script::Clear(), b.out);
  EXPECT_EQ(b.out.taken.size(), 3u);
  EXPECT_EQ(b.book.blocks(), 1u);
}

TEST(BlockBook, NothingOfAClearedSourceIsLeftBeyondTheLimit) {
  BlockBook::Options options;
  options.blocks_max = 2;
  Bench b(options);
  std::string told = b.Feed(kManager, b.script.Store({}, 9));
  told += b.Feed(kEngine, b.script.Store({}, 1, 3));
  told += b.Feed(kEngine, Script::Clear());
  EXPECT_EQ(told, "+9+1-1");
  EXPECT_FALSE(b.book.Build().complete);
}

TEST(BlockBook, RememberedNamesGiveWayToHeldBlocks) {
  BlockBook::Options options;
  options.blocks_max = 4;  // below what may be remembered
  Bench b(options);
  for (std::uint64_t n = 1; n <= 40; n += 2) {
    EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, n, 2)), fmt::format("+{},{}", n, n + 1));
    b.Feed(kEngine, b.script.Remove({n, n + 1}));
  }
  EXPECT_EQ(b.book.stats().uncounted, 0u);
  EXPECT_TRUE(b.book.Build().complete);
}

TEST(BlockBook, PositionsFollowTheBlocks) {
  Bench b;
  b.Feed(kManager, b.script.Store({}, 1, 2));
  EXPECT_EQ(b.Feed(kEngine, At(0, b.script.Store({}, 1, 4))), "+2<3,4@2");
}

TEST(BlockBook, BeyondTheLimitNothingIsToldAndSnapshotsSaySo) {
  BlockBook::Options options;
  options.blocks_max = 2;
  Bench b(options);
  EXPECT_EQ(b.Feed(kEngine, b.script.Store({}, 1, 4)), "+1,2") << "what nobody could take back";
  EXPECT_EQ(b.Feed(kEngine, b.script.Remove({3})), "-3");
  EXPECT_FALSE(b.book.Build().complete);
  EXPECT_EQ(b.book.stats().uncounted, 2u);
  b.Feed(kEngine, Script::Clear());
  EXPECT_TRUE(b.book.Build().complete);
}

TEST(BlockBook, SnapshotsOfTiersBranchesAndOrphans) {
  Bench b;
  b.Feed(kEngine, b.script.Store({}, 1, 4));
  b.Feed(kEngine, b.script.Store(2, 10));
  b.Feed(kEngine, On(Tier::kHostPinned, b.script.Store({}, 1, 2)));
  b.Feed(kEngine, On(Tier::kDisk, b.script.Store(4, 20)));
  b.Feed(kEngine, b.script.Store(99, 30)) /* behind what nobody holds */;
  EXPECT_EQ(b.Dump(), "+1,2; +1,2/host_pinned; +2<10; +2<3,4; +4<20/disk; +99<30");
  EXPECT_EQ(b.book.blocks(), 7u);
  EXPECT_EQ(b.book.blocks_in(), (std::array<std::size_t, kTierCount>{6, 2, 1, 0}));
}

TEST(BlockBook, ARingOfParentsEnds) {
  Bench b;
  b.Feed(kEngine, b.script.Store(2, 1));
  b.Feed(kEngine, b.script.Store(1, 2));
  std::size_t blocks = 0;
  const Snapshot snapshot = b.book.Build();
  for (const Snapshot::Run& run : snapshot.runs)
    blocks += run.count;
  EXPECT_EQ(blocks, 2u);
}

TEST(BlockBook, RunsAreBounded) {
  BlockBook::Options options;
  options.run_blocks_max = 100;
  Bench b(options);
  b.Feed(kEngine, b.script.Store({}, 1, 1'000));
  const Snapshot snapshot = b.book.Build();
  EXPECT_GE(snapshot.runs.size(), 10u);
  for (const Snapshot::Run& run : snapshot.runs)
    EXPECT_LE(run.count, 100u);
}

// Random events of three sources against sets: what comes out, applied to a set, is the union of
// what the sources hold, at each step; and a snapshot is that set, parents first.
TEST(BlockBook, RandomSourcesAgainstSets) {
  using Key = std::tuple<Tier, std::uint64_t>;
  struct Applied final : MutationSink {
    void Take(const Mutation& mutation) override {
      const PlacementEvent& event = mutation.event;
      if (event.kind == PlacementKind::kCleared) held.clear();
      for (const PlacedBlock& block : event.blocks) {
        bool& flag = eligible[Raw(block.engine)];
        flag = event.eligible && (flag || !Holds(block.engine));
        held.emplace(event.tier, Raw(block.engine));
      }
      for (const EngineHash name : event.removed)
        held.erase({event.tier, Raw(name)});
    }
    [[nodiscard]] bool Holds(EngineHash name) const {
      return std::ranges::any_of(held,
                                 [name](const Key& key) { return std::get<1>(key) == Raw(name); });
    }
    std::set<Key> held;
    std::map<std::uint64_t, bool> eligible;  // as an index that follows has it
  };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Rng rng(seed);
    BlockBook book({});
    Applied applied;
    std::array<std::set<Key>, 3> truth;
    for (int step = 0; step < 600; ++step) {
      Script script;
      const std::size_t source = rng.Below(3);
      const Tier tier = static_cast<Tier>(rng.Below(kTierCount));
      const std::uint64_t action = rng.Below(100);
      const std::uint64_t first = 1 + rng.Below(40);
      if (action < 60) {
        const std::size_t count = 1 + rng.Below(5);
        // Block n is behind n - 1, so that a name has one content.
        Mutation store =
            script.Store(first == 1 ? std::optional<std::uint64_t>() : first - 1, first, count);
        store.event.eligible = rng.Below(4) != 0;
        book.Apply(source, On(tier, store), applied);
        for (std::uint64_t n = first; n < first + count; ++n)
          truth[source].emplace(tier, n);
      } else if (action < 98) {
        book.Apply(source, On(tier, script.Remove({first, first + 1})), applied);
        truth[source].erase({tier, first});
        truth[source].erase({tier, first + 1});
      } else {
        book.Apply(source, Script::Clear(), applied);
        truth[source].clear();
      }
      std::set<Key> all;
      for (const auto& one : truth)
        all.insert(one.begin(), one.end());
      ASSERT_EQ(applied.held, all) << "seed " << seed << " step " << step;
      std::array<std::size_t, kTierCount> counts{};
      for (const Key& key : all)
        ++counts[static_cast<std::size_t>(std::get<0>(key))];
      ASSERT_EQ(book.blocks_in(), counts);
      if (step % 50 != 0) continue;
      const Snapshot snapshot = book.Build();
      std::set<Key> dumped;
      std::set<std::uint64_t> known;
      for (const Snapshot::Run& run : snapshot.runs) {
        const bool parent_held = run.parent && std::any_of(all.begin(), all.end(), [&](auto& key) {
                                   return std::get<1>(key) == Raw(*run.parent);
                                 });
        ASSERT_TRUE(!parent_held || known.contains(Raw(*run.parent)));
        for (const PlacedBlock& block : snapshot.BlocksOf(run)) {
          known.insert(Raw(block.engine));
          ASSERT_EQ(run.eligible, applied.eligible[Raw(block.engine)]) << "seed " << seed;
          ASSERT_TRUE(dumped.emplace(run.tier, Raw(block.engine)).second);
        }
      }
      ASSERT_EQ(dumped, all) << "seed " << seed << " step " << step;
      ASSERT_TRUE(snapshot.complete);
    }
  }
}

TEST(BlockBook, WarmItAllocatesNothing) {
  struct Nothing final : MutationSink {
    void Take(const Mutation&) override {}
  };
  Script script;
  Nothing out;
  BlockBook book({});
  const Mutation store = script.Store({}, 1, 500);
  std::vector<std::uint64_t> names;
  for (std::uint64_t n = 1; n <= 500; ++n)
    names.push_back(n);
  const Mutation removal = script.Remove(names);
  const auto feed = [&] {
    for (const std::size_t source : {kEngine, kManager})
      book.Apply(source, store, out);
    for (const std::size_t source : {kEngine, kManager})
      book.Apply(source, removal, out);
  };
  for (int i = 0; i < 20; ++i)  // the ring of the remembered, too
    feed();
  EXPECT_EQ(test::AllocationsIn(feed), 0u);
}

TEST(BlockBook, OptionsNeedRoom) {
  BlockBook::Options options;
  EXPECT_TRUE(options.Validate());
  options.blocks_max = 0;
  EXPECT_FALSE(options.Validate());
}

}  // namespace
}  // namespace kvr::publish
