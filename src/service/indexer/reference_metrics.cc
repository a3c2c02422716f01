#include "service/indexer/reference_metrics.h"

#include <chrono>
#include <string_view>

#include "service/indexer/indexer_metrics.h"

namespace kvr::service {

ReferenceRoute::ReferenceRoute(metrics::Registry& registry, const std::string& method,
                               const std::string& endpoint)
    : requests_(&registry.AddCounter("dynamo_kvindexer_requests_total", "HTTP requests",
                                     {{"endpoint", endpoint}, {"method", method}})),
      seconds_(&registry.AddHistogram("dynamo_kvindexer_request_duration_seconds", "HTTP latency",
                                      metrics::ExponentialBounds(1e-4, 2, 20),
                                      {{"endpoint", endpoint}})) {
  constexpr std::array<const char*, 2> kClasses = {"4xx", "5xx"};
  for (std::size_t i = 0; i < kClasses.size(); ++i) {
    errors_[i] = &registry.AddCounter("dynamo_kvindexer_errors_total", "HTTP failures",
                                      {{"endpoint", endpoint}, {"status_class", kClasses[i]}});
  }
}

void ReferenceRoute::Count(Nanos took, int status) const {
  if (requests_ == nullptr) return;
  requests_->Add();
  if (status >= 400) errors_[status >= 500 ? 1 : 0]->Add();
  seconds_->Observe(std::chrono::duration<double>(took).count());
}

void CollectReference(const SourceRegistry& sources, metrics::SampleSink& sink) {
  sink.AddGauge("dynamo_kvindexer_models", "Partitions with an index", {},
                static_cast<double>(sources.indexes().size()));
  const auto fleet = sources.catalog().snapshot();
  sink.AddGauge("dynamo_kvindexer_workers", "Registered workers", {},
                static_cast<double>(fleet->workers.size()));
  for (const auto& [status, count] : ListenersByStatus(*fleet)) {
    sink.AddGauge("dynamo_kvindexer_listeners", "Listeners by state",
                  {{"status", std::string(status)}}, count);
  }
}

}  // namespace kvr::service
