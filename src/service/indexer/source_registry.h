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
#include "ingest/ingest.h"
#include "model/ids.h"
#include "service/indexer/quarantine.h"
#include "service/indexer/recovered_rank.h"

namespace kvr::service {

// Registers ranks with the catalog, their partition's index and the ingest, all three or none.
//
// What a peer knew of a rank is taken over when the rank's stream begins, and never later: a rank
// that has events of its own is not touched. It goes on from the peer's watermark. Until a rank is
// registered its blocks are in quarantine.
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
    Quarantine::Options quarantine;
  };

  struct Request {
    Rank rank;
    Partition partition;
    fleet::EventSource source;
    std::uint32_t block_size = 0;
    bool replace = false;  // a rank registered with another source takes the new one
  };

  // All must outlive the registry.
  SourceRegistry(fleet::Catalog& catalog, index::IndexSet& indexes, ingest::Ingest& ingest,
                 const Clock& clock, const Options& options);

  // True when the rank is new or was replaced, false when it is registered exactly like this.
  // kInvalidArgument, kAlreadyExists, kOverloaded with the texts of the catalog and of ingest.
  Result<bool> Register(const Request& request) KVR_EXCLUDES(changes_, mutex_);

  // Removes one rank, or all ranks of the worker when `dp_rank` is none. After the return no event
  // of them changes anything. `routing_group` none: whatever group the worker is in. kNotFound.
  Result<void> Unregister(WorkerId worker, std::string_view model_name,
                          std::optional<std::string_view> routing_group,
                          std::optional<std::uint32_t> dp_rank) KVR_EXCLUDES(changes_, mutex_);

  // From now on until Release ranks are registered, but their streams wait, so that they can begin
  // with what a peer knows. Before the first Register.
  void Hold() KVR_EXCLUDES(changes_);
  void Release() KVR_EXCLUDES(changes_, mutex_);

  // Keeps what a peer knew for ranks whose stream has not begun; how many ranks were passed over
  // because theirs has. kAlreadyExists when the partition has another block size here, kTooLarge.
  Result<std::size_t> Recover(RecoveredPartition partition) KVR_EXCLUDES(changes_, mutex_);
  // Drops recovered blocks whose rank was not registered within the grace period; how many ranks.
  // None while registered ranks are held: their blocks wait for nobody.
  std::size_t DropUnclaimed() KVR_EXCLUDES(changes_, mutex_);

  struct RecoveryStats {
    std::size_t waiting_ranks = 0;  // in quarantine
    std::size_t waiting_blocks = 0;
    std::uint64_t adopted_ranks = 0;
    std::uint64_t expired_ranks = 0;
  };
  [[nodiscard]] RecoveryStats recovery_stats() const KVR_EXCLUDES(mutex_);

  // The partition's index; kNotFound "no indexer for model=M routing_group=G".
  Result<std::shared_ptr<index::PartitionIndex>> FindIndex(const Partition& partition)
      KVR_EXCLUDES(mutex_);

  [[nodiscard]] const fleet::Catalog& catalog() const { return catalog_; }
  [[nodiscard]] const index::IndexSet& indexes() const { return indexes_; }

 private:
  // Registered, not yet followed.
  struct Held {
    Request request;
    Nanos registered{0};
  };

  // Begins to follow the rank, which the catalog has, or holds it.
  Result<void> Enter(const Request& request) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  // The partition's index; from now on FindIndex does not remove it.
  Result<std::shared_ptr<index::PartitionIndex>> IndexFor(const Request& request)
      KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  Result<void> Follow(const Held& held) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  // Applies the rank's recovered blocks, if there are any. Its stream has not begun.
  std::optional<ingest::SourceSpec::Recovered> Adopt(Rank rank, Nanos registered,
                                                     index::PartitionIndex& index)
      KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  void Drop(Rank rank) KVR_REQUIRES(changes_);
  void NoteIfEmpty(const Partition& partition) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);

  fleet::Catalog& catalog_;
  index::IndexSet& indexes_;
  ingest::Ingest& ingest_;
  const Clock& clock_;
  const Options options_;
  Mutex changes_;  // held as long as a change takes; before mutex_
  bool holding_ KVR_GUARDED_BY(changes_) = false;
  std::map<Rank, Held> held_ KVR_GUARDED_BY(changes_);
  mutable Mutex mutex_;  // held for moments
  Quarantine quarantine_ KVR_GUARDED_BY(mutex_);
  std::uint64_t adopted_ranks_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t expired_ranks_ KVR_GUARDED_BY(mutex_) = 0;
  std::map<Partition, Nanos> empty_since_ KVR_GUARDED_BY(mutex_);
  std::atomic<std::size_t> empty_partitions_{0};  // lets FindIndex skip the lock
};

}  // namespace kvr::service
