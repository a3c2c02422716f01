// Which event sources the indexer follows, and what it knows through them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "model/ids.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {

// Registers ranks with the catalog, their partition's index and the ingest, all three or none.
// With what a stream begins: StreamStart. Ranks of a worker that publish at one endpoint, and under
// one topic, publish one stream, which is read in one way: with one replay endpoint, engine and so
// on.
//
// Thread-safe. Changes are serialised, and one that takes over or drops many blocks takes long: it
// does not belong on an I/O thread. Reading waits for no change; it goes to the catalog and the
// indexes directly.
class SourceRegistry {
 public:
  struct Options {
    // How long the empty index of a partition answers after its last worker left; then the
    // partition is unknown.
    Millis partition_grace{60'000};
  };

  struct Request {
    Rank rank;
    Partition partition;
    fleet::EventSource source;
    std::uint32_t block_size = 0;
    bool replace = false;  // a rank registered with another source takes the new one
  };

  // All must outlive the registry.
  SourceRegistry(fleet::Catalog& catalog, index::IndexSet& indexes, StreamStart& streams,
                 const Clock& clock, const Options& options);

  // True when the rank is new or was replaced, false when it is registered exactly like this.
  // kInvalidArgument, kAlreadyExists, kOverloaded with the texts of the catalog and of ingest.
  // kAlreadyExists, too, when another rank of the worker has the stream read in another way.
  Result<bool> Register(const Request& request) KVR_EXCLUDES(changes_, mutex_);

  // Removes one rank, or all ranks of the worker when `dp_rank` is none. After the return no event
  // of them changes anything. `routing_group` none: whatever group the worker is in. kNotFound.
  Result<void> Unregister(WorkerId worker, std::string_view model_name,
                          std::optional<std::string_view> routing_group,
                          std::optional<std::uint32_t> dp_rank) KVR_EXCLUDES(changes_, mutex_);

  // For StreamStart::Release: a rank whose stream could not begin is unregistered again.
  void Withdraw(Rank rank, const Error& why) KVR_EXCLUDES(changes_, mutex_);

  // The partition's index; kNotFound "no indexer for model=M routing_group=G".
  Result<std::shared_ptr<index::PartitionIndex>> FindIndex(const Partition& partition)
      KVR_EXCLUDES(mutex_);

  // Removes the empty indexes whose grace is over. Changes and FindIndex do, too; whoever lists the
  // indexes calls it before. One atomic load while there is none.
  void RemoveExpired() KVR_EXCLUDES(mutex_);

  [[nodiscard]] const fleet::Catalog& catalog() const { return catalog_; }
  [[nodiscard]] const index::IndexSet& indexes() const { return indexes_; }

 private:
  // The partition's index; from now on RemoveExpired leaves it.
  Result<std::shared_ptr<index::PartitionIndex>> IndexFor(const Request& request)
      KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  Result<void> Follow(const Request& request) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  void Drop(Rank rank) KVR_REQUIRES(changes_);
  void NoteIfEmpty(const Partition& partition) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);

  fleet::Catalog& catalog_;
  index::IndexSet& indexes_;
  StreamStart& streams_;
  const Clock& clock_;
  const Options options_;
  Mutex changes_;        // held as long as a change takes; before mutex_
  mutable Mutex mutex_;  // held for moments
  std::map<Partition, Nanos> empty_since_ KVR_GUARDED_BY(mutex_);
  std::atomic<Nanos::rep>
      next_expiry_;  // no grace is over before; lets RemoveExpired skip the lock
};

}  // namespace kvr::service
