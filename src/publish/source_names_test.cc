// The rows K1 and K7 to K9: what is one block and what is not, whatever it is called.
#include "publish/source_names.h"

#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "hashing/block_hash.h"
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

TEST(SourceNames, BeyondTheLimitNamesAreKeptAndRemovable) {
  Source source(2);
  EXPECT_EQ(source.Pass(At(3, source.script.Store({}, 11, Contents{5, 6, 7, 8}))),
            fmt::format("+5=5,{}=6@3; +{}<13=7,14=8@5", Name({5, 6}), Name({5, 6})));
  EXPECT_EQ(source.Pass(source.script.Remove({13, 14, 12})),
            fmt::format("-13,14,{}", Name({5, 6})));
  EXPECT_EQ(source.Pass(source.script.Store(14, 15, Contents{9})), "+14<15=9");
}

TEST(SourceNames, ANameWithAnotherContentIsRemovedFirst) {
  Source source;
  source.Pass(source.script.Store({}, 1, Contents{5}));
  source.Pass(On(Tier::kDisk, source.script.Store({}, 1, Contents{5})));
  EXPECT_EQ(source.Pass(source.script.Store({}, 1, Contents{6})), "-5; -5/disk; +6=6");
  EXPECT_EQ(source.Pass(source.script.Remove({1})), "-6");
}

TEST(SourceNames, NamesOutliveTheLastCopyForAWhile) {
  Source source(1'000, 1);
  source.Pass(source.script.Store({}, 1, Contents{5, 6}));
  source.Pass(source.script.Remove({1, 2}));
  EXPECT_EQ(source.Pass(source.script.Names({1, 2})),
            fmt::format("+1=0,{}=0/host_pinned", Name({5, 6})));
  EXPECT_EQ(source.Pass(On(Tier::kHostPinned, source.script.Remove({2}))),
            fmt::format("-{}/host_pinned", Name({5, 6})));
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
