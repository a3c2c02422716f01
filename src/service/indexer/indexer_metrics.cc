#include "service/indexer/indexer_metrics.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "service/indexer/answers.h"

namespace kvr::service {
namespace {

void CollectRecovery(const SourceRegistry& sources, metrics::SampleSink& sink) {
  const SourceRegistry::RecoveryStats stats = sources.recovery_stats();
  sink.AddGauge("kvr_indexer_recovered_waiting_ranks",
                "Ranks known from peers that nobody registered", {},
                static_cast<double>(stats.waiting_ranks));
  sink.AddGauge("kvr_indexer_recovered_waiting_blocks", "Blocks of those ranks", {},
                static_cast<double>(stats.waiting_blocks));
  sink.AddCounter("kvr_indexer_recovered_adopted_ranks_total",
                  "Ranks that began with what a peer knew", {},
                  static_cast<double>(stats.adopted_ranks));
  sink.AddCounter("kvr_indexer_recovered_expired_ranks_total",
                  "Ranks known from peers that were dropped after the grace period", {},
                  static_cast<double>(stats.expired_ranks));
}

void CollectIndex(metrics::SampleSink& sink, const index::PartitionIndex& partition) {
  const metrics::Labels labels = {{"model", partition.partition.model_name},
                                  {"routing_group", partition.partition.routing_group}};
  const index::IndexStats stats = partition.index->Stats();
  const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sink.AddGauge(name, help, labels, static_cast<double>(value));
  };
  gauge("kvr_index_ranks", "Ranks with a slot", stats.ranks);
  gauge("kvr_index_blocks", "Distinct blocks", stats.nodes);
  gauge("kvr_index_memberships", "Blocks held, counted per rank and tier", stats.memberships);
  gauge("kvr_index_pending_blocks", "Blocks waiting for their parent or content",
        stats.pending_blocks);
  gauge("kvr_index_bytes", "Estimated heap in use", stats.bytes);
  sink.AddCounter("kvr_index_pending_dropped_total", "Waiting blocks that gave way to newer ones",
                  labels, static_cast<double>(stats.pending_dropped));
}

}  // namespace

std::map<std::string_view, int> ListenersByStatus(const fleet::Snapshot& fleet) {
  std::map<std::string_view, int> by_status = {{"active", 0}, {"connecting", 0}, {"failed", 0}};
  for (const auto& worker : fleet.workers) {
    for (const auto& entry : worker->ranks)
      ++by_status[ListenerStatus(entry)];
  }
  return by_status;
}

void CollectIndexer(const SourceRegistry& sources, metrics::SampleSink& sink) {
  const auto snapshot = sources.catalog().snapshot();
  sink.AddGauge("kvr_indexer_workers", "Registered workers", {},
                static_cast<double>(snapshot->workers.size()));
  sink.AddGauge("kvr_indexer_partitions", "Partitions with an index", {},
                static_cast<double>(sources.indexes().size()));
  for (const auto& [status, count] : ListenersByStatus(*snapshot)) {
    sink.AddGauge("kvr_indexer_listeners", "Listeners by state", {{"status", std::string(status)}},
                  count);
  }
  CollectRecovery(sources, sink);
  for (const auto& partition : sources.indexes().List())
    CollectIndex(sink, *partition);
}

}  // namespace kvr::service
