// What it costs a router to put a snapshot in the place of what it knows: N blocks in chains of 32.
//
// GatherAll: the events, decoded already, into the table. Swap/fresh: into an index that knows
// nothing of the rank. Swap/same: into one that knows the same, as after a short gap; nothing
// changes.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "index/sharded_index.h"
#include "ingest/rank_snapshot.h"

namespace kvr::ingest {
namespace {

constexpr std::size_t kChain = 32;
constexpr std::size_t kRoom = std::size_t{1} << 32;
constexpr Rank kRank{WorkerId{1}, 0};

std::vector<PlacedBlock> MakeBlocks(std::size_t count) {
  Rng rng(1);
  std::vector<PlacedBlock> blocks;
  for (std::size_t i = 0; i < count; ++i)
    blocks.push_back({EngineHash{rng()}, BlockHash{rng()}});
  return blocks;
}

void Gather(const std::vector<PlacedBlock>& blocks, RankSnapshot& snapshot) {
  PlacementEvent store;
  store.rank = kRank;
  for (std::size_t at = 0; at < blocks.size(); at += kChain) {
    store.blocks = std::span(blocks).subspan(at, kChain);
    if (!snapshot.Add(store)) std::abort();
  }
}

void SetRate(benchmark::State& state, std::size_t blocks) {
  state.counters["blocks/s"] = benchmark::Counter(static_cast<double>(blocks),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void GatherAll(benchmark::State& state) {
  const auto blocks = MakeBlocks(static_cast<std::size_t>(state.range(0)));
  std::size_t bytes = 0;
  for (auto _ : state) {
    RankSnapshot snapshot(kRoom);
    if (!snapshot.Reserve(blocks.size())) std::abort();
    Gather(blocks, snapshot);
    bytes = snapshot.bytes();
  }
  SetRate(state, blocks.size());
  state.counters["bytes/block"] = static_cast<double>(bytes) / static_cast<double>(blocks.size());
}

void Swap(benchmark::State& state, bool known) {
  const auto blocks = MakeBlocks(static_cast<std::size_t>(state.range(0)));
  std::uint64_t events = 0;
  const auto applied = [&events](const PlacementEvent&, const index::ApplyResult&) { ++events; };
  for (auto _ : state) {
    state.PauseTiming();
    auto index = index::MakeIndex(index::IndexOptions{}, 1);
    const RankSlot slot = *index->AddRank(kRank);
    auto snapshot = std::make_unique<RankSnapshot>(kRoom);
    Gather(blocks, *snapshot);
    if (known) {
      snapshot->ReplaceIn(*index, slot, kRank, applied);
      snapshot = std::make_unique<RankSnapshot>(kRoom);
      Gather(blocks, *snapshot);
    }
    events = 0;
    state.ResumeTiming();
    snapshot->ReplaceIn(*index, slot, kRank, applied);
    state.PauseTiming();
    snapshot.reset();
    index.reset();
    state.ResumeTiming();
  }
  SetRate(state, blocks.size());
  state.counters["events"] = static_cast<double>(events);
}

BENCHMARK(GatherAll)->Arg(65'536)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Swap, fresh, false)->Arg(65'536)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Swap, same, true)->Arg(65'536)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvr::ingest

BENCHMARK_MAIN();
