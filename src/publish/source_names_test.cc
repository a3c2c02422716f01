// The rows K1 and K7 to K9: what is one block and what is not, whatever it is called.
#include "publish/source_names.h"

#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "hashing/block_hash.h"
#include "publish/block_book.h"
#include "publish/test_mutations.h"

namespace kvr::publish {
namespace {

using Contents = std::vector<std::uint64_t>;

// The name of the last of these contents behind one another.
std::uint64_t Name(std::initializer_list<std::uint64_t> text) {
  std::vector<BlockHash> blocks;
  for (const std::uint64_t content : text)
    blocks.push_back(BlockHash{content});
  std::vector<SequenceHash> names;
  hashing::ChainHashes(blocks, names);
  return Raw(names.back());
}

struct Source {
  explicit Source(std::size_t blocks_max = 1'000, std::size_t remembered_max = 100)
      : names(blocks_max, remembered_max) {}
  std::string Pass(const Mutation& mutation) {
    names.Pass(mutation, out);
    return out.Drain();
  }
  Script script;
  Recorder out;
  SourceNames names;
};

TEST(SourceNames, K1OneBlockHasOneName) {
  Source engine;
  Source manager;
  // The first block's sequence hash is its content.
  const std::string want = fmt::format("+5=5,{}=6", Name({5, 6}));
  EXPECT_EQ(engine.Pass(engine.script.Store({}, 11, Contents{5, 6})), want);
  EXPECT_EQ(manager.Pass(manager.script.Store({}, 900, Contents{5, 6})), want);
  EXPECT_EQ(engine.Pass(engine.script.Store(12, 13, Contents{7})),
            fmt::format("+{}<{}=7", Name({5, 6}), Name({5, 6, 7})));
  EXPECT_EQ(engine.Pass(engine.script.Remove({13, 11})), fmt::format("-{},5", Name({5, 6, 7})));
  EXPECT_EQ(manager.Pass(manager.script.Remove({901})), fmt::format("-{}", Name({5, 6})));
}

TEST(SourceNames, K7K9OtherContentOrPlaceIsAnotherBlock) {
  Source source;
  source.Pass(source.script.Store({}, 1, Contents{5, 5}));
  EXPECT_EQ(source.Pass(source.script.Remove({2})), fmt::format("-{}", Name({5, 5})));
  EXPECT_NE(Name({5, 5}), Name({5}));
  // The salt is part of the content.
  EXPECT_NE(Name({5}), Name({6}));
}

TEST(SourceNames, WhatHasNoPlaceKeepsItsName) {
  Source source;
  EXPECT_EQ(source.Pass(source.script.Store(99, 1, Contents{5, 6})), "+99<1=5,2=6");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "-1");
  EXPECT_EQ(source.names.unplaced(), 2u);
}

TEST(SourceNames, WhatGetsItsPlaceLaterIsGoneUnderItsOwnName) {
  Source source;
  source.Pass(source.script.Store(99, 1, Contents{6}));
  source.Pass(On(Tier::kDisk, source.script.Store(99, 1, Contents{6})));
  source.Pass(source.script.Store({}, 99, Contents{5}));
  EXPECT_EQ(source.Pass(source.script.Store(99, 1, Contents{6})),
            fmt::format("-1; -1/disk; +5<{}=6", Name({5, 6})));
  EXPECT_EQ(source.Pass(source.script.Remove({1})), fmt::format("-{}", Name({5, 6})));
}

TEST(SourceNames, BehindWhatHasNoPlaceNothingHasOne) {
  Source source;
  source.Pass(source.script.Store(99, 1, Contents{6}));
  EXPECT_EQ(source.Pass(source.script.Store(1, 2, Contents{7})), "+1<2=7");
}

TEST(SourceNames, BeyondTheLimitNothingIsPassed) {
  Source source(2);
  EXPECT_EQ(source.Pass(At(3, source.script.Store({}, 11, Contents{5, 6, 7, 8}))),
            fmt::format("+5=5,{}=6@3", Name({5, 6})));
  EXPECT_EQ(source.names.refused(), 2u);
  EXPECT_EQ(source.names.missing(), 2u);
  source.Pass(Script::Clear());
  EXPECT_EQ(source.names.missing(), 0u);
}

TEST(SourceNames, RememberedNamesGiveWay) {
  Source source(2, 100);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    EXPECT_NE(source.Pass(source.script.Store({}, n, Contents{n})), "") << n;
    source.Pass(source.script.Remove({n}));
  }
}

TEST(SourceNames, ANameWithAnotherContentIsRemovedFirst) {
  Source source;
  source.Pass(source.script.Store({}, 1, Contents{5}));
  source.Pass(On(Tier::kDisk, source.script.Store({}, 1, Contents{5})));
  EXPECT_EQ(source.Pass(source.script.Store({}, 1, Contents{6})), "-5; -5/disk; +6=6");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "-6");
}

TEST(SourceNames, OfTwoNamesOfOneBlockTheLastTakesIt) {
  Source source;
  EXPECT_EQ(source.Pass(source.script.Store({}, 1, Contents{5})), "+5=5");
  EXPECT_EQ(source.Pass(source.script.Store({}, 2, Contents{5})), "+5=5");
  EXPECT_EQ(source.Pass(On(Tier::kDisk, source.script.Store({}, 2, Contents{5}))), "+5=5/disk");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "") << "it is the other's";
  EXPECT_EQ(source.Pass(On(Tier::kDisk, source.script.Remove({2}))), "-5/disk");
  EXPECT_EQ(source.Pass(source.script.Remove({2})), "-5");
}

