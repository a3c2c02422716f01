#include "service/indexer/indexer_metrics.h"

#include <map>
#include <string>
#include <string_view>

#include "service/index_metrics.h"
#include "service/indexer/answers.h"

namespace kvr::service {
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
  CollectIndexes(sources.indexes(), sink);
}

}  // namespace kvr::service
