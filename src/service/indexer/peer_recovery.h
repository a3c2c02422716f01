// Fetches at start what other indexers know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "metrics/registry.h"
#include "service/indexer/dump_reader.h"
#include "service/indexer/source_registry.h"

namespace kvr::service {

// The answer header of /dump that names the process, so that one who asks itself sees it.
inline constexpr std::string_view kInstanceHeader = "x-kvroute-instance";
// A name that no other process has.
std::string MakeInstanceName();

// Asks the peers in order for their dump; the first that has anything wins, and if none has, one
// that answered does. No peer answered: the indexer goes on empty and asks again in the background,
// less and less often. Registered streams wait for the first round, but not longer than hold_max,
// so that they can begin where the peer is.
//
// Runs on a thread of its own. Thread-safe. Logs. Metrics: kvr_indexer_peer_*.
class PeerRecovery {
 public:
  struct Options {
    std::vector<std::string> peers;  // base URLs
    Millis connect_timeout{2'000};
    Millis idle_timeout{10'000};  // longest silence of a peer; there is no limit on the whole
    Millis hold_max{60'000};      // then registered streams begin without the peers
    Millis ready_wait{30'000};    // after it /ready no longer waits for a peer that answers
    Millis retry_first{1'000};    // pause after a round in which nobody answered; doubles
    Millis retry_max{30'000};
    DumpReader::Options reader;

    [[nodiscard]] Result<void> Validate() const;
  };

  // Holds `sources`. They, `registry` and `clock` must outlive the object.
  PeerRecovery(SourceRegistry& sources, metrics::Registry& registry, const Clock& clock,
               std::string instance_name, const Options& options);
  ~PeerRecovery();
  PeerRecovery(const PeerRecovery&) = delete;
  PeerRecovery& operator=(const PeerRecovery&) = delete;

  // Once, after the HTTP API listens.
  void Start();

  // Why the indexer should not be asked yet; empty when nothing speaks against it.
  [[nodiscard]] std::string not_ready_reason() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