TEST(SourceNames, ANameThatComesToMeanAnotherBlockLeavesItToTheOthers) {
  Source source;
  source.Pass(source.script.Store({}, 1, Contents{5}));
  source.Pass(source.script.Store({}, 2, Contents{5}));
  EXPECT_EQ(source.Pass(source.script.Store({}, 1, Contents{6})), "+6=6");
  EXPECT_EQ(source.Pass(source.script.Remove({2})), "-5");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "-6");
}

TEST(SourceNames, NamesOutliveTheLastCopyForAWhile) {
  Source source(1'000, 1);
  source.Pass(source.script.Store({}, 1, Contents{5, 6}));
  source.Pass(source.script.Remove({1, 2}));
  EXPECT_EQ(source.Pass(source.script.Names({1, 2})),
            fmt::format("+{}=0/host_pinned", Name({5, 6})));
  EXPECT_EQ(source.names.unknown(), 1u);
  EXPECT_EQ(source.Pass(On(Tier::kHostPinned, source.script.Remove({2}))),
            fmt::format("-{}/host_pinned", Name({5, 6})));
}

// Random events of two sources, whose parents are often unknown and whose names collide, through
// names and book to a follower: it never holds a block that no source holds, and nothing is left
// when all is removed.
TEST(SourceNames, RandomSourcesAreNeverOvercounted) {
  // What a follower holds, and by it each block's content: sources of their own have contents that
  // tell them apart where names do not.
  struct Follower final : MutationSink {
    void Take(const Mutation& mutation) override {
      const PlacementEvent& event = mutation.event;
      if (event.kind == PlacementKind::kCleared) held.clear();
      for (const PlacedBlock& block : event.blocks)
        held[{event.tier, Raw(block.engine)}] = Raw(block.local);
      for (const EngineHash name : event.removed)
        held.erase({event.tier, Raw(name)});
    }
    std::map<std::pair<Tier, std::uint64_t>, std::uint64_t> held;
  };
  struct Step final : MutationSink {
    Step(BlockBook& to, std::size_t of, MutationSink& then) : book(to), source(of), out(then) {}
    void Take(const Mutation& mutation) override { book.Apply(source, mutation, out); }
    BlockBook& book;
    std::size_t source;
    MutationSink& out;
  };
  constexpr std::uint64_t kNames = 24;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    BlockBook::Options options;
    options.blocks_max = seed % 2 == 0 ? 12 : 1'000;
    options.remembered_max = 4;
    BlockBook book(options);
    std::vector<SourceNames> names;
    for (int i = 0; i < 2; ++i)
      names.emplace_back(options.blocks_max, options.remembered_max);
    Follower follower;
    // Of each source: the content of a block it holds in a tier. Block n of a source always has
    // the same content, and is behind n - 1.
    std::array<std::set<std::pair<Tier, std::uint64_t>>, 2> truth;
    // The first blocks are the same to both, later ones differ here and there.
    const auto content = [](std::size_t source, std::uint64_t n) {
      return n % 8 == 5 ? 1'000 + n + 500 * source : 1'000 + n;
    };
    for (int step = 0; step < 400; ++step) {
      Script script;
      const std::size_t source = rng.Below(2);
      const Tier tier = rng.Below(3) == 0 ? Tier::kHostPinned : Tier::kDevice;
      const std::uint64_t first = 1 + rng.Below(kNames);
      const std::uint64_t action = rng.Below(100);
      Step to(book, source, follower);
      if (action < 55) {
        Contents contents;
        const std::uint64_t count = 1 + rng.Below(3);
        for (std::uint64_t n = first; n < first + count; ++n)
          contents.push_back(content(source, n));
        std::optional<std::uint64_t> parent;
        if (first > 1) parent.emplace(first - 1);
        names[source].Pass(On(tier, script.Store(parent, first, contents)), to);
        for (std::size_t i = 0; i < contents.size(); ++i)
          truth[source].emplace(tier, first + i);
      } else if (action < 97) {
        names[source].Pass(On(tier, script.Remove({first, first + 1})), to);
        truth[source].erase({tier, first});
        truth[source].erase({tier, first + 1});
      } else {
        names[source].Pass(Script::Clear(), to);
        truth[source].clear();
      }
      std::set<std::pair<Tier, std::uint64_t>> contents;
      for (std::size_t one = 0; one < 2; ++one) {
        for (const auto& [at, n] : truth[one])
          contents.emplace(at, content(one, n));
      }
      for (const auto& [key, local] : follower.held)
        ASSERT_TRUE(contents.contains({key.first, local})) << "seed " << seed << " step " << step;
    }
    for (std::size_t source = 0; source < 2; ++source) {
      for (const Tier tier : {Tier::kDevice, Tier::kHostPinned}) {
        Script script;
        Step to(book, source, follower);
        for (std::uint64_t n = 1; n <= kNames + 4; ++n)
          names[source].Pass(On(tier, script.Remove({n})), to);
      }
    }
    ASSERT_TRUE(follower.held.empty()) << "seed " << seed;
    ASSERT_EQ(book.blocks(), 0u) << "seed " << seed;
  }
}

TEST(SourceNames, AClearForgetsNames) {
  Source source;
  source.Pass(source.script.Store({}, 1, Contents{5}));
  EXPECT_EQ(source.Pass(Script::Clear()), "!");
  EXPECT_EQ(source.names.size(), 0u);
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "-1");
}

}  // namespace
}  // namespace kvr::publish
