// What a router is told about its warm start: snapshot, peers, and what waits.
#pragma once

#include <memory>

#include "base/result.h"
#include "service/recovery/quarantine.h"
#include "service/recovery/snapshot_writer.h"
#include "service/recovery/warm_start.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct RecoveryConfig {
  service::WarmStart::Options start;
  service::SnapshotWriter::Options snapshot;  // none when its path is empty
  service::Quarantine::Options quarantine;

  // The sections snapshot and recovery.
  void Bind(config::OptionTable& table);

  // After loading: splits lists that were given in one word, gives the process its name and checks
  // everything. kInvalidArgument.
  Result<void> Finish();
};

// The parts of a running router that these make, in the order in which they are needed.
class Recovery {
 public:
  struct Parts {
    service::StreamStart& streams;
    const index::IndexSet& indexes;
    const fleet::Catalog& catalog;
    metrics::Registry& registry;
    const Clock& clock;
    service::StreamStart::Failed failed;  // see WarmStart
  };

  // From now on streams wait, if there is something to begin with. All must outlive the object.
  Recovery(const Parts& parts, const RecoveryConfig& config);

  // Once the HTTP API listens.
  void Start();
  // Before the ingest stops.
  void StopReading();
  // After it has stopped: the last snapshot is written.
  void StopWriting();

  // Null when there is nothing to begin with.
  [[nodiscard]] const service::WarmStart* warm() const { return warm_.get(); }

 private:
  std::unique_ptr<service::WarmStart> warm_;
  std::unique_ptr<service::SnapshotWriter> writer_;  // asks warm_
};

}  // namespace kvr::cmd
