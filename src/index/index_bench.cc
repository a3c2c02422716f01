// Matching and applying on the same made-up workload for each index. Times are of the
// call alone; hashes are ready.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include "base/check.h"
#include "index/index_workload.h"
#include "index/run_arena.h"

namespace kvr::index {
namespace {

// 128 engines with 4,096 or 16,384 blocks each, or 512 to see that it works.
const Workload& WorkloadOf(std::int64_t scale) {
  const auto make = [](std::uint32_t factor) {
    return Workload({.capacity_blocks = 4'096 * factor,
                     .requests = 60'000 * factor,
                     .sessions = 3'000 * factor});
  };
  static const Workload tiny({.capacity_blocks = 512, .requests = 2'000, .sessions = 200});
  if (scale == 0) return tiny;
  static const Workload small = make(1);
  if (scale == 1) return small;
  static const Workload big = make(4);
  return big;
}

template <typename Index>
struct Filled {
  std::unique_ptr<PrefixIndex> index = std::make_unique<Index>(IndexOptions{});
  std::vector<RankSlot> slots;

  Filled() {
    for (std::uint32_t rank = 0; rank < WorkloadOptions{}.ranks; ++rank)
      slots.push_back(*index->AddRank(Rank{WorkerId{rank}, 0}));
  }
  void Play(const Workload& workload) {
    for (const Workload::Update& update : workload.updates())
      workload.Apply(update, slots, *index);
  }
};

// All updates into an empty index; items are blocks. Argument: scale.
template <typename Index>
void BM_Apply(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  IndexStats stats;
  std::size_t heap = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::size_t before = mallinfo2().uordblks;
    state.ResumeTiming();
    Filled<Index> filled;
    filled.Play(workload);
    state.PauseTiming();
    heap = mallinfo2().uordblks - before;
    stats = filled.index->Stats();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(workload.updated_blocks()));
  state.counters["memberships"] = static_cast<double>(stats.memberships);
  state.counters["blocks"] = static_cast<double>(stats.nodes + stats.idle_nodes);
  state.counters["bytes_a_membership"] =
      static_cast<double>(stats.bytes) / static_cast<double>(stats.memberships);
  // By the allocator's account, small chunks' overhead included.
  state.counters["heap_a_membership"] =
      static_cast<double>(heap) / static_cast<double>(stats.memberships);
}

// The last half of the updates, when engines are full and the index grows no more; items are
// blocks. Argument: scale.
template <typename Index>
void BM_ApplyWhenFull(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  const auto updates = workload.updates();
  std::int64_t blocks = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto filled = std::make_unique<Filled<Index>>();
    std::size_t i = 0;
    for (; i < updates.size() / 2; ++i)
      workload.Apply(updates[i], filled->slots, *filled->index);
    state.ResumeTiming();
    for (; i < updates.size(); ++i) {
      workload.Apply(updates[i], filled->slots, *filled->index);
      blocks += static_cast<std::int64_t>(updates[i].end - updates[i].begin);
    }
    state.PauseTiming();
    filled.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(blocks);
}

// Drops all blocks of one engine after the other. Argument: scale.
template <typename Index>
void BM_RemoveRank(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  auto filled = std::make_unique<Filled<Index>>();
  filled->Play(workload);
  std::uint64_t rank = 0;
  for (auto _ : state) {
    if (rank == filled->slots.size()) {
      state.PauseTiming();
      filled = std::make_unique<Filled<Index>>();
      filled->Play(workload);
      rank = 0;
      state.ResumeTiming();
    }
    filled->index->RemoveRank(Rank{WorkerId{rank++}, 0});
  }
}

// All queries against the state after all updates, one after the other. Argument: scale. The depth
// and the number of scored ranks must be the same for each index.
template <typename Index>
void BM_Match(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  Filled<Index> filled;
  filled.Play(workload);
  OverlapScores scores;
  std::uint64_t scored = 0;
  std::uint64_t depths = 0;
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < workload.queries(); ++i) {
    filled.index->Match(workload.Query(i), {}, scores);
    blocks += workload.Query(i).size();
    scored += scores.scored().size();
    for (const RankSlot slot : scores.scored())
      depths += scores.at(slot).depth();
  }
  std::size_t next = 0;
  for (auto _ : state) {
    filled.index->Match(workload.Query(next), {}, scores);
    next = next + 1 == workload.queries() ? 0 : next + 1;
  }
  const auto queries = static_cast<double>(workload.queries());
  state.counters["query_blocks"] = static_cast<double>(blocks) / queries;
  state.counters["scored_ranks"] = static_cast<double>(scored) / queries;
  state.counters["depths"] = static_cast<double>(depths);
}

// The same, so many at once. Arguments: scale, queries at once; time and items are of a query.
template <typename Index>
void BM_MatchMany(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  const auto at_once = static_cast<std::size_t>(state.range(1));
  Filled<Index> filled;
  filled.Play(workload);
  std::vector<std::span<const BlockHash>> queries(at_once);
  std::vector<OverlapScores> scores(at_once);
  std::size_t next = 0;
  while (state.KeepRunningBatch(state.range(1))) {
    for (std::span<const BlockHash>& query : queries) {
      query = workload.Query(next);
      next = next + 1 == workload.queries() ? 0 : next + 1;
    }
    filled.index->MatchMany(queries, {}, scores);
  }
}

// One chain that ranks hold 1 to 64 blocks of. Arguments: ranks, how many of them are wanted.
template <typename Index>
void BM_MatchBest(benchmark::State& state) {
  constexpr std::uint64_t kBlocks = 64;
  Index index{IndexOptions{}};
  std::vector<PlacedBlock> chain;
  std::vector<BlockHash> query;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    chain.push_back({EngineHash{i}, BlockHash{i}});
    query.push_back(BlockHash{i});
  }
  for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(state.range(0)); ++rank) {
    PlacementEvent event;
    event.blocks = std::span(chain).first(1 + rank % kBlocks);
    index.Apply(*index.AddRank(Rank{WorkerId{rank}, 0}), event);
  }
  const MatchOptions options{.best = static_cast<std::uint32_t>(state.range(1))};
  OverlapScores scores;
  for (auto _ : state)
    index.Match(query, options, scores);
  state.counters["scored"] = static_cast<double>(scores.scored().size());
}

// All queries while another thread repeats all updates. Argument: scale.
template <typename Index>
void BM_MatchBesideWriter(benchmark::State& state) {
  const Workload& workload = WorkloadOf(state.range(0));
  Filled<Index> filled;
  filled.Play(workload);
  std::atomic<bool> done{false};
  std::int64_t updates = 0;
  std::jthread writer([&] {
    while (!done) {
      for (const Workload::Update& update : workload.updates()) {
        if (done) break;
        workload.Apply(update, filled.slots, *filled.index);
        ++updates;
      }
    }
  });
  OverlapScores scores;
  std::size_t next = 0;
  for (auto _ : state) {
    filled.index->Match(workload.Query(next), {}, scores);
    next = next + 1 == workload.queries() ? 0 : next + 1;
  }
  done = true;
  writer.join();
  state.counters["updates"] =
      benchmark::Counter(static_cast<double>(updates), benchmark::Counter::kIsRate);
}

// A chain with a branch behind each block but the last, held by one rank.
template <typename Index>
struct Branches {
  Index index{IndexOptions{.remembered_names_max = 0}};
  RankSlot holder = *index.AddRank(Rank{WorkerId{0}, 0});
  std::vector<PlacedBlock> chain;

