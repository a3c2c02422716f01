// Names that engines use for blocks in several places, from the payload to what an index answers:
// it may know too little of them, never too much.
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "hashing/block_hash.h"
#include "index/index_set.h"
#include "placement/event_translator.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

// One rank's stream and an index of it.
class Node {
 public:
  Node()
      : partition_(*indexes_.GetOrCreate({"m", "default"}, 4)),
        slot_(*partition_->index->AddRank(Rank{WorkerId{1}, 0})) {}

  std::string Feed(const std::vector<std::string>& events) {
    std::string told = stream_.Feed(Batch(events));
    for (const PlacementEvent& event : stream_.batch().events)
      partition_->index->Apply(slot_, event);
    return told;
  }

  // Of the prompt of blocks A, B, ... how many are held: "device/host_pinned".
  std::string Ask(std::string_view prompt, std::string_view salt = {},
                  std::string_view adapter = {}) const {
    std::vector<TokenId> tokens;
    for (const char block : prompt) {
      for (TokenId i = 1; i <= 4; ++i)
        tokens.push_back(static_cast<TokenId>(block - 'A') * 4 + i);
    }
    hashing::BlockHashing how;
    how.block_size = 4;
    how.seed = hashing::Seed::FromRaw(hashing::Seed::RawOf(adapter, salt));
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(tokens, how, blocks);
    return Ask(blocks);
  }
  std::string Ask(std::span<const BlockHash> blocks) const {
    OverlapScores scores;
    partition_->index->Match(blocks, {}, scores);
    const RankOverlap overlap = scores.at(slot_);
    return std::to_string(overlap.blocks[0]) + "/" + std::to_string(overlap.blocks[1]);
  }

  // Whether the dump has a block that is, by name, above itself.
  bool DumpsACycle() const {
    std::map<std::uint64_t, std::uint64_t> parent_of;
    partition_->index->Dump([&](const PlacementEvent& event) {
      std::uint64_t above = event.parent ? Raw(*event.parent) : 0;
      for (const PlacedBlock& block : event.blocks) {
        parent_of[Raw(block.engine)] = above;
        above = Raw(block.engine);
      }
    });
    for (const auto& [name, first] : parent_of) {
      std::size_t steps = 0;
      for (std::uint64_t at = first; parent_of.contains(at); at = parent_of[at]) {
        if (++steps > parent_of.size()) return true;
      }
    }
    return false;
  }
  std::uint64_t held() const { return partition_->index->Stats().memberships; }
  placement::EventTranslator& translator() { return stream_.translator(); }
  std::uint64_t unmatched() { return stream_.translator().stats().unmatched_removals; }

 private:
  Stream stream_;
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> partition_;
  RankSlot slot_;
};

constexpr std::string_view kHost = R"("medium":"CPU")";

TEST(PlacedNames, OneNameUnderTwoParentsLeavesNothingBehind) {
  for (const std::string_view left : {"", R"("remaining_copy_counts":[0])"}) {
    SCOPED_TRACE(left);
    Node node;
    node.Feed({St("11", "null", kA), St("13", "null", kC), St("12", "11", kB)});
    EXPECT_EQ(node.Ask("AB"), "2/0");
    EXPECT_EQ(node.Feed({St("12", "13", kB)}), "removed device 12; drop 0 ambiguous_name");
    EXPECT_EQ(node.Ask("AB"), "1/0") << "which of the two a removal means nobody could tell";
    EXPECT_EQ(node.Ask("CB"), "1/0");
    EXPECT_EQ(node.Feed({St("14", "12", kD)}), "drop 0 ambiguous_name");
    node.Feed({Rm("12", left)});
    node.Feed({Rm("12", left)});
    EXPECT_EQ(node.Ask("AB"), "1/0");
    EXPECT_EQ(node.Ask("CB"), "1/0");
    EXPECT_EQ(node.held(), 2u);
    // Once no copy is left the name may be used again.
    EXPECT_EQ(node.Feed({St("12", "13", kB), St("14", "12", kD)}),
              "stored device <13 12=B; stored device <12 14=D");
    EXPECT_EQ(node.Ask("CBD"), "3/0");
    EXPECT_EQ(node.Ask("AB"), "1/0");
  }
}

TEST(PlacedNames, NoCycleEntersTheTree) {
  Node node;
  node.Feed({St("11", "null", kA), St("12", "11", kB)});
  EXPECT_EQ(node.Feed({St("11", "12", kA)}), "removed device 11; drop 0 ambiguous_name");
  EXPECT_EQ(node.Ask("ABA"), "0/0");
  EXPECT_FALSE(node.DumpsACycle());
  node.Feed({Rm("11")});
  node.Feed({Rm("11")});
  EXPECT_EQ(node.Ask("AB"), "0/0");
  EXPECT_FALSE(node.DumpsACycle());
  node.Feed({St("11", "null", kA)});
  EXPECT_EQ(node.Ask("AB"), "2/0") << "12 was never removed";
}

