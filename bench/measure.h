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

// Everywhere below, a query is timed with the reading of its answer (ReadAnswer): one that nobody
// reads is only half made.

// One thread applies all updates, which lie in one array, to an empty index.
struct FillResult {
  std::unique_ptr<FedIndex> index;
  WriteResult write;
  MemoryResult memory;
  std::uint64_t failed_updates = 0;
};
FillResult MeasureFill(const IndexFeed& feed);

// One thread takes all updates from a queue, applies them to an empty index and frees them. They
// were in the queue before the clock started, each with blocks of its own.
WriteResult MeasureWrite(const IndexFeed& feed);

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
// Without reading, it is the time of the index alone.
enum class Answers { kRead, kNotRead };
LoopResult MeasureLoop(const IndexFeed& feed, const FedIndex& index, double seconds,
                       Answers answers = Answers::kRead);

// Each query timed alone; two clock reads are inside.
Percentiles MeasureAlone(const IndexFeed& feed, const FedIndex& index);

// The second half of the updates, from a queue as in MeasureWrite but filled while the clock runs:
// first with nobody reading, then while this thread asks all it can once the queue is filled, each
// query timed alone.
struct BesideResult {
  WriteResult write_alone;
  WriteResult write_beside;
  Percentiles query;
};
BesideResult MeasureBeside(const IndexFeed& feed);

// Threads that all ask the same queries, each beginning elsewhere.
struct ReadersResult {
  std::size_t readers = 0;
  double queries_per_s = 0;
  double cpu_ns =
      0;  // processor time of a query: what queries_per_s has of a busy machine is not here
};
// 1, 2, 4, ... readers up to the maximum, `seconds` each, a slice of all numbers after the other,
// so that what else the machine does weighs on all; the medians of the slices.
std::vector<ReadersResult> MeasureReaders(const IndexFeed& feed, const FedIndex& index,
                                          std::size_t readers_max, double seconds);

// The whole file against the clock, its times scaled to a window; nobody waits for an answer. One
// thread issues updates into a queue, as in MeasureWrite, one applies and frees them, one asks. It
// ends when the last query is answered and the last update applied. A window of 0: all is due at
// once.
struct OpenLoopResult {
  double window_s = 0;
  double total_s = 0;
  double issue_span_s = 0;  // until the last update was issued and the last query begun
  double drain_s = 0;       // after the last update was issued
  std::uint64_t block_ops = 0;
  std::uint64_t failed_updates = 0;
  Percentiles query{};         // from its beginning: the service time
  Percentiles query_to_end{};  // from its deadline
  [[nodiscard]] double offered() const { return static_cast<double>(block_ops) / window_s; }
  [[nodiscard]] double achieved() const { return static_cast<double>(block_ops) / total_s; }
  // Whether the load was what it says: every operation issued in time and none failed.
  [[nodiscard]] bool generator_valid() const {
    return failed_updates == 0 && (window_s == 0 || issue_span_s <= 1.01 * window_s);
  }
  // Only then its latencies mean anything.
  [[nodiscard]] bool kept_up() const {
    return window_s > 0 && generator_valid() && total_s <= 1.10 * window_s;
  }
};
OpenLoopResult MeasureOpenLoop(const IndexFeed& feed, double window_s);

}  // namespace kvr::bench
