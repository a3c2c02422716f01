#include "service/indexer/indexer_metrics.h"

#include <map>
#include <string>
#include <string_view>

#include "service/index_metrics.h"
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
  CollectIndexes(sources.indexes(), sink);
}

}  // namespace kvr::service
