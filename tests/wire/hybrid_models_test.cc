// Engine payloads of hybrid models, from the bytes to what can be reused.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "hashing/block_hash.h"
#include "index/index_set.h"
#include "ingest/apply_batch.h"
#include "placement/event_translator.h"
#include "wire/event_encoder.h"

namespace kvr::test {
namespace {

constexpr std::uint32_t kBlockSize = 4;

// Token ids of consecutive blocks, each block unlike all others.
std::vector<TokenId> Tokens(std::uint32_t first_block, std::uint32_t blocks,
                            std::uint32_t block_size = kBlockSize) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = first_block * block_size; i < (first_block + blocks) * block_size; ++i)
    tokens.push_back(i);
  return tokens;
}

struct Kind {
  std::string_view name;
  std::uint32_t group = 0;
  std::optional<std::uint32_t> window = {};
  std::uint32_t block_size = kBlockSize;
};
constexpr Kind kMain = {"full_attention", 0};
constexpr Kind kWindow = {"sliding_window", 1, 8};
constexpr Kind kMamba = {"mamba", 2, std::nullopt, 2 * kBlockSize};
constexpr Kind kFurther = {"full_attention", 3};

// One rank of a partition and its stream.
class Node {
 public:
  explicit Node(std::uint32_t block_size = kBlockSize, const placement::MemoryLimits& memory = {})
      : partition_(*indexes_.GetOrCreate({"m", "default"}, block_size)),
        slot_(*partition_->index->AddRank(rank_)),
        translator_({.rank = rank_, .block_size = block_size, .memory = memory}) {}

  // Names and tokens are written by the caller; the batch goes out with Send.
  void Store(const Kind& kind, const std::vector<std::uint64_t>& names,
             std::optional<std::uint64_t> parent, const std::vector<TokenId>& tokens) {
    std::vector<EngineHash> hashes;
    for (const std::uint64_t name : names)
      hashes.push_back(EngineHash{name});
    std::optional<EngineHash> under;
    if (parent) under = EngineHash{*parent};
    wire::EngineEvent& event = batch_.AddStored(hashes, under, tokens, kind.block_size);
    event.group = kind.group;
    if (kind.name.empty()) return;  // an engine that numbers groups and does not say what they are
    event.kind = wire::GroupKindFromName(kind.name);
    event.kind_name = kind.name;
    event.window = kind.window;
  }
  void StoreNumberless(const std::vector<std::uint64_t>& names, std::optional<std::uint64_t> parent,
                       const std::vector<TokenId>& tokens, std::string_view kind = {}) {
    Store({"", 0}, names, parent, tokens);
    wire::EngineEvent& event = batch_.events.back();
    event.group.reset();
    event.kind = kind.empty() ? wire::GroupKind::kAbsent : wire::GroupKindFromName(kind);
    event.kind_name = kind;
  }
  // Of the store that came last, in the way of vLLM: a text among the keys of the first block.
  void WithSalt() {
    wire::ExtraKey key;
    key.kind = wire::ExtraKey::Kind::kText;
    key.text = "s";
    key.raw = "\xa1s";
    const auto blocks = static_cast<std::uint32_t>(batch_.extra_blocks.size());
    const auto keys = static_cast<std::uint32_t>(batch_.extra_keys.size());
    batch_.extra_keys.push_back(key);
    batch_.extra_blocks.push_back({keys, 1});
    batch_.events.back().extra_blocks = {blocks, 1};
  }
  void LoseMessages() { translator_.ForgetCounts(); }
  // As engines send it: with the number of the group and nothing else.
  void Remove(const Kind& kind, std::uint64_t name) {
    const EngineHash hash{name};
    batch_.AddRemoved(std::span(&hash, 1)).group = kind.group;
  }
  // As connectors announce host copies: by the number of the group and their names.
  void StoreHost(const Kind& kind, std::uint64_t name) {
    const EngineHash hash{name};
    wire::EngineEvent& event = batch_.AddStored(std::span(&hash, 1), std::nullopt, {}, 0);
    event.group = kind.group;
    event.medium = "CPU";
  }
  void RemoveHost(const Kind& kind, std::uint64_t name) {
    const EngineHash hash{name};
    wire::EngineEvent& event = batch_.AddRemoved(std::span(&hash, 1));
    event.group = kind.group;
    event.medium = "CPU";
  }
  // What was stored or removed last, on the host.
  void OnHost() { batch_.events.back().medium = "CPU"; }
  void ClearAll() { batch_.AddCleared(); }

