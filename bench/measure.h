// What is measured of an index, each on an index of its own or on the state after all updates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/index_feed.h"
#include "index/prefix_index.h"

namespace kvr::bench {

struct Percentiles {
  std::uint64_t count = 0;
  double mean_ns = 0;
  std::uint64_t p50_ns = 0, p99_ns = 0, p999_ns = 0, max_ns = 0;  // nearest rank
};
// Sorts `samples`. All zero when there are none.
Percentiles PercentilesOf(std::span<std::uint32_t> samples_ns);

// `cpu_s` is the writing thread's own processor time: on a busy machine the better figure, on a
// quiet one the same.
struct WriteResult {
  double seconds = 0;
  double cpu_s = 0;
  std::uint64_t blocks = 0;
  [[nodiscard]] double blocks_per_s() const { return static_cast<double>(blocks) / seconds; }
  [[nodiscard]] double blocks_per_cpu_s() const { return static_cast<double>(blocks) / cpu_s; }
};

struct MemoryResult {
  std::uint64_t held_blocks = 0;                               // (rank, tier, block) triples
  std::uint64_t distinct_blocks = 0;                           // that somebody holds
  std::uint64_t idle_blocks = 0;                               // kept besides
  std::uint64_t reported_bytes = 0;                            // by the index itself
  std::array<std::uint64_t, index::kHeapUseCount> bytes_of{};  // the same, by use
  std::uint64_t heap_bytes = 0;  // by the allocator, its own overhead included
};

// One thread applies all updates to an empty index.
struct FillResult {
  std::unique_ptr<FedIndex> index;
  WriteResult write;
  MemoryResult memory;
  std::uint64_t failed_updates = 0;
};
FillResult MeasureFill(const IndexFeed& feed);

// Whether each block's identity is complete, kept or not: fills of both kinds in turn, the medians
// of the ratios.
struct ProvenanceResult {
  double heap_ratio = 0;   // with by without
  double apply_ratio = 0;  // of processor time
  std::size_t rounds = 0;
};
ProvenanceResult MeasureProvenance(const IndexFeed& plain, const IndexFeed& eligible,
                                   std::size_t rounds);

// All queries one after the other, as often as fits into `seconds`, at least once: mean processor
// time of a query in the fastest pass and in the median one.
struct LoopResult {
  double best_ns = 0, median_ns = 0;
  std::uint64_t passes = 0;
};
LoopResult MeasureLoop(const IndexFeed& feed, const FedIndex& index, double seconds);

// Each query timed alone; two clock reads are inside.
Percentiles MeasureAlone(const IndexFeed& feed, const FedIndex& index);

// The second half of the updates, as fast as they go: first with nobody reading, then while
// `readers` threads ask all they can, each query timed alone.
struct BesideResult {
  WriteResult write_alone;
  WriteResult write_beside;
  Percentiles query;
};
BesideResult MeasureBeside(const IndexFeed& feed, std::size_t readers);

// Threads that all ask the same queries, each beginning elsewhere.
struct ReadersResult {
  std::size_t readers = 0;
  double queries_per_s = 0;
};
ReadersResult MeasureReaders(const IndexFeed& feed, const FedIndex& index, std::size_t readers,
                             double seconds);

// The whole file against the clock, its times scaled to a window; nobody waits for an answer. One
// thread issues updates, one applies them, one asks. It ends when the last query is answered and
// the last update applied.
struct OpenLoopResult {
  double window_s = 0;
  double total_s = 0;
  double drain_s = 0;  // after the last update was issued
  std::uint64_t block_ops = 0;
  Percentiles query;         // each timed alone
  Percentiles query_to_end;  // from its deadline
  [[nodiscard]] double offered() const { return static_cast<double>(block_ops) / window_s; }
  [[nodiscard]] double achieved() const { return static_cast<double>(block_ops) / total_s; }
  [[nodiscard]] bool kept_up() const { return total_s <= 1.10 * window_s; }
};
OpenLoopResult MeasureOpenLoop(const IndexFeed& feed, double window_s);

}  // namespace kvr::bench
