// A running router's warm start and snapshots.
#pragma once

#include <memory>

#include "base/clock.h"
#include "cmd/recovery_config.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "metrics/registry.h"
#include "service/recovery/snapshot_writer.h"
#include "service/recovery/stream_start.h"
#include "service/recovery/warm_start.h"

namespace kvr::cmd {

// Both as far as they are configured. Not thread-safe.
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
  // Before the ingest stops, and the HTTP API, which peers' dumps may be asked of.
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
