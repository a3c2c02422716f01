// What several shards cost a query, and what they give two writers. First argument: shards.
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "index/index_workload.h"
#include "index/sharded_index.h"

namespace kvr::index {
namespace {

// 128 engines with 4,096 blocks each.
const Workload& TheWorkload() {
  static const Workload workload({.requests = 60'000, .sessions = 3'000});
  return workload;
}

struct Filled {
  explicit Filled(std::int64_t shards)
      : index(MakeIndex(IndexOptions{}, static_cast<std::size_t>(shards))) {
    for (std::uint32_t rank = 0; rank < WorkloadOptions{}.ranks; ++rank)
      slots.push_back(*index->AddRank(Rank{WorkerId{rank}, 0}));
  }
  // The updates of every `of`th rank.
  void Play(std::uint32_t first, std::uint32_t of) {
    for (const Workload::Update& update : TheWorkload().updates()) {
      if (update.rank % of == first) TheWorkload().Apply(update, slots, *index);
    }
  }

  std::unique_ptr<PrefixIndex> index;
  std::vector<RankSlot> slots;
};

void BM_Match(benchmark::State& state) {
  const Workload& workload = TheWorkload();
  Filled filled(state.range(0));
  filled.Play(0, 1);
  OverlapScores scores;
  std::uint64_t depths = 0;
  for (std::size_t i = 0; i < workload.queries(); ++i) {
    filled.index->Match(workload.Query(i), {}, scores);
    for (const RankSlot slot : scores.scored())
      depths += scores.at(slot).depth();
  }
  std::size_t next = 0;
  for (auto _ : state) {
    filled.index->Match(workload.Query(next), {}, scores);
    next = next + 1 == workload.queries() ? 0 : next + 1;
  }
  state.counters["depths"] = static_cast<double>(depths);
  const IndexStats stats = filled.index->Stats();
  state.counters["bytes_a_membership"] =
      static_cast<double>(stats.bytes) / static_cast<double>(stats.memberships);
}

// All updates into an empty index by two threads, half of the ranks each; items are blocks.
void BM_ApplyByTwo(benchmark::State& state) {
  for (auto _ : state) {
    Filled filled(state.range(0));
    std::jthread other([&filled] { filled.Play(1, 2); });
    filled.Play(0, 2);
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(TheWorkload().updated_blocks()));
}

// An index that knows 4,096 ranks, of which one holds the chain asked for.
std::unique_ptr<PrefixIndex> OneHolder(std::size_t shards, std::span<const BlockHash> chain) {
  constexpr std::uint32_t kRanks = 4'096;
  auto index = MakeIndex(IndexOptions{.ranks_max = kRanks}, shards);
  std::vector<PlacedBlock> blocks;
  for (const BlockHash block : chain)
    blocks.push_back({EngineHash{Raw(block)}, block});
  PlacementEvent event;
  event.blocks = blocks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const RankSlot slot = *index->AddRank(Rank{WorkerId{rank}, 0});
    if (rank == kRanks / 2) index->Apply(slot, event);
  }
  return index;
}

// Arguments: shards, and how many such indexes are asked in turn with one OverlapScores.
void BM_MatchOneHolder(benchmark::State& state) {
  std::vector<BlockHash> chain;
  for (std::uint64_t block = 1; block <= 8; ++block)
    chain.push_back(BlockHash{block});
  std::vector<std::unique_ptr<PrefixIndex>> indexes;
  for (std::int64_t i = 0; i < state.range(1); ++i)
    indexes.push_back(OneHolder(static_cast<std::size_t>(state.range(0)), chain));
  OverlapScores scores;
  std::size_t next = 0;
  for (auto _ : state) {
    indexes[next]->Match(chain, {.best = 1}, scores);
    next = next + 1 == indexes.size() ? 0 : next + 1;
  }
}

BENCHMARK(BM_Match)->Arg(1)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK(BM_MatchOneHolder)->Args({1, 1})->Args({2, 1})->Args({4, 1})->Args({1, 2});
BENCHMARK(BM_ApplyByTwo)->Arg(1)->Arg(2)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kvr::index

BENCHMARK_MAIN();