  static EngineHash Branch(std::uint64_t behind) { return EngineHash{behind | 1ull << 40}; }
  explicit Branches(std::uint64_t blocks) {
    for (std::uint64_t i = 1; i <= blocks; ++i)
      chain.push_back({EngineHash{i}, BlockHash{i}});
    Store(holder, {}, chain);
    for (std::uint64_t i = 1; i < blocks; ++i) {
      const PlacedBlock branch{Branch(i), BlockHash{Raw(Branch(i))}};
      Store(holder, EngineHash{i}, std::span(&branch, 1));
    }
  }
  void Store(RankSlot slot, std::optional<EngineHash> parent, std::span<const PlacedBlock> blocks) {
    PlacementEvent event;
    event.parent = parent;
    event.blocks = blocks;
    index.Apply(slot, event);
  }
};

// Removes half of the branches, the deepest first; time and items are of a branch. Argument:
// blocks.
template <typename Index>
void BM_RemoveBranches(benchmark::State& state) {
  const auto blocks = std::max<std::uint64_t>(static_cast<std::uint64_t>(state.range(0)), 64);
  std::unique_ptr<Branches<Index>> branches;
  std::uint64_t behind = 0;
  for (auto _ : state) {
    if (behind <= blocks / 2) {
      state.PauseTiming();
      branches = std::make_unique<Branches<Index>>(blocks);
      behind = blocks - 1;
      state.ResumeTiming();
    }
    const EngineHash name = Branches<Index>::Branch(behind--);
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = std::span(&name, 1);
    branches->index.Apply(branches->holder, event);
  }
}

// Seventeen ranks store beginnings that end near the middle, the last of which has the chain split.
// Argument: blocks, at least 64.
template <typename Index>
void BM_SplitAmongBranches(benchmark::State& state) {
  const auto blocks = std::max<std::uint64_t>(static_cast<std::uint64_t>(state.range(0)), 64);
  std::uint64_t splits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto branches = std::make_unique<Branches<Index>>(blocks);
    std::vector<RankSlot> slots;
    for (std::uint32_t rank = 1; rank <= 17; ++rank)
      slots.push_back(*branches->index.AddRank(Rank{WorkerId{rank}, 0}));
    state.ResumeTiming();
    for (std::size_t i = 0; i < slots.size(); ++i)
      branches->Store(slots[i], {}, std::span(branches->chain).first(blocks / 2 + i));
    state.PauseTiming();
    splits += branches->index.Stats().splits;
    branches.reset();
    state.ResumeTiming();
  }
  state.counters["splits"] =
      benchmark::Counter(static_cast<double>(splits), benchmark::Counter::kAvgIterations);
}

BENCHMARK(BM_Apply<RunArena>)->Arg(0)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ApplyWhenFull<RunArena>)->Arg(0)->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RemoveRank<RunArena>)->Arg(0)->Arg(4)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_RemoveBranches<RunArena>)->Arg(0)->Arg(1'000)->Arg(16'000);
BENCHMARK(BM_SplitAmongBranches<RunArena>)
    ->Arg(0)
    ->Arg(1'000)
    ->Arg(16'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Match<RunArena>)->Arg(0)->Arg(1)->Arg(4);
BENCHMARK(BM_MatchMany<RunArena>)->ArgsProduct({{0, 1, 4}, {1, 8, 32}});
BENCHMARK(BM_MatchBest<RunArena>)->ArgsProduct({{1, 64, 512, 4'096}, {0, 8}});
BENCHMARK(BM_MatchBesideWriter<RunArena>)->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
}  // namespace kvr::index

BENCHMARK_MAIN();
