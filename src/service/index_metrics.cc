#include "service/index_metrics.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvr::service {
namespace {

void Collect(const index::PartitionIndex& partition, metrics::SampleSink& sink) {
  const metrics::Labels labels = {{"model", partition.partition.model_name},
                                  {"routing_group", partition.partition.routing_group}};
  const index::IndexStats stats = partition.index->Stats();
  const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sink.AddGauge(name, help, labels, static_cast<double>(value));
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sink.AddCounter(name, help, labels, static_cast<double>(value));
  };
  gauge("kvr_index_ranks", "Ranks with a slot", stats.ranks);
  gauge("kvr_index_blocks", "Distinct blocks", stats.nodes);
  gauge("kvr_index_idle_blocks", "Blocks kept as the way to others, or for their name",
        stats.idle_nodes);
  gauge("kvr_index_memberships", "Blocks held, counted per rank and tier", stats.memberships);
  gauge("kvr_index_runs", "Stretches of blocks without a branch", stats.runs);
  counter("kvr_index_run_splits_total", "Runs split", stats.splits);
  counter("kvr_index_run_joins_total", "Runs joined", stats.joins);
  counter("kvr_index_query_retries_total",
          "Further looks of queries, because runs were split or joined meanwhile",
          stats.query_retries);
  counter("kvr_index_query_waits_total",
          "Queries that took their turn among the updates after too many looks", stats.query_waits);
  gauge("kvr_index_pending_blocks", "Blocks waiting for their parent or content",
        stats.pending_blocks);
  counter("kvr_index_pending_dropped_total", "Waiting blocks that gave way to newer ones",
          stats.pending_dropped);
  counter("kvr_index_name_conflicts_total", "Stores that gave a rank's known name to another block",
          stats.name_conflicts);
  counter("kvr_index_evicted_blocks_total", "Held blocks that gave way to the memory limit",
          stats.evicted_blocks);
  counter("kvr_index_evicted_memberships_total",
          "Held blocks that gave way to the memory limit, counted per rank and tier",
          stats.evicted_memberships);
  gauge("kvr_index_bytes", "Heap in use, as counted", stats.bytes);
  for (std::size_t use = 0; use < index::kHeapUseCount; ++use) {
    metrics::Labels with_use = labels;
    with_use.emplace_back("use", index::kHeapUseNames[use]);
    sink.AddGauge("kvr_index_heap_bytes", "Heap in use, by what for", with_use,
                  static_cast<double>(stats.bytes_of[use]));
  }
}

}  // namespace

void CollectIndexes(const index::IndexSet& indexes, metrics::SampleSink& sink) {
  for (const auto& partition : indexes.List())
    Collect(*partition, sink);
}

}  // namespace kvr::service
