// The parts of RunArena, each against the simplest thing that does the same.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "index/child_depths.h"
#include "index/child_table.h"
#include "index/engine_table.h"
#include "index/fair_mutex.h"
#include "index/private_names.h"
#include "index/remembered_blocks.h"
#include "index/run_planes.h"
#include "index/run_set.h"
#include "index/run_store.h"
#include "index/slab.h"

namespace kvr::index {
namespace {

// A plane as sets of held blocks.
using Model = std::map<std::uint32_t, std::set<std::uint32_t>>;

void ExpectSame(const PlaneView& view, const Model& model, Stretch run, std::uint32_t slots) {
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const auto known = model.find(slot);
    const std::set<std::uint32_t> held =
        known == model.end() ? std::set<std::uint32_t>{} : known->second;
    EXPECT_EQ(view.Count(slot, run), held.size());
    EXPECT_EQ(view.HasWhole(slot), held.size() == run.size());
    EXPECT_EQ(view.HasAny(slot), !held.empty());
    for (std::uint32_t depth = run.begin; depth < run.end; ++depth) {
      const Stretch around = view.Around(slot, depth, run);
      EXPECT_EQ(around.size() > 0, held.contains(depth));
      if (around.size() == 0) continue;
      EXPECT_TRUE(around.begin == run.begin || !held.contains(around.begin - 1));
      EXPECT_TRUE(around.end == run.end || !held.contains(around.end));
    }
  }
}

TEST(ChildDepths, KnowsWhatASortedListKnows) {
  Rng rng(3);
  ChildDepths depths;
  std::multiset<std::uint32_t> model;
  for (int step = 0; step < 2'000; ++step) {
    const auto depth = 1 + static_cast<std::uint32_t>(rng.Below(40));
    if (rng.Below(step < 1'000 ? 3 : 2) > 0 && step < 1'900) {
      depths.Add(depth);
      model.insert(depth);
    } else if (const auto at = model.lower_bound(depth); at != model.end()) {
      depths.Remove(*at);
      model.erase(at);
    }
    EXPECT_EQ(depths.deepest(), model.empty() ? 0 : *model.rbegin());
    EXPECT_EQ(depths.CountBehind(depth), std::distance(model.upper_bound(depth), model.end()));
    EXPECT_EQ(depths.bytes() > 0, !model.empty());
  }
}

TEST(PlaneDraft, HoldsWhatSetsHold) {
  constexpr std::uint32_t kSlots = 70;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Rng rng(seed);
    Stretch run{5, 17};
    PlaneDraft draft;
    Model model;
    for (int step = 0; step < 200; ++step) {
      const auto slot =
          static_cast<std::uint32_t>(rng.Below(2) == 0 ? rng.Below(3) : 60 + rng.Below(10));
      const auto begin = run.begin + static_cast<std::uint32_t>(rng.Below(run.size()));
      const auto end = begin + 1 + static_cast<std::uint32_t>(rng.Below(run.end - begin));
      std::uint32_t changed = 0;
      switch (rng.Below(12)) {
        case 0:
          draft.Drop(slot);
          model.erase(slot);
          break;
        case 1: {
          draft.Lengthen(run);
          run.end += 2;
          break;
        }
        case 2: {
          if (run.size() < 4) break;
          run.end -= 1;
          draft.Shorten(run);
          for (auto& [s, held] : model)
            held.erase(run.end);
          break;
        }
        case 3:
        case 4:
        case 5:
        case 6:
          for (std::uint32_t depth = begin; depth < end; ++depth)
            changed += static_cast<std::uint32_t>(model[slot].erase(depth));
          EXPECT_EQ(draft.Remove(slot, {begin, end}, run), changed);
          break;
        default:
          for (std::uint32_t depth = begin; depth < end; ++depth)
            changed += model[slot].insert(depth).second ? 1u : 0u;
          EXPECT_EQ(draft.Add(slot, {begin, end}, run), changed);
          break;
      }
      ExpectSame(draft.view(), model, run, kSlots);
    }
    // Cut in two and joined again it is the same.
    const std::uint32_t middle = run.begin + run.size() / 2;
    PlaneDraft tail;
    PlaneDraft head = draft;
    draft.CopyStretch({middle, run.end}, tail);
    head.Shorten({run.begin, middle});
    EXPECT_LE(draft.view().parts.size(), PlaneDraft::PartsOfJoin(head.view(), tail.view()));
    head.Join(tail.view(), middle, run);
    ExpectSame(head.view(), model, run, kSlots);
  }
}

// The caller knows what a block is called; so does the test.
struct NameAt {
  std::map<std::pair<std::uint32_t, std::uint32_t>, EngineHash> names;

