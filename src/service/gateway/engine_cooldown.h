// Which engines are better left alone for a while.
#pragma once

#include <atomic>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "fleet/catalog.h"
#include "model/ids.h"

namespace kvr::service {

// Remembers engines that could not be reached, so that not every request waits for them first. Each
// further failure doubles the pause; an answer ends it. Thread-safe; without a failure nothing
// locks.
class EngineCooldown {
 public:
  struct Options {
    Millis first{500};
    Millis longest{8'000};
  };

  EngineCooldown(const Options& options, const Clock& clock) : options_(options), clock_(clock) {}

  void Failed(WorkerId worker) KVR_EXCLUDES(mutex_);
  void Answered(WorkerId worker) KVR_EXCLUDES(mutex_);
  [[nodiscard]] bool IsPaused(WorkerId worker) const KVR_EXCLUDES(mutex_);
  // All ranks of the paused workers that are in `fleet`.
  [[nodiscard]] std::vector<Rank> PausedRanks(const fleet::Snapshot& fleet) const
      KVR_EXCLUDES(mutex_);

 private:
  struct Pause {
    Nanos until{};
    Millis length{};
  };

  const Options options_;
  const Clock& clock_;
  // Relaxed: a request that does not see a failure of this moment just tries for itself.
  std::atomic<std::size_t> count_{0};
  mutable Mutex mutex_;
  std::unordered_map<WorkerId, Pause> pauses_ KVR_GUARDED_BY(mutex_);  // at most one a worker
};

// The ranks of one worker; empty when it is not in `fleet`.
std::vector<Rank> RanksOf(const fleet::Snapshot& fleet, WorkerId worker);

}  // namespace kvr::service