  void Send() {
    std::string payload;
    batch_.dp_rank = 0;
    wire::EncodeEventBatch(batch_, *wire::DialectByName("vllm-0.24"), payload);
    batch_.Clear();
    ASSERT_TRUE(translator_.Translate(std::as_bytes(std::span(payload)), out_));
    ingest::ApplyBatch(*partition_, rank_, out_, [&](const PlacementEvent& event) {
      partition_->index->Apply(slot_, event);
    });
  }

  struct Answer {
    std::uint32_t held = 0;            // blocks of the main group
    std::optional<std::uint32_t> hit;  // blocks that can be reused
  };
  Answer Ask(const std::vector<TokenId>& tokens) const {
    hashing::BlockHashing how;
    how.block_size = partition_->block_size;
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(tokens, how, blocks);
    OverlapScores scores;
    partition_->index->Match(blocks, {}, scores);
    RankOverlap overlap = scores.at(slot_);
    overlap.rank = rank_;
    return {overlap.depth(), partition_->hybrid->HitOf(overlap, overlap.depth())};
  }

  // All that is known: the blocks of the index, a line each, and the side groups.
  std::string State() const {
    std::set<std::string> lines;
    index::RankCopy held;
    partition_->index->CopyRank(rank_, held);
    for (const index::RankCopy::Run& run : held.runs) {
      std::optional<EngineHash> parent = run.parent;
      for (std::size_t i = run.begin; i < run.end; ++i) {
        const PlacedBlock& block = held.blocks[i];
        lines.insert(fmt::format("main {}={} <{} tiers {}", Raw(block.engine), Raw(block.local),
                                 parent ? Raw(*parent) : 0, run.tiers));
        parent = block.engine;
      }
    }
    if (const auto sides = partition_->hybrid->Find(rank_)) {
      for (const index::SideGroupCopy& group : sides->Copy()) {
        const SideGroup& about = group.about;
        if (about.group == 0xFFFF'FFFF) {  // whether all is clear
          EXPECT_EQ(about.rule == SideRule::kNever, out_.unclear_group.has_value());
          continue;
        }
        std::string line =
            fmt::format("side {} rule {} size {} window {}:", about.group,
                        static_cast<int>(about.rule), about.block_size, about.window);
        std::set<std::string> blocks;
        for (const index::SideGroupCopy::Block& block : group.blocks)
          blocks.insert(fmt::format(" {}/{}", Raw(block.name), block.tiers));
        for (const std::string& block : blocks)
          line += block;
        lines.insert(line);
      }
    }
    if (out_.unclear_group) {
      lines.insert(fmt::format("unclear {} {}", out_.unclear_group->group,
                               placement::DropReasonName(out_.unclear_group->why)));
    }
    std::string text;
    for (const std::string& line : lines)
      text += line + "\n";
    return text;
  }

  const placement::EventTranslator& translator() const { return translator_; }
  const placement::PlacementBatch& last() const { return out_; }

 private:
  const Rank rank_{WorkerId{1}, 0};
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> partition_;
  RankSlot slot_;
  placement::EventTranslator translator_;
  wire::EventBatch batch_;
  placement::PlacementBatch out_;
};

TEST(HybridModels, R26TheTrailingWindowDecides) {
  const struct {
    std::string_view id;
    std::uint32_t main;
    std::vector<std::uint64_t> window;
    std::uint32_t hit;
  } rows[] = {
      {"w1", 5, {11, 12, 14, 15}, 5},
      {"w2", 5, {11, 12, 13}, 3},
      {"w3", 3, {11, 12, 13, 14, 15}, 3},
      {"w4", 5, {}, 0},
  };
  for (const auto& row : rows) {
    for (const bool side_first : {false, true}) {
      SCOPED_TRACE(row.id);
      Node node;
      const auto send_main = [&] {
        std::vector<std::uint64_t> names;
        for (std::uint64_t i = 0; i < row.main; ++i)
          names.push_back(11 + i);
        node.Store(kMain, names, std::nullopt, Tokens(0, row.main));
        node.Send();
      };
      const auto send_side = [&] {
        // The whole logical span, with the names of what is resident.
        node.Store(kWindow, row.window, std::nullopt, Tokens(0, 5));
        node.Send();
      };
      side_first ? send_side() : send_main();
      side_first ? send_main() : send_side();
      const auto answer = node.Ask(Tokens(0, 5));
      EXPECT_EQ(answer.held, row.main);
      EXPECT_EQ(answer.hit, row.hit);
    }
  }
}

