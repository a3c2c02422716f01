// Writes what the router knows to disk, again and again, for its next start.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "metrics/registry.h"

namespace kvr::service {

// A file in the form of docs/dump-format.md, at most one rank's blocks in memory, on a thread of
// its own. What goes wrong is counted, logged now and then, and tried again at the next turn; the
// file that is there stays. Of processes that share a path the first writes; another takes its
// place when that one is gone.
//
// Thread-safe. Logs. Metrics: kvr_snapshot_*.
class SnapshotWriter {
 public:
  struct Options {
    std::string path;
    Millis interval{60'000};

    [[nodiscard]] Result<void> Validate() const;
  };
  struct Parts {
    const index::IndexSet& indexes;
    const fleet::Catalog& catalog;
    metrics::Registry& registry;
    const Clock& clock;
    // Whether the indexes have what the file of the last run had, so that it may be replaced.
    std::function<bool()> recovered;
  };

  // All must outlive the object.
  SnapshotWriter(const Parts& parts, const Options& options);
  ~SnapshotWriter();  // Stop()
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // Once.
  void Start();
  // Breaks off what is being written, writes a last time and ends. Idempotent.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
