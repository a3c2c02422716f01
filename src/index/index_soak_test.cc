// Engines that fill and drop for hours, in a minute: the index must not grow.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "index/run_arena.h"
#include "support/alloc_counter.h"

namespace kvr::index {
namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u;

// One engine: conversations behind one of a few prompts, that grow turn by turn. The cache holds so
// many blocks and drops the tail of what was used longest ago.
class Engine {
 public:
  static constexpr std::size_t kCapacity = 2'048;
  static constexpr std::size_t kPrompts = 8;
  static constexpr std::size_t kPromptBlocks = 24;

  Engine(RunArena& index, std::uint64_t worker)
      : index_(index), worker_(worker), slot_(*index.AddRank(Rank{WorkerId{worker}, 0})) {}

  // One turn of a conversation: a store, and a removal when the cache is full.
  void Turn(Rng& rng) {
    std::size_t at = conversations_.size();
    if (!conversations_.empty() && rng.Below(3) > 0) {
      at = rng.Below(conversations_.size());
    } else {
      conversations_.push_back({.prompt = rng.Below(kPrompts), .own = {}});
    }
    Conversation talk = std::move(conversations_[at]);
    conversations_.erase(conversations_.begin() + static_cast<std::ptrdiff_t>(at));
    const std::size_t turn = 1 + rng.Below(24);
    std::vector<PlacedBlock> blocks;
    PlacementEvent event;
    if (talk.own.empty()) {
      for (std::size_t i = 0; i < kPromptBlocks; ++i)
        blocks.push_back(BlockOf(talk.prompt * 1'000 + i + 1));
    } else {
      event.parent = talk.own.back().engine;
    }
    for (std::size_t i = 0; i < turn; ++i) {
      talk.own.push_back(BlockOf((worker_ + 1) << 40 | ++next_));
      blocks.push_back(talk.own.back());
    }
    event.blocks = blocks;
    index_.Apply(slot_, event);
    held_ += turn;
    if (talk.own.size() < 200) {
      conversations_.push_back(std::move(talk));
    } else {
      Drop(talk, talk.own.size());
    }
    while (held_ > kCapacity) {
      Conversation& oldest = conversations_.front();
      Drop(oldest, std::min(oldest.own.size(), held_ - kCapacity + 16));
      if (oldest.own.empty()) conversations_.pop_front();
    }
  }

  // Its process starts again, with nothing.
  void Restart() {
    conversations_.clear();
    held_ = 0;
    PlacementEvent event;
    event.kind = PlacementKind::kCleared;
    index_.Apply(slot_, event);
  }

 private:
  struct Conversation {
    std::uint64_t prompt = 0;
    std::vector<PlacedBlock> own;
  };

  static PlacedBlock BlockOf(std::uint64_t number) {
    return {EngineHash{number * kFactor}, BlockHash{number * kFactor + 1}};
  }

  // Tail first.
  void Drop(Conversation& talk, std::size_t count) {
    std::vector<EngineHash> removed;
    for (; count > 0; --count, --held_) {
      removed.push_back(talk.own.back().engine);
      talk.own.pop_back();
    }
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = removed;
    index_.Apply(slot_, event);
  }

  RunArena& index_;
  const std::uint64_t worker_;
  const RankSlot slot_;
  std::deque<Conversation> conversations_;  // least recently used first
  std::size_t held_ = 0;
  std::uint64_t next_ = 0;
};

// KVR_TEST_STORES: how many, in place of 2 million, 67 minutes of 500 a second. 43'200'000 are a
// day.
std::uint64_t Stores() {
  const char* text = std::getenv("KVR_TEST_STORES");
  return text ? std::strtoull(text, nullptr, 10) : 2'000'000;
}

class IndexSoak : public testing::TestWithParam<std::uint64_t> {};  // memory limit

TEST_P(IndexSoak, DoesNotGrow) {
  constexpr std::uint64_t kEngines = 64;
  constexpr std::uint64_t kSamples = 50;
  const std::uint64_t limit = GetParam();
  RunArena index(IndexOptions{.remembered_names_max = 512, .memory_limit = limit});
  std::vector<Engine> engines;
  for (std::uint64_t worker = 0; worker < kEngines; ++worker)
    engines.emplace_back(index, worker);
  Rng rng(1);
  // The engines' own memory is in the heap of this thread as well: it is as flat as they are full.
  std::int64_t heap_early = 0;
  std::int64_t heap_late = 0;
  std::uint64_t bytes_early = 0;
  std::uint64_t bytes_late = 0;
  std::uint64_t runs_early = 0;
  std::uint64_t runs_most = 0;
  const std::uint64_t stores = Stores();
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    for (std::uint64_t i = 0; i < stores / kSamples; ++i) {
      Engine& engine = engines[rng.Below(kEngines)];
      engine.Turn(rng);
      if (rng.Below(200'000) == 0) engine.Restart();
    }
    const IndexStats stats = index.Stats();
    runs_most = std::max(runs_most, stats.runs);
    const std::int64_t heap = test::HeapOfThisThread();
    if (limit > 0) {
      EXPECT_LE(stats.bytes, limit);
    }
    // The first tenth fills it.
    if (sample < kSamples / 10) {
      heap_early = std::max(heap_early, heap);
      bytes_early = std::max(bytes_early, stats.bytes);
      runs_early = std::max(runs_early, stats.runs);
      continue;
    }
    EXPECT_LT(stats.bytes, bytes_early + bytes_early / 20) << "sample " << sample;
    EXPECT_LT(heap, heap_early + heap_early / 20) << "sample " << sample;
    EXPECT_LT(stats.runs, runs_early + runs_early / 10) << "sample " << sample;
    heap_late = std::max(heap_late, heap);
    bytes_late = std::max(bytes_late, stats.bytes);
  }
  // For --gtest_output: of the first tenth, and of all that follow.
  RecordProperty("early_bytes", std::to_string(bytes_early));
  RecordProperty("late_bytes", std::to_string(bytes_late));
  RecordProperty("early_heap", std::to_string(heap_early));
  RecordProperty("late_heap", std::to_string(heap_late));
  RecordProperty("evicted_blocks", std::to_string(index.Stats().evicted_blocks));
  EXPECT_EQ(index.Stats().evicted_blocks > 0, limit > 0);
  for (std::uint64_t worker = 0; worker < kEngines; ++worker)
    index.RemoveRank(Rank{WorkerId{worker}, 0});
  const IndexStats stats = index.Stats();
  EXPECT_EQ(stats.nodes + stats.idle_nodes + stats.memberships + stats.runs, 0u);
  // What stays is the places of runs, 24 bytes each, which come in powers of two. There were a few
  // more between two samples.
  EXPECT_LT(stats.bytes, 24 * std::bit_ceil(runs_most + runs_most / 4) + 10'000);
}

// 64 engines of 2,048 blocks take about 8 MB.
INSTANTIATE_TEST_SUITE_P(Limits, IndexSoak, testing::Values(0, 4'000'000),
                         [](const auto& limit) { return limit.param == 0 ? "none" : "half"; });

}  // namespace
}  // namespace kvr::index
