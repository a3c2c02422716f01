// What a router is told about its warm start: snapshot, peers, and what waits.
#pragma once

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

}  // namespace kvr::cmd