TEST(HybridModels, R20OrdersOfMambaAndMainInABatch) {
  const Kind main = {"mla_attention", 3, std::nullopt, 8};
  std::array<std::uint32_t, 4> order = {0, 1, 2, 3};
  do {
    Node node(8);
    for (const std::uint32_t group : order) {
      if (group == 3) {
        node.Store(main, {51, 52, 53, 54, 55}, std::nullopt, Tokens(0, 5, 8));
      } else {
        node.Store({"mamba", group, std::nullopt, 40}, {55}, std::nullopt, Tokens(0, 5, 8));
      }
    }
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 5, 8)).hit, 5u);
    EXPECT_EQ(node.Ask(Tokens(0, 4, 8)).held, 4u);
    EXPECT_EQ(node.Ask(Tokens(0, 4, 8)).hit, 0u) << "no checkpoint there";
    node.Remove({"mamba", 1}, 55);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 5, 8)).held, 5u);
    EXPECT_EQ(node.Ask(Tokens(0, 5, 8)).hit, 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(HybridModels, R23AWindowsRemovalLeavesTheMainGroupAlone) {
  Node node;
  node.Store(kMain, {11, 12, 13}, std::nullopt, Tokens(0, 3));
  node.Store(kWindow, {11, 12, 13}, std::nullopt, Tokens(0, 3));
  node.Send();
  node.Remove(kWindow, 12);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 3)).held, 3u);
  EXPECT_EQ(node.Ask(Tokens(0, 3)).hit, 1u);
}

TEST(HybridModels, AnUnknownKindMakesNoPrefixUsable) {
  Node node;
  node.Store(kMain, {11}, std::nullopt, Tokens(0, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, std::nullopt);
  node.Store({"quantum", 7}, {11}, std::nullopt, Tokens(0, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).held, 1u);
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 0u);
  EXPECT_EQ(node.translator()
                .stats()
                .dropped[static_cast<std::size_t>(placement::DropReason::kUnknownKind)],
            1u);
}

TEST(HybridModels, KindsOfWhichNothingIsReusedDoNotMatter) {
  Node node;
  node.Store(kMain, {11}, std::nullopt, Tokens(0, 1));
  node.Store({"encoder_only_attention", 1}, {11}, std::nullopt, Tokens(0, 1));
  node.Store({"cross_attention", 2}, {11}, std::nullopt, Tokens(0, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, std::nullopt);
}

TEST(HybridModels, AFurtherMainGroupNeedsEveryBlock) {
  Node node;
  node.Store(kMain, {11, 12}, std::nullopt, Tokens(0, 2));
  node.Store(kFurther, {11, 12}, std::nullopt, Tokens(0, 2));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 2u);
  node.Remove(kFurther, 12);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u) << "the main group has it";
  EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 1u);
  node.Remove(kMain, 11);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 0u);
}

