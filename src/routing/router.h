// One request → the rank that should serve it, booked, with everything needed to explain it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "hashing/block_hash.h"
#include "index/decision_index.h"
#include "load/book_options.h"
#include "load/booking.h"
#include "load/load_book.h"
#include "model/ids.h"
#include "model/overlap.h"
#include "model/rank_state.h"
#include "sched/cost.h"
#include "sched/eligibility.h"
#include "sched/policy.h"

namespace kvr::fleet {
class Catalog;
}
namespace kvr::index {
class IndexSet;
}
namespace kvr::metrics {
class Registry;
}

namespace kvr::routing {

struct RouterOptions {
  sched::PolicyKind policy = sched::PolicyKind::kKv;  // where the request names none
  sched::CostOptions cost;
  load::BookOptions load;
  // Prompt tokens count as load until the answer begins. Off for decode pools.
  bool track_prefill = true;
  // Equal prompts on one rank share their blocks. Off where engines do not cache prefixes.
  bool assume_kv_reuse = true;
  // Most candidates a decision explains: the chosen one, then the cheapest. 0 explains none.
  std::size_t explained_max = 16;
  // Longest prompt; beyond, kTooLarge.
  std::size_t prompt_tokens_max = 4'194'304;
  std::uint64_t seed = 1;  // of tie-breaks and temperature
  // A decision enters its prompt for the chosen rank, to be found by later ones: where the rank has
  // no event source for `approximate_ttl`, where it has one for `speculative_ttl`. 0: not at all.
  Millis approximate_ttl{120'000};
  Millis speculative_ttl{0};
  // Where a rank without event source says how many blocks its engine has (total_kv_blocks), what
  // decisions entered stays as long as such an engine would keep it, instead of approximate_ttl.
  bool approximate_by_capacity = true;
  index::DecisionIndex::Options guesses;  // bounds of those entries, a partition

  [[nodiscard]] Result<void> Validate() const;
};

// All views borrow for the call.
struct RouteRequest {
  std::string_view model_name;
  std::string_view routing_group = "default";
  // Unique among the live bookings of the partition, else kAlreadyExists. Empty: the booking can be
  // reached through the decision alone.
  std::string_view request_id = {};

  // The prompt, as tokens with their identity ...
  std::span<const TokenId> tokens = {};
  std::string_view lora_name = {};
  std::string_view cache_salt = {};
  std::span<const hashing::BlockMm> mm = {};
  // ... or, where `tokens` is empty, hashed by the caller: one sequence hash a block hash, and the
  // length in tokens. Block hashes without sequence hashes are chained here.
  std::span<const BlockHash> block_hashes = {};
  std::span<const SequenceHash> sequence_hashes = {};
  std::uint64_t isl_tokens = 0;

  std::optional<std::uint32_t> expected_output_tokens = {};  // lets booked blocks fade as it nears
  sched::Constraints constraints = {};  // allowed, pinned, excluded (for a retry), taints
  std::optional<sched::PolicyKind> policy = {};
  sched::CostOverrides cost = {};
  // False: advisory. Nothing is booked and no round-robin cursor moves.
  bool reserve = true;
};

// How far the overlap of a decision can be trusted.
enum class CacheView : std::uint8_t {
  kExact,    // every candidate is exact
  kPartial,  // some candidate is known, but not every one exactly
  kNone,     // every candidate is blind: the choice rests on load alone
  kGuessed,  // every candidate is blind, and some has entries of earlier decisions
};
inline constexpr std::array<std::string_view, 4> kCacheViewNames = {"exact", "partial", "none",
                                                                    "guessed"};
constexpr std::string_view CacheViewName(CacheView view) {
  return kCacheViewNames[static_cast<std::size_t>(view)];
}

// What the choice did with the prefix that was there.
enum class Reason : std::uint8_t {
  kLongestPrefix,  // nobody holds more of the prompt
  kShorterPrefix,  // somebody holds more, but costs more or was not what the policy asks for
  kNoPrefix,       // nobody holds any of it
  kPinned,         // the caller chose
};
inline constexpr std::array<std::string_view, 4> kReasonNames = {"longest_prefix", "shorter_prefix",
                                                                 "no_prefix", "pinned"};
constexpr std::string_view ReasonName(Reason reason) {
  return kReasonNames[static_cast<std::size_t>(reason)];
}

// One candidate as the decision saw it.
struct CandidateReport {
  Rank rank;
  RankState state = RankState::kBlind;
  StateReason reason = StateReason::kNone;
  RankOverlap overlap;
  sched::CostTerms cost;
  std::uint64_t active_prefill_tokens = 0;  // before this request
  std::uint32_t active_requests = 0;        // before this request
};

struct Decision {
  Rank rank;
  std::string endpoint;  // base URL of the worker
  // True when the worker has more than one rank, so the engine must be told which.
  bool send_dp_rank = false;

  std::uint32_t block_size = 0;
  std::uint64_t isl_tokens = 0;
  RankOverlap overlap;
  std::uint32_t guessed_blocks = 0;  // of it: known from earlier decisions alone
  // What the engine will reuse: whole blocks, and never the last token of the prompt.
  std::uint64_t predicted_cached_tokens = 0;
  // What the booking counts as prefill: the prompt less the weighted overlap.
  std::uint64_t effective_prefill_tokens = 0;

  sched::PolicyKind policy = sched::PolicyKind::kKv;
  Reason reason = Reason::kNoPrefix;
  CacheView cache_view = CacheView::kNone;
  sched::CostTerms cost;
  std::size_t candidates = 0;              // how many were eligible
  std::vector<CandidateReport> explained;  // at most RouterOptions::explained_max

  load::Booking booking;  // empty when advisory
  // Keeps the entries of a rank whose capacity is known while the request runs.
  index::DecisionIndex::Lease lease;
};

using load::RankLoad;

// Thread-safe: Route may be called from any thread. Hashing and the index run in parallel; scoring
// and booking of one partition are one step under its lock, so that each decision sees the bookings
// of those before it. `catalog`, `indexes`, `clock` and `registry` must outlive the router; the
// router must outlive every Decision.
class Router {
 public:
  // `options` is valid.
  Router(const fleet::Catalog& catalog, const index::IndexSet& indexes, const Clock& clock,
         metrics::Registry& registry, const RouterOptions& options);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // kNotFound         nobody ever served the partition
  // kInvalidArgument  an empty prompt, hashes that do not fit each other, a pin off the allow list
  // kTooLarge         more tokens than prompt_tokens_max
  // kUnavailable      no rank may take it now: none left, excluded, not allowed, taints, no URL
  // kOverloaded       all that could take it are overloaded, or too many bookings
  // kAlreadyExists    the request id is in use
  Result<Decision> Route(const RouteRequest& request);

  // The engine reused `cached_tokens` of the prompt. Once a decision, for the counters.
  void ReportActual(const Decision& decision, std::uint64_t cached_tokens);

  // The load of every rank of a partition, ascending; empty when it is unknown.
  [[nodiscard]] std::vector<RankLoad> Loads(const Partition& partition) const;

  // Frees bookings that expired, takes up what changed in the catalog, and says how many were
  // freed. Call every few seconds.
  std::size_t Sweep();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::routing
