// Merges events that can be told as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "publish/mutation.h"

namespace kvr::publish {

// Holds back at most one event, the pending one, and appends to it what follows: a store to a store
// when it goes on where that ended, a removal to a removal. What has another rank, tier, domain,
// session or eligibility than the pending event, is of another kind or breaks the chain, ends it.
// The first event's parent, start position and flags are kept.
//
// A clear is a barrier: it hands on what is pending, then itself. An event is never split, so that
// one may come out with more than `blocks_max`. Stores and removals of nothing are dropped: they
// say nothing, and merging one would join chains that have nothing to do with each other.
//
// Without a time-out an event is pending no longer than the list it came in. With one, lists are
// merged too: what is pending goes out once nothing has gone out for so long, so that the first
// event after a pause is not held back.
//
// Not thread-safe. Allocates nothing once warm.
class Coalescer {
 public:
  static constexpr Millis kTimeoutMax{15'000};

  struct Options {
    std::size_t blocks_max = 128;  // an event that has so many is pending no longer
    Millis timeout{0};             // longer ones than kTimeoutMax count as that

    [[nodiscard]] Result<void> Validate() const;
  };

  struct Stats {
    std::uint64_t taken = 0;    // events pushed, empty ones too
    std::uint64_t empty = 0;    // ... that were dropped for it
    std::uint64_t emitted = 0;  // events handed on
  };

  // `out` must outlive the coalescer and is called from within the calls below.
  Coalescer(const Options& options, MutationSink& out);

  // The next event of a list.
  void Push(const Mutation& mutation, Nanos now);
  // The list is over.
  void EndList(Nanos now);
  // Call when `deadline` has passed.
  void OnTick(Nanos now);
  // Hands on what is pending, whatever the time.
  void Flush(Nanos now);

  // When what is pending is due; none while nothing is, or while a list is under way.
  [[nodiscard]] std::optional<Nanos> deadline() const;
  [[nodiscard]] bool pending() const { return has_pending_; }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  [[nodiscard]] bool Continues(const Mutation& next) const;
  [[nodiscard]] std::size_t pending_blocks() const { return blocks_.size() + removed_.size(); }
  void Keep(const Mutation& mutation);
  void Append(const Mutation& mutation);
  void Emit(const Mutation& mutation, Nanos now);

  const std::size_t blocks_max_;
  const Nanos timeout_;
  MutationSink& out_;
  Stats stats_;
  Nanos last_out_{0};

  bool has_pending_ = false;
  Mutation pending_;  // its spans and session are those below
  std::vector<PlacedBlock> blocks_;
  std::vector<EngineHash> removed_;
  std::string session_;
};

}  // namespace kvr::publish
