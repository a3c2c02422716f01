// Names that engines use for blocks in several places, from the payload to what an index answers:
// it may know too little of them, never too much.
#include <map>
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

  // Tokens of the prompt of blocks A, B, ... that are held: "device/host_pinned" in blocks.
  std::string Ask(std::string_view prompt) const {
    std::vector<TokenId> tokens;
    for (const char block : prompt) {
      for (TokenId i = 1; i <= 4; ++i)
        tokens.push_back(static_cast<TokenId>(block - 'A') * 4 + i);
    }
    hashing::BlockHashing how;
    how.block_size = 4;
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(tokens, how, blocks);
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