  EngineHash operator()(EngineTable::Place place) const {
    return names.at({place.run, place.offset});
  }
  void PrefetchRun(EngineTable::Place) const {}
  void PrefetchName(EngineTable::Place) const {}
};

TEST(EngineTable, FindsWhatWasEnteredAndNotErased) {
  NameAt name_at;
  std::vector<EngineHash> names;
  const auto place_of = [](std::size_t i) {
    return EngineTable::Place{static_cast<std::uint32_t>(i / 100),
                              static_cast<std::uint32_t>(i % 100)};
  };
  EngineTable table(7);
  Rng rng(3);
  std::set<std::size_t> live;
  for (std::size_t i = 0; i < 20'000; ++i) {
    names.push_back(EngineHash{i < 2 ? i - 1 : rng()});  // 2^64-1 and 0 are names, too
    name_at.names[{place_of(i).run, place_of(i).offset}] = names[i];
    EXPECT_FALSE(table.Find(names[i], name_at));
    EXPECT_TRUE(table.Insert(table.KeyOf(names[i]), names[i], place_of(i), name_at));
    EXPECT_FALSE(table.Insert(table.KeyOf(names[i]), names[i], place_of(i), name_at));
    live.insert(i);
    if (rng.Below(3) == 0) {
      const std::size_t gone = *live.begin();
      EXPECT_FALSE(table.Erase(table.KeyOf(names[gone]), place_of(gone + 1), name_at));
      EXPECT_TRUE(table.Erase(table.KeyOf(names[gone]), place_of(gone), name_at));
      EXPECT_FALSE(table.Find(names[gone], name_at));
      live.erase(gone);
    }
  }
  EXPECT_EQ(table.size(), live.size());
  for (const std::size_t i : live)
    EXPECT_EQ(table.Find(names[i], name_at), place_of(i));
  EXPECT_LT(table.bytes(), live.size() * 22);
  for (const std::size_t i : live)
    EXPECT_TRUE(table.Erase(table.KeyOf(names[i]), place_of(i), name_at));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.bytes(), 0u);
}

TEST(EngineTable, MovesAPlace) {
  const NameAt name_at{{{{1, 3}, EngineHash{5}}, {{2, 9}, EngineHash{5}}}};
  EngineTable table(7);
  const auto key = table.KeyOf(EngineHash{5});
  table.Insert(key, EngineHash{5}, {1, 3}, name_at);
  EXPECT_FALSE(table.Move(key, {2, 3}, {1, 4}));
  EXPECT_TRUE(table.Move(key, {1, 3}, {2, 9}));
  EXPECT_EQ(table.Find(EngineHash{5}, name_at), (EngineTable::Place{2, 9}));
}

TEST(RememberedBlocks, ForgetsInOrder) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    RememberedBlocks remembered;
    std::deque<std::pair<RunId, std::uint32_t>> model;
    const auto in_model = [&model](RunId run, std::uint32_t depth) {
      return std::find(model.begin(), model.end(), std::pair(run, depth)) != model.end();
    };
    for (int step = 0; step < 300; ++step) {
      const auto run = static_cast<RunId>(1 + rng.Below(3));
      const auto begin = static_cast<std::uint32_t>(rng.Below(20));
      const Stretch blocks{begin, begin + 1 + static_cast<std::uint32_t>(rng.Below(6))};
      switch (rng.Below(4)) {
        case 0: {
          const bool tail_first = rng.Below(2) == 0;
          bool any = false;
          for (std::uint32_t depth = blocks.begin; depth < blocks.end; ++depth)
            any |= in_model(run, depth);
          if (any) break;
          remembered.Add({run, blocks, tail_first});
          for (std::uint32_t i = 0; i < blocks.size(); ++i)
            model.emplace_back(run, tail_first ? blocks.end - 1 - i : blocks.begin + i);
          break;
        }
        case 1:
          remembered.Recall(run, blocks);
          std::erase_if(model, [&](const auto& block) {
            return block.first == run && blocks.Has(block.second);
          });
          break;
        case 2: {
          const RunId to = run + 3;
          remembered.Move(run, to, blocks);
          for (auto& block : model) {
            if (block.first == run && blocks.Has(block.second)) block.first = to;
          }
          break;
        }
        default: {
          if (model.empty()) break;
          const auto taken = remembered.TakeOldest(1 + static_cast<std::uint32_t>(rng.Below(4)));
          for (std::uint32_t i = 0; i < taken.blocks.size(); ++i) {
            const std::uint32_t depth =
                taken.tail_first ? taken.blocks.end - 1 - i : taken.blocks.begin + i;
            ASSERT_EQ(model.front(), std::pair(taken.run, depth)) << "seed " << seed;
            model.pop_front();
          }
          break;
        }
      }
      ASSERT_EQ(remembered.size(), model.size());
    }
  }
}

