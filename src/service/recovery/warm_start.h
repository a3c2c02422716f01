// Fetches at start what is known already: from the snapshot of the last run, and from peers.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "metrics/registry.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/peer_dumps.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {

// Reads the snapshot, then asks the peers in order; of each rank the fresher picture is kept
// (Quarantine::Add). Of the peers the first that has anything wins, and if none has, one that
// answered does. With nothing from either the router goes on empty and asks the peers again in the
// background, less and less often. Streams wait for the first round, so that they can begin with
// what is found, but not longer than hold_max, whatever a peer or a disk does. What comes of a rank
// after its stream has begun is passed over; what comes of others waits for them (StreamStart).
//
// Runs on threads of its own. Thread-safe. Logs. Metrics: kvr_recovery_*.
class WarmStart {
 public:
  struct Options {
    std::string snapshot_path;           // empty: none
    Millis snapshot_age_max{3'600'000};  // an older one is refused; 0: none is too old
    DumpReader::Options snapshot_reader;
    PeerDumps::Options peers;    // none when there are no URLs
    Millis hold_max{60'000};     // from construction; then streams begin without what is missing
    Millis ready_wait{30'000};   // likewise; then nothing here speaks against /ready
    Millis settle_max{300'000};  // then settled() no longer waits for registrations
    Millis retry_first{1'000};   // pause after a round in which nobody answered; doubles
    Millis retry_max{30'000};

    [[nodiscard]] bool wanted() const { return !snapshot_path.empty() || !peers.urls.empty(); }
    [[nodiscard]] Result<void> Validate() const;
  };

  // Holds `streams`. They, `registry` and `clock` must outlive the object. `failed` is told, by any
  // thread, of streams that could not begin, see StreamStart::Release.
  WarmStart(StreamStart& streams, metrics::Registry& registry, const Clock& clock,
            StreamStart::Failed failed, const Options& options);
  ~WarmStart();
  WarmStart(const WarmStart&) = delete;
  WarmStart& operator=(const WarmStart&) = delete;

  // Once. With peers after the HTTP API listens, so that one that is this process can answer.
  void Start();
  // Ends what is under way, which is no failure of anybody. Streams that still wait go on waiting.
  // Idempotent.
  void Stop();

  // Why the router should not be asked yet; empty when nothing speaks against it.
  [[nodiscard]] std::string not_ready_reason() const;
  // Whether the snapshot was read to its end and what was found is taken over, or has had its time
  // to be. Until then the indexes may have less than the snapshot.
  [[nodiscard]] bool settled() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
