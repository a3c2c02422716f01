// The reference indexer's own metric names, beside ours.
#pragma once

#include <array>
#include <string>

#include "base/clock.h"
#include "metrics/registry.h"
#include "service/indexer/source_registry.h"

namespace kvr::service {

// dynamo_kvindexer_* of one route. Default-made it counts nothing.
class ReferenceRoute {
 public:
  ReferenceRoute() = default;
  ReferenceRoute(metrics::Registry& registry, const std::string& method,
                 const std::string& endpoint);

  void Count(Nanos took, int status) const;

 private:
  metrics::Counter* requests_ = nullptr;
  std::array<metrics::Counter*, 2> errors_{};  // 4xx, 5xx
  metrics::Histogram* seconds_ = nullptr;
};

// One request of a route: counted when it ends, however it ends.
class ReferenceRecord {
 public:
  // All must outlive the record; `status` is read at its end.
  ReferenceRecord(const ReferenceRoute& route, const Clock& clock, const int& status)
      : route_(route), clock_(clock), status_(status), begun_(clock.Now()) {}
  ~ReferenceRecord() { route_.Count(clock_.Now() - begun_, status_); }
  ReferenceRecord(const ReferenceRecord&) = delete;
  ReferenceRecord& operator=(const ReferenceRecord&) = delete;

 private:
  const ReferenceRoute& route_;
  const Clock& clock_;
  const int& status_;
  const Nanos begun_;
};

// The gauges: partitions, workers, listeners by status.
void CollectReference(const SourceRegistry& sources, metrics::SampleSink& sink);

}  // namespace kvr::service
