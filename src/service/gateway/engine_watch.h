// Which engines can be reached, found out without a request.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "fleet/catalog.h"
#include "model/ids.h"
#include "net/http_client.h"
#include "net/task.h"

namespace kvr::service {

// Asks engines for GET /health: each when it is new, every `probe_interval` while it answers, and
// with growing pauses while it is down. An answer below 500 says that it can be reached. It is down
// when there is no connection, at a status of 500 and above, and when it was silent `silent_max`
// times in a row: a busy engine may be slow once. A request that could not reach it says the same
// at once. Those that are down get no requests while another one is left.
//
// Thread-safe; a request locks nothing while all engines are up.
class EngineWatch {
 public:
  struct Options {
    Millis probe_first{500};  // an engine that is down is asked after so long,
    Millis probe_max{8'000};  // then after twice as long, up to this
    // Longer than a connection may take to be made, so that what stays silent was reached.
    Millis probe_timeout{3'000};
    Millis probe_interval{5'000};  // between two questions to one that answers; 0: none
    std::size_t silent_max = 3;
  };
  // Tasks of Run() that share the work, so that engines that do not answer hold up only so many.
  static constexpr std::size_t kProbers = 8;

  enum class Probed : std::uint8_t {
    kAnswered,
    kFailed,
    kSilent,
    kNotAsked,  // for want of descriptors, memory or ports of ours: it says nothing
  };

  // `catalog`, `client` and `clock` must outlive the watch.
  EngineWatch(const Options& options, const fleet::Catalog& catalog, net::HttpClient& client,
              const Clock& clock)
      : options_(options), catalog_(catalog), client_(client), clock_(clock) {}

  // What a request found out; `why` is for people.
  void Failed(WorkerId worker, std::string_view why) KVR_EXCLUDES(mutex_);
  void Answered(WorkerId worker) KVR_EXCLUDES(mutex_);

  // Asks the engine at the next occasion: something about it is suspicious.
  void ProbeSoon(WorkerId worker) KVR_EXCLUDES(mutex_);

  // Why the worker could not be reached when last tried; none when it is not down.
  [[nodiscard]] std::optional<std::string> DownReason(WorkerId worker) const KVR_EXCLUDES(mutex_);
  // All ranks of the workers that are down and in `fleet`.
  [[nodiscard]] std::vector<Rank> DownRanks(const fleet::Snapshot& fleet) const
      KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t down() const { return down_.load(std::memory_order_relaxed); }
  // How many of the workers in `fleet` answered when last tried, and how many were never tried.
  struct Reach {
    std::size_t up = 0;
    std::size_t untried = 0;
  };
  [[nodiscard]] Reach ReachOf(const fleet::Snapshot& fleet) const KVR_EXCLUDES(mutex_);

  // Asks until the task is cancelled. kProbers of them may run at once.
  net::Task<void> Run();

  // The parts of Run(): the next engine whose turn it is, which nobody else gets meanwhile, and
  // what came of asking it. `why` it did not answer is for people.
  [[nodiscard]] std::optional<WorkerId> Claim() KVR_EXCLUDES(mutex_);
  void Settle(WorkerId worker, Probed probed, std::string_view why = {}) KVR_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { kUntried, kUp, kDown };
  struct Engine {
    State state = State::kUntried;
    bool claimed = false;
    Nanos probe_at{};  // zero: at once
    Millis pause{};    // of one that is down
    std::size_t silent = 0;
    std::string why;  // it is down
  };

  net::Task<void> Probe(WorkerId id);
  void FollowCatalog() KVR_REQUIRES(mutex_);
  // True when it was not down before.
  bool SetDown(Engine& engine, Nanos now, std::string_view why) KVR_REQUIRES(mutex_);
  [[nodiscard]] std::string UrlOf(WorkerId worker) const;
  [[nodiscard]] Nanos NextOfOneThatIsUp(Nanos now) const;
  void Count() KVR_REQUIRES(mutex_);

  const Options options_;
  const fleet::Catalog& catalog_;
  net::HttpClient& client_;
  const Clock& clock_;
  // Relaxed: a request that does not see a failure of this moment just tries for itself.
  std::atomic<std::size_t> down_{0};
  std::atomic<std::size_t> not_up_{0};  // down or untried
  mutable Mutex mutex_;
  std::optional<std::uint64_t> version_ KVR_GUARDED_BY(mutex_);          // of the catalog
  std::unordered_map<WorkerId, Engine> engines_ KVR_GUARDED_BY(mutex_);  // one a worker
};

// The ranks of one worker; empty when it is not in `fleet`.
std::vector<Rank> RanksOf(const fleet::Snapshot& fleet, WorkerId worker);

}  // namespace kvr::service
