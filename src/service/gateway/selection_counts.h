// How often each rank was chosen.
#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "fleet/catalog.h"
#include "metrics/registry.h"
#include "model/ids.h"

namespace kvr::service {

// Every attempt of a request counts. Thread-safe.
class SelectionCounts {
 public:
  void Count(Rank rank) KVR_EXCLUDES(mutex_);
  // One sample for each rank of the fleet, so that there are never more series than ranks.
  void Collect(const fleet::Snapshot& fleet, metrics::SampleSink& sink) const KVR_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<Rank, std::uint64_t> counts_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::service