TEST(PlacedNames, OneNameForOtherTokensIsAmbiguousToo) {
  Node node;
  node.Feed({St("11", "null", kA), St("11", "null", kB)});
  EXPECT_EQ(node.Ask("A"), "0/0");
  EXPECT_EQ(node.Ask("B"), "0/0");
  EXPECT_EQ(node.Feed({St("11", "null", "", kHost)}), "drop 0 ambiguous_name");
  node.Feed({Rm("11"), Rm("11"), Rm("11", kHost)});
  EXPECT_EQ(node.Feed({St("11", "null", kB)}), "stored device 11=B");
}

TEST(PlacedNames, AClearMakesNamesUsableAgain) {
  Node node;
  node.Feed({St("11", "null", kA), St("11", "null", kB), std::string(kClr)});
  EXPECT_EQ(node.Feed({St("11", "null", kB)}), "stored device 11=B");
}

// By the engine's word none is left: of blocks that differ by their salt as well.
TEST(PlacedNames, NoCopyLeftTakesEveryTwin) {
  Node node;
  for (const std::string_view salt : {"a", "b", "c"})
    node.Feed({St("11", "null", kA, R"("cache_salt":")" + std::string(salt) + '"')});
  EXPECT_EQ(node.held(), 3u);
  EXPECT_EQ(node.Feed({Rm("11", R"("remaining_copy_counts":[0])")}), "removed device 11 11 11");
  EXPECT_EQ(node.held(), 0u);
}

// A connector that stores again what was stored before says no parent, though there is one.
TEST(PlacedNames, HostCopiesGoWhereTheDeviceHasTheBlock) {
  const struct {
    std::string_view id;
    std::string event;
    std::string told;
    std::string_view prompt;
    std::string_view held;
    std::string_view in_host;  // of A+B+C, when the device copies of B and C are gone
  } rows[] = {
      {"no parent", St("12", "null", kB, kHost), "named host_pinned 12", "B", "0/0", "1/1"},
      {"another parent", St("13", "11", kC, kHost), "named host_pinned <11 13", "AC", "1/0", "1/0"},
      {"more that is new behind it", St("13,14", "null", "9,10,11,12,13,14,15,16", kHost),
       "named host_pinned 13 14", "C", "0/0", "1/0"},
      {"other tokens", St("12", "11", kD, kHost), "named host_pinned <11 12", "AD", "1/0", "1/1"},
      {"the same place", St("12", "11", kB, kHost), "stored host_pinned <11 12=B", "B", "0/0",
       "1/1"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Node node;
    node.Feed({St("11,12,13", "null", "1,2,3,4,5,6,7,8,9,10,11,12")});
    EXPECT_EQ(node.Feed({row.event}), row.told);
    EXPECT_EQ(node.Ask(row.prompt), row.held);
    EXPECT_EQ(node.Ask("ABC"), "3/0");
    node.Feed({Rm("12,13")});
    EXPECT_EQ(node.Ask("ABC"), row.in_host);
    node.Feed({Rm("12,13", kHost), Rm("11")});
    EXPECT_EQ(node.Ask("ABC"), "0/0");
    EXPECT_EQ(node.Ask(row.prompt), "0/0");
  }
}

// The same when the device has lost the blocks before the copies are announced.
TEST(PlacedNames, LateHostCopiesGoWhereTheDeviceHadTheBlock) {
  const struct {
    std::string_view id;
    std::string event;
    std::string told;
    std::string_view prompt;
    std::string_view in_host;  // of A+B+C, of which the device has A
  } rows[] = {
      {"no parent", St("12,13", "null", "5,6,7,8,9,10,11,12", kHost), "named host_pinned 12 13",
       "BC", "1/2"},
      {"no parent, in a deeper tier", St("12", "null", kB, R"("medium":"DISK")"), "named disk 12",
       "B", "1/0"},
      {"another parent", St("13", "11", kC, kHost), "named host_pinned <11 13", "AC", "1/0"},
      {"more that is new behind it", St("13,14", "null", "9,10,11,12,13,14,15,16", kHost),
       "named host_pinned 13 14", "CD", "1/0"},
      {"other tokens", St("12", "11", kD, kHost), "named host_pinned <11 12", "AD", "1/1"},
      {"no tokens", St("12,13", "null", "", kHost), "named host_pinned 12 13", "BC", "1/2"},
      {"the same place", St("12,13", "11", "5,6,7,8,9,10,11,12", kHost),
       "stored host_pinned <11 12=B 13=C", "BC", "1/2"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Node node;
    node.Feed({St("11,12,13", "null", "1,2,3,4,5,6,7,8,9,10,11,12")});
    node.Feed({Rm("13"), Rm("12")});
    EXPECT_EQ(node.Feed({row.event}), row.told);
    EXPECT_EQ(node.Ask("ABC"), row.in_host);
    EXPECT_EQ(node.Ask(row.prompt), row.prompt.front() == 'A' ? "1/0" : "0/0");
    node.Feed({Rm("12,13,14", kHost), Rm("12,13,14", R"("medium":"DISK")"), Rm("11")});
    EXPECT_EQ(node.held(), 0u);
    EXPECT_EQ(node.Ask("ABC"), "0/0");
    EXPECT_EQ(node.Ask(row.prompt), "0/0");
  }
}

// What the device told of a block goes from one copy to the next, whoever says less between.
TEST(PlacedNames, ThePlaceOfABlockOutlivesItsCopies) {
  Node node;
  node.Feed({St("11,12", "null", "1,2,3,4,5,6,7,8"), Rm("12")});
  node.Feed({St("12", "null", "", kHost)});
  // So many others that the name is no longer among those that went last.
  for (int name = 1'000; name < 41'000; name += 1'000) {
    std::string names;
    std::string tokens;
    for (int i = 0; i < 1'000; ++i) {
      names += (i > 0 ? "," : "") + std::to_string(name + i);
      tokens += (i > 0 ? ",5,6,7,8" : "5,6,7,8");
    }
    node.Feed({St(names, "null", tokens), Rm(names)});
  }
  EXPECT_EQ(node.Feed({St("12", "null", kB, R"("medium":"DISK")")}), "named disk 12");
  node.Feed({Rm("12", kHost), Rm("12", R"("medium":"DISK")")});
  EXPECT_EQ(node.Feed({St("12", "null", kB, kHost)}), "named host_pinned 12");
  EXPECT_EQ(node.Ask("B"), "0/0");
  // The device may still say otherwise once no copy is left.
  node.Feed({Rm("12", kHost)});
  EXPECT_EQ(node.Feed({St("12", "null", kB)}), "stored device 12=B");
  EXPECT_EQ(node.Ask("B"), "1/0");
}

// A clear is the end of all names.
TEST(PlacedNames, NamesMeanNothingBehindAClear) {
  Node node;
  node.Feed({St("11,12", "null", "1,2,3,4,5,6,7,8"), Rm("12"), std::string(kClr)});
  EXPECT_EQ(node.Feed({St("12", "null", kB, kHost)}), "stored host_pinned 12=B");
  EXPECT_EQ(node.Ask("B"), "0/1");
}

// Engines announce a copy in host memory when it is made, which may be after the device has lost
// the block, and without its keys. It is the block's own then, never that of its tokens.
TEST(PlacedNames, ACopyThatComesLateKeepsWhatTheDeviceToldOfItsKeys) {
  const std::string image = R"("extra_keys":[[[")" + std::string(64, 'a') + R"(",0]]])";
  std::vector<TokenId> tokens = {1, 2, 3, 4};
  const std::uint64_t object = 0xaaaaaaaaaaaaaaaa;
  const BlockHash with_image = hashing::HashBlock(tokens, hashing::Seed(), std::span(&object, 1));
  struct Held {
    std::string text, salted, adapted, shown;
  };
  const struct {
    std::string_view id;
    std::string keys;       // of the store on the device
    std::string_view more;  // of the store in host memory
    Held held;
  } rows[] = {
      {"text", "", "", {"0/1", "0/0", "0/0", "0/0"}},
      {"no keys, told so", R"("extra_keys":[null])", "", {"0/1", "0/0", "0/0", "0/0"}},
      {"a salt among the keys", R"("extra_keys":[["s1"]])", "", {"0/0", "0/1", "0/0", "0/0"}},
      {"a salt", R"("cache_salt":"s1")", "", {"0/0", "0/1", "0/0", "0/0"}},
      {"a salt, told again",
       R"("cache_salt":"s1")",
       R"(,"cache_salt":"s1")",
       {"0/0", "0/1", "0/0", "0/0"}},
      {"an image", image, "", {"0/0", "0/0", "0/0", "0/1"}},
      {"an adapter", R"("lora_name":"ad")", "", {"0/0", "0/0", "0/1", "0/0"}},
      {"an adapter, told again",
       R"("lora_name":"ad")",
       R"(,"lora_name":"ad")",
       {"0/0", "0/0", "0/1", "0/0"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Node node;
    node.Feed({St("11", "null", kA, row.keys)});
    node.Feed({Rm("11")});
    node.Feed({St("11", "null", kA, std::string(kHost) + std::string(row.more))});
    EXPECT_EQ(node.Ask("A"), row.held.text);
    EXPECT_EQ(node.Ask("A", "s1"), row.held.salted);
    EXPECT_EQ(node.Ask("A", {}, "ad"), row.held.adapted);
    EXPECT_EQ(node.Ask(std::span(&with_image, 1)), row.held.shown);
    node.Feed({Rm("11", kHost)});
    EXPECT_EQ(node.held(), 0u);
    EXPECT_EQ(node.unmatched(), 0u);
  }
}

TEST(PlacedNames, LateCopiesOfAWholeChainKeepItsSalt) {
  const std::string salt = R"("extra_keys":[["s1"],null])";
  for (const std::string_view gone : {"11,12", "12"}) {
    SCOPED_TRACE(gone);
    Node node;
    node.Feed({St("11,12", "null", "1,2,3,4,5,6,7,8", salt)});
    node.Feed({Rm(gone)});
    node.Feed({St("11", "null", kA, kHost)});
    node.Feed({St("12", "11", kB, kHost)});
    EXPECT_EQ(node.Ask("AB", "s1"), gone == "12" ? "1/1" : "0/2");
    EXPECT_EQ(node.Ask("AB"), "0/0");
    EXPECT_EQ(node.Ask("B"), "0/0");
    EXPECT_EQ(node.Ask("A"), "0/0");
  }
}

// Nothing tells of them but what their stream has shown.
TEST(PlacedNames, CopiesOfUnknownBlocksWaitForTheirContentOnceKeysWereShown) {
  const struct {
    std::string_view id;
    std::string shown;
    std::string late;  // a store of the block 21 that nobody spoke of before
    std::string_view told;
    std::string_view held;
  } rows[] = {
      {"nothing shown", St("11", "null", kA), St("21", "null", kB, kHost),
       "stored host_pinned 21=B", "0/1"},
      {"a salt", St("11", "null", kA, R"("cache_salt":"s1")"), St("21", "null", kB, kHost),
       "named host_pinned 21", "0/0"},
      {"a salt; the copy says that it has none", St("11", "null", kA, R"("cache_salt":"s1")"),
       St("21", "null", kB, R"("medium":"CPU","cache_salt":"")"), "stored host_pinned 21=B", "0/1"},
      {"a salt; the copy says its keys", St("11", "null", kA, R"("cache_salt":"s1")"),
       St("21", "null", kB, R"("medium":"CPU","extra_keys":[null])"), "stored host_pinned 21=B",
       "0/1"},
      {"a key; the copy says only its salt", St("11", "null", kA, R"("extra_keys":[[7]])"),
       St("21", "null", kB, R"("medium":"CPU","cache_salt":"")"), "named host_pinned 21", "0/0"},
      {"objects", St("11", "null", kA, R"("block_mm_infos":[{"mm_objects":[{"mm_hash":1}]}])"),
       St("21", "null", kB, kHost), "named host_pinned 21", "0/0"},
      {"a numbered adapter", St("11", "null", kA, R"("lora_id":3)"), St("21", "null", kB, kHost),
       "named host_pinned 21", "0/0"},
      {"in any other tier", St("11", "null", kA, R"("cache_salt":"s1")"),
       St("21", "null", kB, R"("medium":"DISK")"), "named disk 21", "0/0"},
      {"after what is known was forgotten", std::string(), St("21", "null", kB, kHost),
       "named host_pinned 21", "0/0"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Node node;
    if (row.shown.empty()) {
      node.Feed({St("11", "null", kA, R"("cache_salt":"s1")")});
      node.translator().Reset();
    } else {
      node.Feed({row.shown});
    }
    EXPECT_EQ(node.Feed({row.late}), row.told);
    EXPECT_EQ(node.Ask("B"), row.held);
    if (row.told != "named host_pinned 21") continue;
    node.Feed({St("21", "null", kB), Rm("21")});
    EXPECT_EQ(node.Ask("B"), "0/1") << "it waited";
    node.Feed({Rm("21", kHost)});
    EXPECT_EQ(node.Ask("B"), "0/0");
  }
}

TEST(PlacedNames, TheDeviceKnowsBetterThanAHostCopyBeforeIt) {
  Node node;
  node.Feed({St("11", "null", kA), St("12", "null", kB, kHost)});
  EXPECT_EQ(node.Ask("B"), "0/1") << "nobody knows better yet";
  EXPECT_EQ(node.Feed({St("12", "11", kB)}), "removed host_pinned 12; stored device <11 12=B");
  EXPECT_EQ(node.Ask("B"), "0/0");
  EXPECT_EQ(node.Ask("AB"), "2/0");
}

}  // namespace
}  // namespace kvr::test
