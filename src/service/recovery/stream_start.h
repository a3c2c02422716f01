// Where event streams begin: with what somebody else knew of their ranks, or with nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "model/ids.h"
#include "service/recovery/quarantine.h"
#include "service/recovery/recovered_rank.h"

namespace kvr::service {

// Follows event streams through the ingest. What a peer or a snapshot knew of a stream's ranks is
// taken over when the stream begins, and never later: a rank that has events of its own is not
// touched. The stream goes on from the watermark. What belongs to no stream waits in quarantine.
//
// Ranks of a worker that are added with the same event source publish through one stream, which is
// followed once for all of them.
//
// While it holds, streams are accepted and wait, so that they can begin with what is being fetched.
//
// Thread-safe. Changes are serialised, and one that takes over or drops many blocks takes long: it
// does not belong on an I/O thread.
class StreamStart {
 public:
  // All must outlive the object.
  StreamStart(const fleet::Catalog& catalog, const index::IndexSet& indexes, ingest::Ingest& ingest,
              const Clock& clock, const Quarantine::Options& options);

  // As Ingest::Add or, beside a rank with the same source, Ingest::Join; at once or at Release. The
  // ranks are in the catalog.
  Result<void> Add(ingest::SourceSpec spec, std::shared_ptr<index::PartitionIndex> index,
                   std::shared_ptr<fleet::RankHealth> health) KVR_EXCLUDES(changes_, mutex_);
  // As Ingest::Remove, also of a stream that waits.
  void Remove(Rank rank) KVR_EXCLUDES(changes_);

  // From now on until Release streams wait. Before the first Add.
  void Hold() KVR_EXCLUDES(changes_);
  // Begins with those that wait. `failed` is told whose could not begin; it may call Remove.
  using Failed = std::function<void(Rank rank, const Error& why)>;
  void Release(const Failed& failed) KVR_EXCLUDES(changes_, mutex_);

  // Keeps what somebody knew for ranks whose stream has not begun; how many ranks were passed over
  // because theirs has. kAlreadyExists when the partition has another block size here, kTooLarge.
  Result<std::size_t> Recover(RecoveredPartition partition) KVR_EXCLUDES(changes_, mutex_);
  // Drops recovered blocks whose rank was not registered within the grace period; how many ranks.
  // None while streams wait: their blocks wait for nobody.
  std::size_t DropUnclaimed() KVR_EXCLUDES(changes_, mutex_);

  struct Stats {
    std::size_t waiting_ranks = 0;  // in quarantine
    std::size_t waiting_blocks = 0;
    std::uint64_t adopted_ranks = 0;
    std::uint64_t expired_ranks = 0;
  };
  [[nodiscard]] Stats stats() const KVR_EXCLUDES(mutex_);

 private:
  struct Stream {
    ingest::SourceSpec spec;
    std::shared_ptr<index::PartitionIndex> index;
    std::shared_ptr<fleet::RankHealth> health;
    Nanos added{0};
  };

  // A waiting stream of the worker with this source, or null.
  Stream* FindHeld(WorkerId worker, const fleet::EventSource& source) KVR_REQUIRES(changes_);
  // A rank of the worker that is followed through this source.
  std::optional<Rank> FindFollowed(WorkerId worker, const fleet::EventSource& source)
      KVR_REQUIRES(changes_);
  void RemoveHeld(Rank rank) KVR_REQUIRES(changes_);
  static std::vector<Rank> RanksOf(const ingest::SourceSpec& spec);
  Result<void> Follow(Stream stream) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  // Drops what the index holds of a rank that is not followed.
  static void Forget(Rank rank, index::PartitionIndex& index);
  // One rank through the stream of `of`.
  Result<void> Join(Rank of, Stream stream) KVR_REQUIRES(changes_) KVR_EXCLUDES(mutex_);
  // Enters what is known of the stream's ranks; none when nothing is.
  std::optional<ingest::SourceSpec::Recovered> Adopt(const Stream& stream) KVR_REQUIRES(changes_)
      KVR_EXCLUDES(mutex_);
  // None when nothing is known.
  std::optional<RecoveredRank> AdoptRank(Rank rank, const Stream& stream) KVR_REQUIRES(changes_)
      KVR_EXCLUDES(mutex_);

  const fleet::Catalog& catalog_;
  const index::IndexSet& indexes_;
  ingest::Ingest& ingest_;
  const Clock& clock_;
  Mutex changes_;  // held as long as a change takes; before mutex_
  bool holding_ KVR_GUARDED_BY(changes_) = false;
  std::map<Rank, Stream> held_ KVR_GUARDED_BY(changes_);  // by Stream::spec.rank
  std::map<Rank, fleet::EventSource> followed_ KVR_GUARDED_BY(changes_);
  mutable Mutex mutex_;  // held for moments
  Quarantine quarantine_ KVR_GUARDED_BY(mutex_);
  std::uint64_t adopted_ranks_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t expired_ranks_ KVR_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvr::service