TEST(HybridModels, AClearBetweenSideEventsKeepsItsPlace) {
  Node node;
  node.Store(kMain, {11}, std::nullopt, Tokens(0, 1));
  node.Store(kWindow, {11}, std::nullopt, Tokens(0, 1));
  node.ClearAll();
  node.Store(kMain, {11}, std::nullopt, Tokens(0, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 0u);
  node.ClearAll();
  node.Store(kWindow, {11}, std::nullopt, Tokens(0, 1));
  node.Store(kMain, {11}, std::nullopt, Tokens(0, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 1u);
}

// The groups of a hybrid model whose main group is not group 0, in all orders, in one batch and in
// many: host copies count for the group they are of, whenever its kind becomes known.
TEST(HybridModels, HostCopiesWaitForTheKindOfTheirGroup) {
  constexpr Kind kFull = {"full_attention", 3};
  constexpr Kind kState = {"mamba", 0, std::nullopt, 2 * kBlockSize};
  for (const bool one_batch : {true, false}) {
    std::array<int, 4> order = {0, 1, 2, 3};
    do {
      SCOPED_TRACE(testing::Message()
                   << one_batch << " " << order[0] << order[1] << order[2] << order[3]);
      Node node;
      for (const int step : order) {
        if (step == 0) node.Store(kFull, {11, 12}, std::nullopt, Tokens(0, 2));
        if (step == 1) node.Store(kState, {12}, std::nullopt, Tokens(0, 2));
        if (step == 2) node.StoreHost(kFull, 12);
        if (step == 3) node.StoreHost(kState, 12);
        if (!one_batch) node.Send();
      }
      node.Send();
      EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u);
      EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 2u);
      // Of the state a copy is left in host memory.
      node.Remove(kState, 12);
      node.Send();
      EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 2u);
      node.RemoveHost(kState, 12);
      node.Send();
      EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u);
      EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 0u);
      // ... and so of the main group's block, until that goes, too.
      node.Remove(kFull, 12);
      node.Send();
      EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u);
      node.RemoveHost(kFull, 12);
      node.Send();
      EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(HybridModels, HeldCopiesAreBoundedAndGoWithAClear) {
  constexpr Kind kFull = {"full_attention", 3};
  for (const bool too_many : {false, true}) {
    Node node;
    for (std::uint64_t i = 0; too_many && i < 20'000; ++i)
      node.StoreHost(kWindow, 1'000 + i);
    node.StoreHost(kFull, 12);
    if (!too_many) node.ClearAll();
    node.Store(kFull, {11, 12}, std::nullopt, Tokens(0, 2));
    node.Remove(kFull, 12);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
  }
}

// --- which group is the main one ---------------------------------------------------------------

// Events of a step, under a number. Steps of one number keep their order, as those of one group do;
// all others come in every order, in one batch and in one each.
struct NumberedStep {
  int group = 0;
  std::function<void(Node&)> play;
};

// What all orders come to. The steps are ordered by number.
std::string InAllOrders(const std::vector<NumberedStep>& steps,
                        const placement::MemoryLimits& memory = {}) {
  std::vector<int> order;
  for (const NumberedStep& step : steps)
    order.push_back(step.group);
  std::string first;
  do {
    for (const bool one_batch : {true, false}) {
      std::string told = one_batch ? "one batch" : "many batches";
      Node node(kBlockSize, memory);
      std::vector<bool> played(steps.size());
      for (const int group : order) {
        std::size_t next = 0;
        while (played[next] || steps[next].group != group)
          ++next;
        played[next] = true;
        told += " " + std::to_string(next);
        steps[next].play(node);
        if (!one_batch) node.Send();
      }
      if (one_batch) node.Send();
      const std::string state = node.State();
      if (first.empty()) first = state;
      EXPECT_EQ(state, first) << told;
      EXPECT_FALSE(node.last().lost_copies) << told;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return first;
}

auto Stores(const Kind& kind, std::vector<std::uint64_t> names) {
  return [=](Node& node) {
    node.Store(kind, names, std::nullopt, Tokens(0, static_cast<std::uint32_t>(names.size())));
  };
}

constexpr Kind kUntold0 = {"", 0};
constexpr Kind kFull0 = {"full_attention", 0};
constexpr Kind kFull3 = {"full_attention", 3};
constexpr Kind kFull7 = {"mla_attention", 7};
constexpr Kind kMamba0 = {"mamba", 0};
constexpr Kind kUntold1 = {"", 1};
constexpr Kind kTold1 = {"mla_attention", 1};

TEST(MainGroup, IsTheFullAttentionGroupOfTheLowestNumber) {
  const std::string state = InAllOrders({{0, Stores(kFull0, {11, 12})},
                                         {1, Stores(kWindow, {11, 12})},
                                         {3, Stores(kFull3, {11, 12, 13})},
                                         {3, [](Node& node) { node.Remove(kFull3, 12); }},
                                         {7, Stores(kFull7, {11})}});
  EXPECT_THAT(state, testing::HasSubstr("main 12="));
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("main 13=")));
  EXPECT_THAT(state, testing::HasSubstr("side 3 rule 0 size 4 window 0: 11/1 13/1\n"));
  EXPECT_THAT(state, testing::HasSubstr("side 7 rule 0 size 4 window 0: 11/1\n"));
}

TEST(MainGroup, CopiesAreOfTheGroupThatStoredThem) {
  for (const bool lower_first : {true, false}) {
    Node node;
    const auto lower = Stores(kFull0, {11, 12});
    const auto higher = Stores(kFull3, {11, 12});
    lower_first ? lower(node) : higher(node);
    node.Send();
    lower_first ? higher(node) : lower(node);
    node.Send();
    node.Remove(kFull0, 12);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
    node.Remove(kFull3, 11);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
    EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 0u);
  }
}

TEST(MainGroup, IsGroupZeroUntilItsKindIsTold) {
  const std::string state = InAllOrders({{0, Stores(kUntold0, {11, 12})},
                                         {1, Stores(kMamba0, {12})},
                                         {1, [](Node& node) { node.StoreHost(kMamba0, 12); }},
                                         {3, Stores(kFull3, {11, 12})}});
  EXPECT_THAT(state, testing::HasSubstr("main 12="));
  EXPECT_THAT(state, testing::HasSubstr("side 0 rule 2 size 4 window 0: 11/1 12/3\n"));
}

TEST(MainGroup, IsNotGroupZeroWithoutAKindBesideAToldOne) {
  const std::string state = InAllOrders({{0, Stores(kUntold0, {11, 12, 13})},
                                         {1, [](Node& node) { node.StoreHost(kUntold0, 12); }},
                                         {3, Stores(kFull3, {11, 12})}});
  EXPECT_THAT(state, testing::HasSubstr("main 12="));
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("main 13=")));
  EXPECT_THAT(state, testing::HasSubstr("unclear 0 unlearned_group\n"));
}

