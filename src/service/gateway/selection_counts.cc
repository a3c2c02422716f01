#include "service/gateway/selection_counts.h"

#include <string>

namespace kvr::service {

void SelectionCounts::Count(Rank rank) {
  const Lock lock(mutex_);
  ++counts_[rank];
}

void SelectionCounts::Collect(const fleet::Snapshot& fleet, metrics::SampleSink& sink) const {
  const Lock lock(mutex_);
  for (const auto& worker : fleet.workers) {
    for (const auto& entry : worker->ranks) {
      const auto count = counts_.find(entry.rank);
      sink.AddCounter("kvr_gateway_selections_total", "Requests sent to a rank, retries included",
                      {{"worker", std::to_string(Raw(entry.rank.worker))},
                       {"dp_rank", std::to_string(entry.rank.dp_rank)}},
                      count == counts_.end() ? 0.0 : static_cast<double>(count->second));
    }
  }
}

}  // namespace kvr::service
