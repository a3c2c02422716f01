// What routing decisions say about caches that no event has told of yet, or ever will.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "index/decision_entries.h"
#include "index/options.h"
#include "index/prefix_index.h"
#include "index/run_arena.h"
#include "model/ids.h"
#include "model/overlap.h"

namespace kvr::index {

// A rank that was given a request will soon hold the blocks of its prompt. Entered here, they are
// found before the engine's own event comes (siblings of a request follow it), and in place of
// events where an engine publishes none. The index of events is another one and is not touched: who
// asks both takes for each rank the longer prefix, and what is real outlives what is guessed.
//
// How long an entry lives:
// * as long as the decisions that had it in their path gave it, each from then on: until the latest
//   of these times, rounded up to `step` unless it is no time at all;
// * where the rank's capacity is set, as long as an engine of that many blocks that evicts the
//   least recently released first would keep it: blocks of a Lease that is not ended are not
//   evicted, and of one lease the deepest go first. Time does not matter then.
// Every decision refreshes its whole path, so a block never outlives those before it.
//
// Thread-safe; Match takes no lock as a rule, see RunArena.
class DecisionIndex {
 public:
  struct Options {
    Nanos step{100'000'000};
    // Entries of one rank whose capacity is not set; beyond it the oldest give way.
    std::uint32_t blocks_max = 1u << 20;
    IndexOptions index;
  };
  struct Stats {
    std::uint64_t ranks = 0;
    std::uint64_t blocks = 0;
    std::uint64_t expired_blocks = 0;  // by time, since the start
    std::uint64_t evicted_blocks = 0;  // by capacity or blocks_max, since the start
    std::uint64_t refused = 0;         // decisions not entered: a limit of the index
    std::uint64_t bytes = 0;           // estimated heap in use
  };

  // The blocks of one running request. Ends when it is destroyed. Must not outlive the index.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { End(); }
    void End();

   private:
    friend class DecisionIndex;
    DecisionIndex* index_ = nullptr;
    std::uint64_t id_ = 0;
  };

  explicit DecisionIndex(const Options& options);
  ~DecisionIndex();
  DecisionIndex(const DecisionIndex&) = delete;
  DecisionIndex& operator=(const DecisionIndex&) = delete;

  // `rank` was given a prompt of `blocks`, whose names in the chain are `sequence`. A `ttl` of 0
  // enters nothing that the next Expire would leave. kInvalidArgument: the lists differ in length;
  // kOverloaded: a limit. Nothing is entered then.
  Result<void> Add(Rank rank, std::span<const BlockHash> blocks,
                   std::span<const SequenceHash> sequence, Nanos now, Nanos ttl)
      KVR_EXCLUDES(mutex_);
  // The same, and the request runs until the lease ends.
  Result<Lease> Acquire(Rank rank, std::span<const BlockHash> blocks,
                        std::span<const SequenceHash> sequence, Nanos now, Nanos ttl)
      KVR_EXCLUDES(mutex_);

  // How many blocks the rank's engine can hold; none: not known. Takes effect at once. Without
  // effect when the index has no room for the rank.
  void SetCapacity(Rank rank, std::optional<std::uint32_t> blocks) KVR_EXCLUDES(mutex_);
  // Drops all entries of the rank, and its capacity. Leases of it end without effect.
  void Forget(Rank rank) KVR_EXCLUDES(mutex_);
  // Forgets every rank that is not in `ranks`, which ascends.
  void ForgetAllBut(std::span<const Rank> ranks) KVR_EXCLUDES(mutex_);
  // Drops what is due; of ranks with a capacity nothing is. One atomic load while nothing can be.
  void Expire(Nanos now) KVR_EXCLUDES(mutex_);

  // As PrefixIndex::Match. Entries count until Expire drops them.
  void Match(std::span<const BlockHash> blocks, OverlapScores& scores) const {
    arena_.Match(blocks, {.device_only = true}, scores);
  }
  [[nodiscard]] bool empty() const { return blocks_.load(std::memory_order_relaxed) == 0; }
  // True while a lease has not ended.
  [[nodiscard]] bool has_leases() const KVR_EXCLUDES(mutex_);
  [[nodiscard]] Stats stats() const KVR_EXCLUDES(mutex_);

 private:
  struct RankState {
    RankState(Rank rank_in, RankSlot slot_in, std::uint64_t incarnation_in, std::uint64_t seed)
        : rank(rank_in), slot(slot_in), incarnation(incarnation_in), entries(seed) {}

    const Rank rank;
    const RankSlot slot;
    const std::uint64_t incarnation;  // tells a rank from one that was forgotten
    DecisionEntries entries;
    std::optional<std::uint32_t> capacity;
  };
  struct RunningRequest {
    Rank rank;
    std::uint64_t incarnation = 0;
    std::vector<SequenceHash> path;
  };

  Result<RankState*> FindOrAdd(Rank rank) KVR_REQUIRES(mutex_);
  Result<RankState*> Enter(Rank rank, std::span<const BlockHash> blocks,
                           std::span<const SequenceHash> sequence, Nanos now, Nanos ttl, bool hold)
      KVR_REQUIRES(mutex_);
  void End(std::uint64_t lease) KVR_EXCLUDES(mutex_);
  void NoteDue(const RankState& rank) KVR_REQUIRES(mutex_);
  void EvictOverflow(RankState& rank) KVR_REQUIRES(mutex_);
  // Takes the blocks named in gone_ from the rank; how many.
  std::uint64_t RemoveGone(RankState& rank) KVR_REQUIRES(mutex_);
  void Drop(RankState& rank) KVR_REQUIRES(mutex_);

  const Options options_;
  RunArena arena_;
  std::atomic<std::uint64_t> blocks_{0};
  std::atomic<Nanos::rep> next_due_;  // nothing is due before
  mutable Mutex mutex_;
  std::map<Rank, std::unique_ptr<RankState>> ranks_ KVR_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, RunningRequest> running_ KVR_GUARDED_BY(mutex_);
  std::uint64_t leases_ KVR_GUARDED_BY(mutex_) = 0;        // given since the start
  std::uint64_t incarnations_ KVR_GUARDED_BY(mutex_) = 0;  // likewise
  std::vector<EngineHash> gone_ KVR_GUARDED_BY(mutex_);    // reused
  std::vector<PlacedBlock> placed_ KVR_GUARDED_BY(mutex_);
  std::uint64_t expired_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t evicted_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t refused_ KVR_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvr::index
