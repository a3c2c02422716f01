// Decides for one partition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/rng.h"
#include "fleet/catalog.h"
#include "index/decision_index.h"
#include "index/side_groups.h"
#include "load/load_book.h"
#include "model/ids.h"
#include "model/overlap.h"
#include "routing/members.h"
#include "routing/prompt.h"
#include "routing/router.h"
#include "sched/cost.h"
#include "sched/policy.h"

namespace kvr::routing {

// Buffers of one decision, kept from one to the next so that a warm router allocates little.
struct Scratch {
  PromptBuffers prompt;
  OverlapScores scores;                      // of the index of events
  OverlapScores guesses;                     // of the index of decisions
  std::vector<RankOverlap> overlaps;         // by member
  std::vector<std::uint32_t> guessed;        // of them known from decisions alone; by member
  std::vector<std::uint32_t> eligible;       // members
  std::vector<sched::Candidate> candidates;  // as `eligible`, and so the rest
  std::vector<sched::CostTerms> costs;
  std::vector<std::uint32_t> order;           // candidates, for explanations
  std::vector<load::Projection> projections;  // by load slot
};

// What a decision says, and what only the counters want to know.
struct Outcome {
  Decision decision;
  std::uint32_t passed_over_blocks = 0;
};

// Thread-safe. Must outlive the bookings and leases of its decisions; `options` and `clock` must
// outlive it.
class PartitionRouter {
 public:
  PartitionRouter(Partition partition, const RouterOptions& options, const Clock& clock);

  [[nodiscard]] const Partition& partition() const { return partition_; }
  [[nodiscard]] const load::LoadBook& book() const { return book_; }

  // The members as of `snapshot`, or as of a newer one that was taken up already.
  std::shared_ptr<const Members> TakeUp(const fleet::Snapshot& snapshot);

  // Scores, picks and books in one step. `scratch.overlaps` says what each of `members` holds of
  // `prompt`. Nothing when the members changed meanwhile: take them up and ask again.
  Result<std::optional<Outcome>> Decide(const RouteRequest& request, const Prompt& prompt,
                                        const std::shared_ptr<const Members>& members,
                                        Scratch& scratch);

  // Takes for each of `members` the longer prefix of `prompt`: that in scratch.overlaps, or what
  // earlier decisions entered. Not for ranks in `hybrid`, whose prefix is no prefix of blocks.
  void AddGuesses(const Members& members, const Prompt& prompt, const index::HybridRanks* hybrid,
                  Scratch& scratch);
  // Enters what the rank of `decision` will hold.
  void Guess(const Members& members, const Prompt& prompt, Decision& decision);
  [[nodiscard]] const index::DecisionIndex& guesses() const { return guesses_; }

  // Frees what expired and returns how many.
  std::size_t Sweep();

  // True when there is no member and nobody holds a booking or lease.
  [[nodiscard]] bool IsIdle() const;

 private:
  struct Choice {
    std::size_t candidate = 0;
    std::uint64_t effective_prefill_tokens = 0;
    load::Booking booking;
  };

  // The part under the lock. False when the members changed.
  Result<bool> Choose(const RouteRequest& request, const Prompt& prompt,
                      const std::shared_ptr<const Members>& members, const sched::CostOptions& cost,
                      const sched::RequestShape& shape, Scratch& scratch, Choice& choice)
      KVR_EXCLUDES(book_.mutex);
  void Explain(const Members& members, std::size_t chosen, Scratch& scratch,
               std::vector<CandidateReport>& explained) const;

  const Partition partition_;
  const RouterOptions& options_;
  const Clock& clock_;
  load::LoadBook book_;
  index::DecisionIndex guesses_;
  std::shared_ptr<const Members> members_ KVR_GUARDED_BY(book_.mutex);
  std::array<std::unique_ptr<sched::Policy>, sched::kPolicyCount> policies_
      KVR_GUARDED_BY(book_.mutex);
  Rng rng_ KVR_GUARDED_BY(book_.mutex);
};

}  // namespace kvr::routing
