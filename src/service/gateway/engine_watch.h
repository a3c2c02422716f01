// Which engines cannot be reached, and when they are back.
#pragma once

#include <atomic>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "fleet/catalog.h"
#include "model/ids.h"
#include "net/http_client.h"
#include "net/task.h"

namespace kvr::service {

// An engine that a request could not reach is down until it answers something, so that not every
// request waits for it first. Thread-safe; while nobody is down nothing locks.
class EngineWatch {
 public:
  struct Options {
    Millis probe_first{500};  // an engine that is down is asked after so long,
    Millis probe_max{8'000};  // then after twice as long, up to this
    Millis probe_timeout{1'000};
  };

  // `catalog`, `client` and `clock` must outlive the watch.
  EngineWatch(const Options& options, const fleet::Catalog& catalog, net::HttpClient& client,
              const Clock& clock)
      : options_(options), catalog_(catalog), client_(client), clock_(clock) {}

  void Failed(WorkerId worker) KVR_EXCLUDES(mutex_);
  void Answered(WorkerId worker) KVR_EXCLUDES(mutex_);
  [[nodiscard]] bool IsDown(WorkerId worker) const KVR_EXCLUDES(mutex_);
  // All ranks of the workers that are down and in `fleet`.
  [[nodiscard]] std::vector<Rank> DownRanks(const fleet::Snapshot& fleet) const
      KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t down() const { return count_.load(std::memory_order_relaxed); }

  // Asks those that are down for GET /health, one after the other, until the task is cancelled. An
  // answer below 500 brings an engine back.
  net::Task<void> Run();

 private:
  struct Down {
    Nanos probe_at{};
    Millis pause{};
  };

  [[nodiscard]] std::vector<WorkerId> Due() const KVR_EXCLUDES(mutex_);
  net::Task<void> Probe(WorkerId id);
  bool Forget(WorkerId worker) KVR_EXCLUDES(mutex_);  // false when it was not down

  const Options options_;
  const fleet::Catalog& catalog_;
  net::HttpClient& client_;
  const Clock& clock_;
  // Relaxed: a request that does not see a failure of this moment just tries for itself.
  std::atomic<std::size_t> count_{0};
  mutable Mutex mutex_;
  std::unordered_map<WorkerId, Down> down_ KVR_GUARDED_BY(mutex_);  // at most one a worker
};

// The ranks of one worker; empty when it is not in `fleet`.
std::vector<Rank> RanksOf(const fleet::Snapshot& fleet, WorkerId worker);

}  // namespace kvr::service
