// Events of a rank → messages: what an agent adds behind normalising.
//
// Each list has one store of N blocks behind a random parent, and removes as many that were stored
// longest ago, so that the rank keeps 65,536 blocks. Inside the timing: book, coalescer, numbering,
// encoding, ring and envelope; the outlet takes the bytes and does nothing. Singles: the same
// blocks in stores and removals of one block each, which the coalescer has to merge.
//
// BuildSnapshot: how long the table of N blocks in chains of 32 is held for a snapshot that is
// built anew.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/rng.h"
#include "publish/rank_publisher.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

constexpr std::size_t kHeld = 65'536;

struct Nowhere final : Outlet {
  bool Send(std::uint64_t, std::span<const std::byte> envelope) override {
    bytes += envelope.size();
    return true;
  }
  std::size_t bytes = 0;
};

struct List {
  EngineHash parent{};
  std::vector<PlacedBlock> blocks;
  std::vector<EngineHash> names;
};

std::vector<List> MakeLists(std::size_t blocks) {
  Rng rng(1);
  std::vector<List> lists(2 * kHeld / blocks);
  for (List& list : lists) {
    list.parent = EngineHash{rng()};
    for (std::size_t i = 0; i < blocks; ++i) {
      list.blocks.push_back({EngineHash{rng()}, BlockHash{rng()}});
      list.names.push_back(list.blocks.back().engine);
    }
  }
  return lists;
}

void Store(RankPublisher& publisher, const List& list, std::size_t piece) {
  Mutation store;
  store.event.parent = list.parent;
  const std::span blocks(list.blocks);
  for (std::size_t at = 0; at < blocks.size(); at += piece) {
    store.event.blocks = blocks.subspan(at, piece);
    publisher.Apply(0, store);
    store.event.parent = store.event.blocks.back().engine;
  }
}

void Remove(RankPublisher& publisher, const List& list, std::size_t piece) {
  Mutation removal;
  removal.event.kind = PlacementKind::kRemoved;
  const std::span names(list.names);
  for (std::size_t at = 0; at < names.size(); at += piece) {
    removal.event.removed = names.subspan(at, piece);
    publisher.Apply(0, removal);
  }
}

void Run(benchmark::State& state, bool singles) {
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const std::size_t piece = singles ? 1 : blocks;
  const std::vector<List> lists = MakeLists(blocks);
  const SystemClock clock;
  Nowhere outlet;
  RankPublisher publisher({}, clock, outlet);
  std::size_t next = 0;
  const auto turn = [&] {
    Store(publisher, lists[next], piece);
    next = (next + 1) % lists.size();
    Remove(publisher, lists[(next + lists.size() / 2) % lists.size()], piece);
    publisher.EndList(0);
  };
  for (std::size_t i = 0; i < lists.size(); ++i)
    turn();
  outlet.bytes = 0;
  const std::uint64_t allocations = test::AllocationsOfThisThread();
  std::size_t turns = 0;
  for (auto _ : state) {
    turn();
    ++turns;
  }
  const std::uint64_t allocated = test::AllocationsOfThisThread() - allocations;
  const auto per_second = [](double n) {
    return benchmark::Counter(n, benchmark::Counter::kIsRate);
  };
  state.counters["blocks/s"] = per_second(static_cast<double>(2 * blocks * turns));
  state.counters["bytes/s"] = per_second(static_cast<double>(outlet.bytes));
  state.counters["allocs/list"] = static_cast<double>(allocated) / static_cast<double>(turns);
}

void Publish(benchmark::State& state) {
  Run(state, false);
}
void PublishSingles(benchmark::State& state) {
  Run(state, true);
}

void BuildSnapshot(benchmark::State& state) {
  constexpr std::size_t kChain = 32;
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const SystemClock clock;
  Nowhere outlet;
  RankPublisher::Options options;
  options.snapshot_tail_max = 0;
  RankPublisher publisher(options, clock, outlet);
  Rng rng(1);
  List chain;
  for (std::size_t at = 0; at < blocks; at += kChain) {
    chain.blocks.clear();
    for (std::size_t i = 0; i < kChain; ++i)
      chain.blocks.push_back({EngineHash{rng()}, BlockHash{rng()}});
    Mutation store;
    store.event.blocks = chain.blocks;
    publisher.Apply(0, store);
    publisher.EndList(0);
  }
  for (auto _ : state) {
    state.PauseTiming();
    Mutation store;  // again, so that the last snapshot is old
    store.event.blocks = chain.blocks;
    publisher.Apply(0, store);
    publisher.EndList(0);
    state.ResumeTiming();
    const auto taken = publisher.TakeSnapshot();
    benchmark::DoNotOptimize(taken);
  }
  state.counters["blocks/s"] = benchmark::Counter(static_cast<double>(blocks),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BuildSnapshot)->Arg(65'536)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK(Publish)->Arg(1)->Arg(16)->Arg(256);
BENCHMARK(PublishSingles)->Arg(16)->Arg(256);

}  // namespace
}  // namespace kvr::publish

BENCHMARK_MAIN();