TEST(MainGroup, GroupZeroMayTurnOutToBeItAfterAll) {
  const std::string state = InAllOrders({{0, Stores(kUntold0, {11, 12})},
                                         {1, Stores(kFull0, {11, 12, 13})},
                                         {3, Stores(kFull3, {11})},
                                         {4, [](Node& node) { node.StoreHost(kUntold0, 12); }}});
  EXPECT_THAT(state, testing::HasSubstr("main 13="));
  EXPECT_THAT(state, testing::HasSubstr("<11 tiers 3\n")) << "12 is in host memory, too";
  EXPECT_THAT(state, testing::HasSubstr("side 3 rule 0 size 4 window 0: 11/1\n"));
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("unclear")));
}

TEST(MainGroup, ThatIsToldTwoKindsIsNone) {
  const std::string state = InAllOrders({{0, Stores(kFull0, {11, 12})},
                                         {1, Stores(kMamba0, {12})},
                                         {3, Stores(kFull3, {11, 12})},
                                         {4, Stores(kWindow, {11, 12})}});
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("main")));
  EXPECT_THAT(state, testing::HasSubstr("side 0 rule 3"));
  EXPECT_THAT(state, testing::HasSubstr("side 3 rule 0 size 4 window 0: 11/1 12/1\n"));
  EXPECT_THAT(state, testing::HasSubstr("unclear 0 unknown_kind\n"));
}

// A connector may announce host copies, with their tokens, before any store says what their group
// is.
TEST(MainGroup, CopiesThatWaitKeepWhatTheirBlocksAre) {
  for (const bool host : {false, true}) {
    const auto chain = [=](Node& node) {
      node.Store(kUntold1, {11, 12}, std::nullopt, Tokens(0, 2));
      if (host) node.OnHost();
    };
    const auto next = [=](Node& node) {
      node.Store(kUntold1, {13}, 12, Tokens(2, 1));
      if (host) node.OnHost();
    };
    const auto told = [](Node& node) { node.Store(kTold1, {21}, std::nullopt, Tokens(7, 1)); };
    const std::string state = InAllOrders({{0, chain}, {1, next}, {2, told}});
    EXPECT_THAT(state, testing::HasSubstr("main 13="));
    Node node;
    chain(node);
    told(node);
    next(node);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 3)).held, 3u);
  }
}

