#include "ingest/rank_snapshot.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "index/index_set.h"
#include "index/sharded_index.h"

namespace kvr::ingest {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Rank kRank{WorkerId{1}, 0};
constexpr std::size_t kRoom = 1u << 20;

// An event with what it borrows.
struct Event {
  PlacementKind kind = PlacementKind::kStored;
  Tier tier = Tier::kDevice;
  std::uint64_t parent = 0;  // none
  std::vector<std::uint64_t> names{};
  std::uint64_t content = 0;  // tells blocks of one name apart
  bool eligible = false;
};

class Told {
 public:
  explicit Told(const Event& event) {
    placed.kind = event.kind;
    placed.tier = event.tier;
    placed.rank = kRank;
    placed.eligible = event.eligible;
    if (event.parent != 0) placed.parent = EngineHash{event.parent};
    for (const std::uint64_t name : event.names) {
      blocks_.push_back({EngineHash{name}, BlockHash{name * 1'000 + event.content}});
      names_.push_back(EngineHash{name});
    }
    if (event.kind == PlacementKind::kStored) placed.blocks = blocks_;
    if (event.kind == PlacementKind::kRemoved) placed.removed = names_;
  }

  PlacementEvent placed;

 private:
  std::vector<PlacedBlock> blocks_;
  std::vector<EngineHash> names_;
};

Event Store(std::uint64_t parent, std::vector<std::uint64_t> names, Tier tier = Tier::kDevice,
            std::uint64_t content = 0, bool eligible = false) {
  return {PlacementKind::kStored, tier, parent, std::move(names), content, eligible};
}
Event Remove(std::vector<std::uint64_t> names, Tier tier = Tier::kDevice) {
  return {PlacementKind::kRemoved, tier, 0, std::move(names)};
}

// One rank's index.
class Known {
 public:
  Known() : index_(index::MakeIndex(index::IndexOptions{}, 1)), slot_(*index_->AddRank(kRank)) {}

  void Apply(const Event& event) { index_->Apply(slot_, Told(event).placed); }
  // What it is told meanwhile, in short.
  std::vector<std::string> Replace(
      RankSnapshot& snapshot, const std::function<void()>& between = [] {}) {
    std::vector<std::string> told;
    snapshot.ReplaceIn(
        *index_, slot_, kRank, [&](const PlacementEvent& event, const index::ApplyResult&) {
          std::string line = fmt::format("{}{}", event.kind == PlacementKind::kStored ? '+' : '-',
                                         static_cast<int>(event.tier));
          for (const PlacedBlock& block : event.blocks)
            line += fmt::format(" {}", Raw(block.engine));
          for (const EngineHash name : event.removed)
            line += fmt::format(" {}", Raw(name));
          told.push_back(std::move(line));
          between();
        });
    return told;
  }
  // What is found, by name, parent, content, tier and eligibility.
  std::set<std::string> Found(bool eligibility = true) const {
    std::set<std::string> found;
    index_->Dump([&](const PlacementEvent& event) {
      std::uint64_t parent = event.parent ? Raw(*event.parent) : 0;
      for (const PlacedBlock& block : event.blocks) {
        found.insert(fmt::format("{}<{} {} {}{}", Raw(block.engine), parent, Raw(block.local),
                                 static_cast<int>(event.tier),
                                 eligibility && event.eligible ? " eligible" : ""));
        parent = Raw(block.engine);
      }
    });
    return found;
  }
  // Whether it has more than it finds.
  bool Hides() const { return Stats().pending_blocks > 0 || Stats().memberships != Found().size(); }
  index::IndexStats Stats() const { return index_->Stats(); }

 private:
  std::unique_ptr<index::PrefixIndex> index_;
  RankSlot slot_;
};

void Gather(const std::vector<Event>& events, RankSnapshot& snapshot, Known* fresh = nullptr) {
  for (const Event& event : events) {
    ASSERT_TRUE(snapshot.Add(Told(event).placed));
    if (fresh != nullptr) fresh->Apply(event);
  }
}

TEST(RankSnapshot, WhatIsInBothStaysAndOnlyTheDifferenceIsTold) {
  Known known;
  known.Apply(Store(0, {1, 2, 3, 4}));
  known.Apply(Store(2, {5}, Tier::kHostPinned));
  RankSnapshot snapshot(kRoom);
  Gather({Store(0, {1, 2}), Store(2, {3}, Tier::kDisk), Store(2, {3}), Store(2, {6, 7})}, snapshot);
  EXPECT_EQ(snapshot.blocks(), 5u);
  EXPECT_THAT(known.Replace(snapshot), ElementsAre("+2 3", "-0 4", "-1 5", "+0 6 7"));
  RankSnapshot same(kRoom);
  Gather({Store(0, {1, 2, 3}), Store(2, {3}, Tier::kDisk), Store(2, {6, 7})}, same);
  EXPECT_THAT(known.Replace(same), IsEmpty());
}

TEST(RankSnapshot, OfNothingTakesEverythingWhatWaitsAndWhatNobodySeesToo) {
  Known known;
  known.Apply(Store(0, {1, 2, 3}));
  known.Apply(Remove({2}));     // 3 is held and not found
  known.Apply(Store(99, {8}));  // waits
  known.Apply(Store(99, {9}, Tier::kDisk));
  RankSnapshot snapshot(kRoom);
  known.Replace(snapshot);
  EXPECT_THAT(known.Found(), IsEmpty());
  EXPECT_EQ(known.Stats().memberships, 0u);
  EXPECT_EQ(known.Stats().pending_blocks, 0u);
}

TEST(RankSnapshot, ATailTakesBackAndStoresAgainBehindItsParent) {
  RankSnapshot snapshot(kRoom);
  Known fresh;
  Gather({Store(0, {1, 2, 3}), Remove({2, 3}), Store(0, {7}), Store(7, {2}), Store(2, {3}),
          Remove({77}), Store(3, {4}, Tier::kDisk), Remove({4})},
         snapshot, &fresh);
  EXPECT_EQ(snapshot.blocks(), 5u);
  Known known;
  known.Replace(snapshot);
  EXPECT_EQ(known.Found(), fresh.Found());
}

TEST(RankSnapshot, AClearInItEmptiesIt) {
  RankSnapshot snapshot(kRoom);
  Gather({Store(0, {1, 2}), {.kind = PlacementKind::kCleared}, Store(0, {3})}, snapshot);
  Known known;
  known.Apply(Store(0, {1}));
  EXPECT_THAT(known.Replace(snapshot), ElementsAre("-0 1", "+0 3"));
}

TEST(RankSnapshot, AnotherContentOrPlaceOfANameReplacesIt) {
  Known known;
  known.Apply(Store(0, {1, 2, 3}));
  known.Apply(Store(0, {5, 6}));
  RankSnapshot snapshot(kRoom);
  Known fresh;
  Gather({Store(0, {1}, Tier::kDevice, 9), Store(1, {2, 3}), Store(1, {6}), Store(0, {5})},
         snapshot, &fresh);
  known.Replace(snapshot);
  EXPECT_EQ(known.Found(), fresh.Found());
  EXPECT_EQ(known.Stats().memberships, fresh.Stats().memberships);
}

TEST(RankSnapshot, EligibilityIsSetAsItIsTold) {
  Known known;
  known.Apply(Store(0, {1, 2, 3}));
  known.Apply(Store(3, {4, 5}, Tier::kDevice, 0, true));
  RankSnapshot snapshot(kRoom);
  Known fresh;
  Gather(
      {Store(0, {1}, Tier::kDevice, 0, true), Store(1, {2}), Store(2, {3}, Tier::kDisk, 0, true),
       Store(3, {4}), Store(4, {5}, Tier::kDevice, 0, true), Store(5, {6}, Tier::kDevice, 0, true)},
      snapshot, &fresh);
  EXPECT_THAT(known.Replace(snapshot), ElementsAre("+0 1", "+2 3", "+0 4", "-0 3", "+0 6"));
  EXPECT_EQ(known.Found(), fresh.Found());
}

TEST(RankSnapshot, LongChainsComeInSeveralEvents) {
  std::vector<std::uint64_t> names;
  for (std::uint64_t name = 1; name <= 3'000; ++name)
    names.push_back(name);
  RankSnapshot snapshot(kRoom);
  Known fresh;
  Gather({Store(0, names)}, snapshot, &fresh);
  Known known;
  EXPECT_EQ(known.Replace(snapshot).size(), 3u);
  EXPECT_EQ(known.Found(), fresh.Found());
}

TEST(RankSnapshot, ItsMemoryIsBounded) {
  RankSnapshot snapshot(100'000);
  EXPECT_FALSE(snapshot.Reserve(~std::uint64_t{0}));
  EXPECT_FALSE(snapshot.Reserve(10'000));
  EXPECT_TRUE(snapshot.Reserve(1'000));
  std::uint64_t name = 1;
  while (snapshot.Add(Told(Store(0, {name})).placed))
    ++name;
  EXPECT_GT(name, 1'000u);
  EXPECT_LE(snapshot.bytes(), 100'000u);
}

// Two histories of one rank: the one an index knows, and the one that a snapshot tells.
class Histories {
 public:
  explicit Histories(std::uint64_t seed) : rng_(seed) {}

  std::vector<Event> Make(std::size_t events) {
    std::vector<Event> made;
    for (std::size_t i = 0; i < events; ++i) {
      const std::uint64_t name = 1 + rng_.Below(kNames);
      const Tier tier = static_cast<Tier>(rng_.Below(4) == 0 ? rng_.Below(kTierCount) : 0);
      if (rng_.Below(3) == 0) {
        made.push_back(Remove({name, 1 + rng_.Below(kNames)}, tier));
      } else {
        Event store = Store(ParentOf(name), {name}, tier, 0, rng_.Below(2) == 0);
        if (const std::uint64_t child = 2 * name; child <= kNames && rng_.Below(2) == 0)
          store.names.push_back(child);
        made.push_back(store);
      }
    }
    return made;
  }

  static constexpr std::uint64_t kNames = 40;
  static std::uint64_t ParentOf(std::uint64_t name) { return name / 2; }

 private:
  Rng rng_;
};

TEST(RankSnapshot, WhateverWasKnownTheIndexIsAsIfItHadBeenToldAll) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    Histories histories(seed);
    Known known;
    for (const Event& event : histories.Make(seed % 60))
      known.Apply(event);
    RankSnapshot snapshot(kRoom);
    Known fresh;
    ASSERT_NO_FATAL_FAILURE(Gather(histories.Make(seed % 47), snapshot, &fresh));

    const bool hides = known.Hides();
    const std::set<std::string> before = known.Found(false);
    const std::set<std::string> after = fresh.Found(false);
    std::vector<std::string> both;
    std::ranges::set_intersection(before, after, std::back_inserter(both));
    known.Replace(snapshot, [&] {
      const std::set<std::string> now = known.Found(false);
      for (const std::string& block : both)
        ASSERT_TRUE(hides || now.contains(block))
            << "seed " << seed << ": lost for a while: " << block;
      for (const std::string& block : now)
        ASSERT_TRUE(before.contains(block) || after.contains(block)) << seed << ": " << block;
    });
    ASSERT_EQ(known.Found(), fresh.Found()) << "seed " << seed;
    // Nothing is left that shows only later.
    for (const Event& event : histories.Make(40)) {
      known.Apply(event);
      fresh.Apply(event);
      ASSERT_EQ(known.Found(), fresh.Found()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kvr::ingest