TEST(RunSet, HoldsWhatASetHolds) {
  Rng rng(5);
  RunSet set;
  std::set<RunId> model;
  for (int step = 0; step < 30'000; ++step) {
    const auto run = static_cast<RunId>(1 + rng.Below(step < 15'000 ? 3'000 : 60));
    switch (rng.Below(step % 4'000 < 2'000 ? 4 : 3)) {
      case 0:
        set.Erase(run);
        model.erase(run);
        break;
      case 1:
        if (model.empty()) break;
        EXPECT_EQ(model.erase(set.Take()), 1u);
        break;
      default:
        set.Add(run);
        model.insert(run);
        break;
    }
    ASSERT_EQ(set.size(), model.size());
    if (step % 100 != 0) continue;
    std::set<RunId> seen;
    seen.insert(set.cells().begin(), set.cells().end());
    seen.erase(kRootRun);
    EXPECT_EQ(seen, model);
    seen.clear();
    for (std::size_t i = 0; i < model.size(); ++i)
      seen.insert(set.Next());
    EXPECT_EQ(seen, model);
  }
  while (set.size() > 0)
    set.Take();
  EXPECT_EQ(set.bytes(), 0u);
}

TEST(Slab, GivesEmptyChunksBack) {
  struct Item {
    std::uint32_t value = 0;
  };
  Slab<Item, 64> slab;
  std::set<std::uint32_t> used;
  for (std::uint32_t i = 1; i <= 1'000; ++i) {
    used.insert(slab.Add());
    slab[i].value = i;
  }
  EXPECT_EQ(used.size(), 1'000u);
  EXPECT_EQ(*used.begin(), 1u);
  EXPECT_EQ(*used.rbegin(), 1'000u);
  const std::size_t full = slab.bytes();
  for (std::uint32_t i = 65; i <= 1'000; ++i)
    slab.Free(i);
  EXPECT_EQ(slab.size(), 64u);
  EXPECT_LT(slab.bytes(), full / 4);
  EXPECT_FALSE(slab.Has(65));
  EXPECT_FALSE(slab.Has(900));
  EXPECT_FALSE(slab.Has(0));
  EXPECT_TRUE(slab.Has(64));
  EXPECT_EQ(slab[64].value, 64u);
  // The smallest free numbers come first, and are clean.
  slab.Free(3);
  slab.Free(7);
  EXPECT_EQ(slab.Add(), 3u);
  EXPECT_EQ(slab.Add(), 7u);
  EXPECT_EQ(slab.Add(), 65u);
  EXPECT_EQ(slab[65].value, 0u);
  for (std::uint32_t i = 1; i <= 65; ++i)
    slab.Free(i);
  EXPECT_EQ(slab.bytes(), 0u);
  EXPECT_EQ(slab.Add(), 1u);
}

TEST(ChildTable, FindsWhatWasEnteredAndNotErased) {
  ChildTable table(9);
  Rng rng(4);
  std::map<std::uint32_t, std::uint64_t> live;
  const auto finds = [&table](std::uint64_t hash, std::uint32_t id) {
    bool found = false;
    table.Probe(hash, [&](std::uint32_t candidate) { return found = candidate == id; });
    return found;
  };
  std::size_t most = 0;
  for (std::uint32_t id = 1; id <= 40'000; ++id) {
    const std::uint64_t hash = table.Hash(id % 50, id, BlockHash{rng()});
    [[maybe_unused]] const auto old = table.Insert(hash, id);
    live.emplace(id, hash);
    if (id > 20'000 || rng.Below(3) == 0) {
      const auto gone = live.begin();
      [[maybe_unused]] const auto replaced = table.Erase(gone->second, gone->first);
      EXPECT_FALSE(finds(gone->second, gone->first));
      live.erase(gone);
      if (id > 20'000 && !live.empty()) {
        const auto next = live.begin();
        [[maybe_unused]] const auto again = table.Erase(next->second, next->first);
        live.erase(next);
      }
    }
    most = std::max(most, table.bytes());
  }
  for (const auto& [id, hash] : live)
    EXPECT_TRUE(finds(hash, id));
  EXPECT_LT(table.bytes(), most / 4) << "it shrinks";
  for (const auto& [id, hash] : live)
    [[maybe_unused]] const auto old = table.Erase(hash, id);
  EXPECT_EQ(table.bytes(), 0u);
}

TEST(FairMutex, LetsInWhoWaits) {
  FairMutex mutex;
  for (int round = 0; round < 20; ++round) {
    bool was_in = false;
    std::jthread other;
    {
      FairLock lock(mutex);
      other = std::jthread([&] {
        FairLock inner(mutex);
        was_in = true;
      });
      // Ends although this thread is always about to have it again.
      while (!was_in)
        mutex.LetIn();
    }
  }
}

TEST(PrivateNames, TheNewestComesFirst) {
  PrivateNames names(1);
  names.Add(EngineHash{0}, 1, 5);
  names.Add(EngineHash{0}, 2, 6);
  names.Add(EngineHash{9}, 3, 7);
  EXPECT_EQ(names[names.First(EngineHash{0})].run, 2u);
  names.Touch(EngineHash{0}, 1, 5);
  EXPECT_EQ(names[names.First(EngineHash{0})].run, 1u);
  names.Move(EngineHash{0}, 1, 4, 5);
  EXPECT_EQ(names[names.First(EngineHash{0})].run, 4u);
  names.Erase(EngineHash{0}, 4, 5);
  EXPECT_EQ(names[names.First(EngineHash{0})].run, 2u);
  EXPECT_EQ(names.Next(names.First(EngineHash{0})), 0u);
  names.Erase(EngineHash{0}, 2, 6);
  names.Erase(EngineHash{9}, 3, 7);
  EXPECT_TRUE(names.empty());
}

// A rank that names one block after the other pays for the block, not for the run.
TEST(RunStore, NamesOfOneRankAreSetInPlace) {
  constexpr std::uint32_t kBlocks = 4'000;
  constexpr std::size_t kChunkBytes = 8'192;  // with some for the tables
  RunDirectory directory(1);
  Epoch epoch;
  RunStore store(1, directory, epoch, [](RunId, RunId, Stretch) {});
  std::vector<PlacedBlock> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i)
    blocks.push_back({EngineHash{i}, BlockHash{i}});
  const RunId run = store.AddRun({}, blocks);
  const Stretch whole{0, kBlocks};
  store.Edit(run).planes[0].Add(0, whole, whole);
  store.Commit();

  const AliasColumn* column = nullptr;
  std::uint32_t copies = 0;
  const auto retired_in = [&store](const auto& change) {
    store.FreeRetired();
    change();
    return store.bytes().retired;
  };
  for (std::uint32_t depth = 0; depth < kBlocks; ++depth) {
    store.SetAlias({run, depth}, 1, EngineHash{1'000'000 + depth});
    store.Edit(run).planes[0].Add(1, {depth, depth + 1}, whole);
    store.Commit();
    if (store.AliasesOf(run, 1) != column) ++copies;
    column = store.AliasesOf(run, 1);
  }
  EXPECT_LT(copies, kBlocks / 200);

  // A query may have the old names: the block's chunk is copied, no other.
  const RunState* const before = directory.StateOf(run);
  const Epoch::Reader reader(epoch);
  for (const std::uint32_t depth : {kBlocks - 1, kBlocks - 2, 0u, 2'000u}) {
    EXPECT_LT(retired_in([&] {
                store.ClearAlias({run, depth}, 1);
                store.SetAlias({run, depth}, 1, EngineHash{2'000'000 + depth});
              }),
              6 * kChunkBytes);
    store.Commit();
    EXPECT_EQ(store.AliasAt({run, depth}, 1), EngineHash{2'000'000 + depth});
    EXPECT_EQ(before->NameOf(1, depth), EngineHash{1'000'000 + depth});
  }
  EXPECT_EQ(store.AliasAt({run, 1'999}, 1), EngineHash{1'001'999});
}

}  // namespace
}  // namespace kvr::index