TEST(MainGroup, CopiesThatWaitKeepTheirSalt) {
  const auto salted = [](Node& node) {
    node.Store(kUntold1, {11}, std::nullopt, Tokens(0, 1));
    node.WithSalt();
    node.Store(kUntold1, {12}, 11, Tokens(1, 1));
  };
  const auto removed = [](Node& node) {
    node.Store(kUntold1, {13, 14}, 12, Tokens(2, 2));
    node.Remove(kUntold1, 14);
    node.Store(kUntold1, {12}, 11, Tokens(1, 1));
    node.Remove(kUntold1, 12);
  };
  const auto told = [](Node& node) { node.Store(kTold1, {21}, std::nullopt, Tokens(7, 1)); };
  const std::string state = InAllOrders({{0, salted}, {0, removed}, {1, told}});
  EXPECT_THAT(state, testing::HasSubstr("main 12="));
  EXPECT_THAT(state, testing::HasSubstr("main 13="));
  EXPECT_THAT(state, testing::Not(testing::HasSubstr("main 14=")));
  Node node;
  salted(node);
  told(node);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 0u) << "text without the salt";
}

TEST(MainGroup, CopiesThatWaitUnderOneNameAreOfOneBlock) {
  for (const bool host : {false, true}) {
    Node node;
    node.Store(kUntold1, {11}, std::nullopt, Tokens(0, 1));
    node.Store(kUntold1, {11}, std::nullopt, Tokens(5, 1));
    if (host) node.OnHost();
    node.Store({"full_attention", 1}, {21}, std::nullopt, Tokens(7, 1));
    node.Send();
    EXPECT_EQ(node.last().lost_copies, !host)
        << "of the device and a connector the device is right";
    if (host) {
      EXPECT_EQ(node.Ask(Tokens(0, 1)).held, 1u);
    }
  }
}

TEST(MainGroup, SizesAndWindowsAreTheLargestThatWereTold) {
  const Kind small = {"sliding_window", 1, 8, 2};
  const Kind large = {"sliding_window", 1, 16, 8};
  const Kind none = {"sliding_window", 1, std::nullopt, 4};
  const std::string state = InAllOrders({{0, Stores(kMain, {11, 12})},
                                         {1, Stores(small, {11})},
                                         {2, Stores(large, {12})},
                                         {3, Stores(none, {12})}});
  EXPECT_THAT(state, testing::HasSubstr("side 1 rule 1 size 8 window 16: 11/1 12/1\n"));
}

TEST(MainGroup, AfterALossWhatIsTakenBackIsAllOfIt) {
  Node node;
  Stores(kFull3, {11, 12})(node);
  node.Send();
  node.LoseMessages();
  Stores(kFull0, {11})(node);
  node.Send();
  EXPECT_TRUE(node.last().lost_copies);
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u) << "12 is the other group's";
}

TEST(MainGroup, CopiesWithoutANumberGoWithAWrongOne) {
  Node node;
  node.Store({"", 0}, {11}, std::nullopt, Tokens(0, 1));
  node.StoreNumberless({12}, 11, Tokens(1, 1));
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u);
  Stores(kFull3, {11})(node);
  node.Send();
  EXPECT_TRUE(node.last().lost_copies) << "whose block 12 is nobody can tell";
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
}

TEST(GroupLimit, AGroupBeyondItMakesNoPrefixUsable) {
  placement::MemoryLimits memory;
  memory.groups_max = 2;
  Node node(kBlockSize, memory);
  Stores(kMain, {11})(node);
  Stores(kWindow, {11})(node);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 1u);
  EXPECT_EQ(node.last().unclear_group, std::nullopt);
  Stores(kMamba, {11})(node);
  Stores(kMain, {11, 12})(node);
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 2u) << "the main group goes on";
  EXPECT_EQ(node.Ask(Tokens(0, 2)).hit, 0u);
  ASSERT_EQ(node.last().dropped.size(), 1u);
  EXPECT_EQ(node.last().dropped[0].reason, placement::DropReason::kTooManyGroups);
  ASSERT_TRUE(node.last().unclear_group);
  EXPECT_EQ(node.last().unclear_group->why, placement::DropReason::kTooManyGroups);
  node.Remove(kMamba, 11);
  node.Send();
  EXPECT_EQ(node.last().dropped.size(), 1u);
  EXPECT_EQ(node.translator()
                .stats()
                .dropped[static_cast<std::size_t>(placement::DropReason::kTooManyGroups)],
            1u)
      << "a removal needs no room";
}

