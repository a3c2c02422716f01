// Matching and applying, one thread. Times are of the call alone; the query's hashes are ready.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "index/block_tree.h"

namespace kvr::index {
namespace {

constexpr std::uint64_t kChains = 256;
constexpr std::uint64_t kSharedBlocks = 4;  // a system prompt
constexpr std::uint64_t kChainBlocks = 160;

std::vector<PlacedBlock> Chain(std::uint64_t number) {
  std::vector<PlacedBlock> blocks;
  for (std::uint64_t i = 0; i < kChainBlocks; ++i) {
    const std::uint64_t key = i < kSharedBlocks ? i : number * kChainBlocks + i + 1'000;
    blocks.push_back({EngineHash{key * 0x9E3779B97F4A7C15u}, BlockHash{key * 0xBF58476D1CE4E5B9u}});
  }
  return blocks;
}

// Each rank holds a random length of each chain.
std::unique_ptr<PrefixIndex> Filled(std::uint64_t ranks) {
  auto index = std::make_unique<BlockTree>(IndexOptions{});
  Rng rng(1);
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    const RankSlot slot = *index->AddRank(Rank{WorkerId{rank}, 0});
    for (std::uint64_t number = 0; number < kChains; ++number) {
      const auto chain = Chain(number);
      PlacementEvent event;
      event.blocks = std::span(chain).first(1 + rng.Below(kChainBlocks));
      index->Apply(slot, event);
    }
  }
  return index;
}

// Arguments: query blocks, ranks. Each query is of another chain.
void BM_Match(benchmark::State& state) {
  const auto depth = static_cast<std::size_t>(state.range(0));
  const auto index = Filled(static_cast<std::uint64_t>(state.range(1)));
  std::vector<std::vector<BlockHash>> queries;
  for (std::uint64_t number = 0; number < kChains; ++number) {
    std::vector<BlockHash> query;
    for (const PlacedBlock& block : Chain(number))
      query.push_back(block.local);
    query.resize(depth);
    queries.push_back(std::move(query));
  }
  OverlapScores scores;
  std::size_t next = 0;
  std::uint64_t scored = 0;
  std::uint64_t depths = 0;
  for (auto _ : state) {
    index->Match(queries[next], {}, scores);
    next = (next + 1) % queries.size();
    scored += scores.scored().size();
    for (const RankSlot slot : scores.scored())
      depths += scores.at(slot).depth();
  }
  const auto queries_run = static_cast<double>(state.iterations());
  state.counters["scored_ranks"] = static_cast<double>(scored) / queries_run;
  state.counters["mean_depth"] = static_cast<double>(depths) / static_cast<double>(scored);
}
BENCHMARK(BM_Match)->ArgsProduct({{8, 128}, {4, 64}});

// Arguments: blocks an event, ranks. A store of a chain and its removal, rank after rank, in an
// index that holds the other chains; items are blocks of both.
void BM_ApplyStoreAndRemove(benchmark::State& state) {
  const auto blocks_an_event = static_cast<std::size_t>(state.range(0));
  const auto ranks = static_cast<std::uint64_t>(state.range(1));
  const auto index = Filled(ranks);
  std::vector<RankSlot> slots;
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    slots.push_back(*index->AddRank(Rank{WorkerId{rank}, 0}));
  std::vector<std::vector<PlacedBlock>> chains;
  for (std::uint64_t number = 0; number < kChains; ++number)
    chains.push_back(Chain(kChains + number));
  std::vector<EngineHash> names;
  std::uint64_t next = 0;
  std::int64_t blocks = 0;
  for (auto _ : state) {
    const auto& chain = chains[next % chains.size()];
    const RankSlot slot = slots[next % slots.size()];
    ++next;
    const auto stored = std::span(chain).subspan(kSharedBlocks, blocks_an_event);
    names.clear();
    for (const PlacedBlock& block : stored)
      names.push_back(block.engine);
    PlacementEvent event;
    event.blocks = stored;
    index->Apply(slot, event);
    event = {};
    event.kind = PlacementKind::kRemoved;
    event.removed = names;
    index->Apply(slot, event);
    blocks += static_cast<std::int64_t>(2 * blocks_an_event);
  }
  state.SetItemsProcessed(blocks);
}
BENCHMARK(BM_ApplyStoreAndRemove)->ArgsProduct({{1, 16, 128}, {4, 64}});

// Fills an empty index; the counter is the index's own account of its heap.
void BM_Fill(benchmark::State& state) {
  const auto ranks = static_cast<std::uint64_t>(state.range(0));
  IndexStats stats;
  for (auto _ : state) {
    const auto index = Filled(ranks);
    stats = index->Stats();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(stats.memberships));
  state.counters["bytes_a_membership"] =
      static_cast<double>(stats.bytes) / static_cast<double>(stats.memberships);
}
BENCHMARK(BM_Fill)->Arg(1)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvr::index

BENCHMARK_MAIN();
