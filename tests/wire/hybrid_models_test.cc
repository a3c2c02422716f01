// Engine payloads of hybrid models, from the bytes to what can be reused.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  explicit Node(std::uint32_t block_size = kBlockSize)
      : partition_(*indexes_.GetOrCreate({"m", "default"}, block_size)),
        slot_(*partition_->index->AddRank(rank_)),
        translator_({.rank = rank_, .block_size = block_size}) {}

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
    event.kind = wire::GroupKindFromName(kind.name);
    event.kind_name = kind.name;
    event.window = kind.window;
  }
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

  const placement::EventTranslator& translator() const { return translator_; }

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
    node.StoreHost(kFull, 12);
    for (std::uint64_t i = 0; too_many && i < 20'000; ++i)
      node.StoreHost(kWindow, 1'000 + i);
    if (!too_many) node.ClearAll();
    node.Store(kFull, {11, 12}, std::nullopt, Tokens(0, 2));
    node.Remove(kFull, 12);
    node.Send();
    EXPECT_EQ(node.Ask(Tokens(0, 2)).held, 1u);
  }
}

// --- any order of the groups, any cut into batches ----------------------------------------------

struct Step {
  bool store = false;
  std::uint32_t first = 0;  // block, from 0
  std::uint32_t count = 1;
};

constexpr std::uint32_t kDepth = 12;
constexpr std::array kKinds = {kMain, kWindow, kMamba, kFurther};

std::uint64_t NameOf(std::uint32_t block) {
  return 100 + block;
}

// What one group does, in its own order. Full attention groups begin with the whole chain.
std::vector<Step> Script(const Kind& kind, Rng& rng) {
  std::vector<Step> steps;
  const std::uint32_t stride = kind.block_size / kBlockSize;
  if (kind.name == kMain.name) {
    const auto cut = static_cast<std::uint32_t>(1 + rng.Below(kDepth - 1));
    steps = {{true, 0, cut}, {true, cut, kDepth - cut}};
  } else {
    for (std::uint32_t block = stride - 1; block < kDepth; block += stride) {
      if (rng.Below(4) > 0) steps.push_back({true, block});
    }
    if (steps.empty()) steps.push_back({true, stride - 1});
  }
  const auto more = rng.Below(6);
  for (std::uint64_t i = 0; i < more; ++i) {
    const auto block = static_cast<std::uint32_t>(stride - 1 + stride * rng.Below(kDepth / stride));
    steps.push_back({rng.Below(3) == 0, block});
  }
  return steps;
}

void Play(Node& node, const Kind& kind, const Step& step) {
  if (!step.store) return node.Remove(kind, NameOf(step.first));
  std::vector<std::uint64_t> names;
  for (std::uint32_t i = 0; i < step.count; ++i)
    names.push_back(NameOf(step.first + i));
  const std::uint32_t stride = kind.block_size / kBlockSize;
  const std::uint32_t begin = step.first + 1 - stride;
  std::optional<std::uint64_t> parent;
  if (begin > 0) parent = NameOf(begin - 1);
  node.Store(kind, names, parent, Tokens(begin, step.count + stride - 1));
}

// The same by definition.
std::uint32_t Expected(const std::array<std::vector<Step>, 4>& scripts, std::uint32_t depth) {
  std::array<std::map<std::uint32_t, int>, 4> copies;  // group → block → copies
  for (std::size_t group = 0; group < scripts.size(); ++group) {
    for (const Step& step : scripts[group]) {
      for (std::uint32_t i = 0; i < step.count; ++i) {
        int& count = copies[group][step.first + i];
        count = std::max(0, count + (step.store ? 1 : -1));
      }
    }
  }
  const auto has = [&](std::size_t group, std::uint32_t end) { return copies[group][end - 1] > 0; };
  std::uint32_t best = 0;
  for (std::uint32_t end = 1; end <= depth; ++end) {
    if (!has(0, end) || !has(3, end)) break;
    const bool window = has(1, end) && (end == 1 || has(1, end - 1));
    if (window && has(2, end)) best = end;
  }
  return best;
}

TEST(HybridModels, AnyOrderOfGroupsAndBatchesGivesTheSame) {
  std::uint32_t usable = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Rng rng(seed);
    std::array<std::vector<Step>, 4> scripts;
    for (std::size_t i = 0; i < kKinds.size(); ++i)
      scripts[i] = Script(kKinds[i], rng);
    for (int order = 0; order < 8; ++order) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " order " << order);
      Node node;
      std::array<std::size_t, 4> next{};
      std::size_t left = 0;
      for (const auto& script : scripts)
        left += script.size();
      while (left > 0) {
        const auto group = static_cast<std::size_t>(rng.Below(kKinds.size()));
        if (next[group] == scripts[group].size()) continue;
        Play(node, kKinds[group], scripts[group][next[group]++]);
        --left;
        if (rng.Below(3) == 0) node.Send();
      }
      node.Send();
      for (std::uint32_t depth = 1; depth <= kDepth; ++depth) {
        const auto answer = node.Ask(Tokens(0, depth));
        // A rank that holds nothing is not asked further.
        const std::uint32_t hit = answer.held == 0 ? 0 : answer.hit.value_or(answer.held);
        ASSERT_EQ(hit, Expected(scripts, depth)) << "depth " << depth;
        usable += hit > 0 ? 1u : 0u;
      }
    }
  }
  EXPECT_GT(usable, 1000u) << "the scripts leave something to be found";
}

}  // namespace
}  // namespace kvr::test