TEST(GroupLimit, AnUnknownKindWithoutANumberMakesNoPrefixUsable) {
  Node node;
  Stores(kMain, {11})(node);
  node.StoreNumberless({11}, std::nullopt, Tokens(0, 1), "quantum");
  node.Send();
  EXPECT_EQ(node.Ask(Tokens(0, 1)).held, 1u);
  EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 0u);
  ASSERT_TRUE(node.last().unclear_group);
  EXPECT_EQ(node.last().unclear_group->why, placement::DropReason::kUnknownKind);
}

// Names are held in the translator for the case that their group is the main one; see also
// HeldNames. With no room for all of them the index knows too little, and that is said.
TEST(GroupLimit, HeldNamesThatFoundNoRoomAreMissed) {
  constexpr Kind kUntold3 = {"", 3};
  for (const std::size_t room : {1u, 2u}) {
    placement::MemoryLimits memory;
    memory.held_names_max = room;
    Node node(kBlockSize, memory);
    node.StoreHost(kUntold3, 11);
    node.StoreHost(kUntold3, 12);
    Stores(kFull3, {11, 12})(node);
    node.Send();
    EXPECT_EQ(node.last().lost_copies, room == 1);
    EXPECT_EQ(node.translator().stats().given_up_names, 2 - room);
    node.Remove(kFull3, 11);
    node.Remove(kFull3, 12);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 2)).held, room);
  }
}

// --- any order of the groups, any cut into batches ----------------------------------------------

struct Step {
  bool store = false;
  std::uint32_t first = 0;  // block, from 0
  std::uint32_t count = 1;
  bool host = false;
  bool told = true;  // of a store: it says the group's kind
};

constexpr std::uint32_t kDepth = 12;
constexpr std::array kKinds = {kMain, kWindow, kMamba, kFurther};
using Scripts = std::array<std::vector<Step>, kKinds.size()>;

std::uint64_t NameOf(std::uint32_t block) {
  return 100 + block;
}

// What is left of a group on the device, by block.
std::map<std::uint32_t, int> CopiesOf(const std::vector<Step>& script) {
  std::map<std::uint32_t, int> copies;
  for (const Step& step : script) {
    if (step.host) continue;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      int& count = copies[step.first + i];
      count = std::max(0, count + (step.store ? 1 : -1));
    }
  }
  return copies;
}

// What one group does, in its own order. Full attention groups store the whole chain, at first or
// in two parts of which the child may come first. Stores in host memory may be silent on the kind.
std::vector<Step> Script(const Kind& kind, bool silent, Rng& rng) {
  std::vector<Step> steps;
  const std::uint32_t stride = kind.block_size / kBlockSize;
  if (kind.name == kMain.name) {
    const auto cut = static_cast<std::uint32_t>(1 + rng.Below(kDepth - 1));
    steps = {{true, 0, cut}, {true, cut, kDepth - cut}};
    if (rng.Below(2) == 0) std::swap(steps[0], steps[1]);
  } else {
    for (std::uint32_t block = stride - 1; block < kDepth; block += stride) {
      if (rng.Below(4) > 0) steps.push_back({true, block});
    }
    if (steps.empty()) steps.push_back({true, stride - 1});
  }
  const auto more = rng.Below(6);
  for (std::uint64_t i = 0; i < more; ++i) {
    const auto block = static_cast<std::uint32_t>(stride - 1 + stride * rng.Below(kDepth / stride));
    steps.push_back({rng.Below(3) == 0, block, 1, rng.Below(3) == 0});
  }
  // Often the group loses all that it has.
  if (rng.Below(8) == 0) {
    for (const auto& [block, left] : CopiesOf(steps)) {
      for (int i = 0; i < left; ++i)
        steps.push_back({false, block});
    }
  }
  if (!silent) return steps;
  const auto copies = rng.Below(3);
  for (std::uint64_t i = 0; i < copies; ++i) {
    const auto block = static_cast<std::uint32_t>(stride - 1 + stride * rng.Below(kDepth / stride));
    steps.insert(steps.begin(), {true, block, 1, true, false});
  }
  return steps;
}

void Play(Node& node, const Kind& kind, const Step& step) {
  if (step.store) {
    std::vector<std::uint64_t> names;
    for (std::uint32_t i = 0; i < step.count; ++i)
      names.push_back(NameOf(step.first + i));
    const std::uint32_t stride = kind.block_size / kBlockSize;
    const std::uint32_t begin = step.first + 1 - stride;
    std::optional<std::uint64_t> parent;
    if (begin > 0) parent = NameOf(begin - 1);
    Kind said = kind;
    if (!step.told) said.name = {};
    node.Store(said, names, parent, Tokens(begin, step.count + stride - 1));
  } else {
    node.Remove(kind, NameOf(step.first));
  }
  if (step.host) node.OnHost();
}

// The same by definition.
std::uint32_t Expected(const Scripts& scripts, std::uint32_t depth) {
  std::array<std::array<std::map<std::uint32_t, int>, 2>, kKinds.size()> copies;  // by tier, block
  for (std::size_t group = 0; group < scripts.size(); ++group) {
    for (const Step& step : scripts[group]) {
      for (std::uint32_t i = 0; i < step.count; ++i) {
        int& count = copies[group][step.host ? 1 : 0][step.first + i];
        count = std::max(0, count + (step.store ? 1 : -1));
      }
    }
  }
  const auto on = [&](std::size_t group, std::size_t tier, std::uint32_t end) {
    return copies[group][tier][end - 1] > 0;
  };
  const auto has = [&](std::size_t group, std::uint32_t end) {
    return on(group, 0, end) || on(group, 1, end);
  };
  std::uint32_t best = 0;
  bool device = true;  // a match goes from the device to the host, and not back
  for (std::uint32_t end = 1; end <= depth; ++end) {
    device = device && on(0, 0, end);
    if ((!device && !on(0, 1, end)) || !has(3, end)) break;
    const bool window = has(1, end) && (end == 1 || has(1, end - 1));
    if (window && has(2, end)) best = end;
  }
  return best;
}

// Ends when every order of the scripts came to what is expected. How many prefixes were usable.
std::uint32_t PlayInAnyOrder(const Scripts& scripts, Rng& rng) {
  std::uint32_t usable = 0;
  for (int order = 0; order < 8; ++order) {
    SCOPED_TRACE(order);
    Node node;
    std::array<std::size_t, kKinds.size()> next{};
    std::size_t left = 0;
    for (const auto& script : scripts)
      left += script.size();
    while (left > 0) {
      const auto group = static_cast<std::size_t>(rng.Below(kKinds.size()));
      const bool whole = rng.Below(4) == 0;  // so that other groups may come all before or after
      while (next[group] < scripts[group].size()) {
        Play(node, kKinds[group], scripts[group][next[group]++]);
        --left;
        if (rng.Below(3) == 0) node.Send();
        if (!whole) break;
      }
    }
    node.Send();
    for (std::uint32_t depth = 1; depth <= kDepth; ++depth) {
      const auto answer = node.Ask(Tokens(0, depth));
      // A rank that holds nothing is not asked further.
      const std::uint32_t hit = answer.held == 0 ? 0 : answer.hit.value_or(answer.held);
      EXPECT_EQ(hit, Expected(scripts, depth)) << "depth " << depth;
      usable += hit > 0 ? 1u : 0u;
    }
  }
  return usable;
}

// What a group is, outlives what it has.
TEST(HybridModels, AFormerMainGroupThatIsEmptyIsNeededStill) {
  for (const bool clear : {false, true}) {
    SCOPED_TRACE(clear ? "cleared" : "removed");
    Node node;
    Stores(kFurther, {11})(node);
    if (clear) {
      node.ClearAll();
    } else {
      node.Remove(kFurther, 11);
    }
    Stores(kMain, {11})(node);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 1)).held, 1u);
    EXPECT_EQ(node.Ask(Tokens(0, 1)).hit, 0u);
  }
}

TEST(HybridModels, AnyOrderOfGroupsAndBatchesGivesTheSame) {
  for (const bool silent : {false, true}) {
    std::uint32_t usable = 0;
    for (std::uint64_t seed = 1; seed <= 150 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (silent ? " silent" : ""));
      Rng rng(seed);
      Scripts scripts;
      for (std::size_t i = 0; i < kKinds.size(); ++i)
        scripts[i] = Script(kKinds[i], silent, rng);
      usable += PlayInAnyOrder(scripts, rng);
    }
    EXPECT_GT(usable, 1000u) << "the scripts leave something to be found";
  }
}

}  // namespace
}  // namespace kvr::test
