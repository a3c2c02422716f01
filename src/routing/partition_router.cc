#include "routing/partition_router.h"

#include <algorithm>
#include <utility>

#include "hashing/xxh3.h"

namespace kvr::routing {
namespace {

void FillCandidates(const sched::Constraints& constraints, const Members& members,
                    Scratch& scratch) {
  scratch.candidates.clear();
  const bool prefers = !constraints.preferred_taints.empty();
  for (const std::uint32_t i : scratch.eligible) {
    const auto& blocks = scratch.overlaps[i].blocks;
    // Filled where it stands: to copy what was just written field by field would stall.
    sched::Candidate& candidate = scratch.candidates.emplace_back();
    candidate.rank = members.hosts[i].rank;
    candidate.device = blocks[static_cast<std::size_t>(Tier::kDevice)];
    candidate.host = blocks[static_cast<std::size_t>(Tier::kHostPinned)];
    candidate.disk = blocks[static_cast<std::size_t>(Tier::kDisk)] +
                     blocks[static_cast<std::size_t>(Tier::kExternal)];
    if (prefers) candidate.taint_weight = sched::PreferredWeight(constraints, members.hosts[i]);
  }
}

CacheView ViewOf(const Members& members, const Scratch& scratch) {
  const auto& eligible = scratch.eligible;
  std::size_t exact = 0;
  std::size_t blind = 0;
  for (const std::uint32_t i : eligible) {
    const RankState state = members.members[i].health->status().state;
    exact += state == RankState::kExact ? 1u : 0u;
    blind += state == RankState::kBlind ? 1u : 0u;
  }
  if (blind == eligible.size()) {
    const bool guessed = std::any_of(eligible.begin(), eligible.end(),
                                     [&](std::uint32_t i) { return scratch.guessed[i] > 0; });
    return guessed ? CacheView::kGuessed : CacheView::kNone;
  }
  return exact == eligible.size() ? CacheView::kExact : CacheView::kPartial;
}

Reason ReasonFor(const sched::Constraints& constraints, std::uint32_t chosen, std::uint32_t best) {
  if (constraints.pinned) return Reason::kPinned;
  if (best == 0) return Reason::kNoPrefix;
  return chosen == best ? Reason::kLongestPrefix : Reason::kShorterPrefix;
}

// Engines reuse whole blocks and compute at least the last token of a prompt.
std::uint64_t ReusedTokens(const RankOverlap& overlap, const Prompt& prompt,
                           std::uint32_t block_size) {
  const std::uint64_t most = (prompt.isl_tokens - 1) / block_size;
  return std::min<std::uint64_t>(overlap.depth(), most) * block_size;
}

}  // namespace

PartitionRouter::PartitionRouter(Partition partition, const RouterOptions& options,
                                 const Clock& clock)
    : partition_(std::move(partition)),
      options_(options),
      clock_(clock),
      book_(clock, options.load),
      guesses_(options.guesses),
      members_(std::make_shared<const Members>()),
      // Each partition has its own sequence, whatever the others do.
      rng_(hashing::Xxh3(partition_.model_name, options.seed) ^
           hashing::Xxh3(partition_.routing_group, options.seed + 1)) {
  for (std::size_t i = 0; i < policies_.size(); ++i)
    policies_[i] = sched::MakePolicy(static_cast<sched::PolicyKind>(i));
}

std::shared_ptr<const Members> PartitionRouter::TakeUp(const fleet::Snapshot& snapshot) {
  const Lock lock(book_.mutex);
  if (members_->version < snapshot.version)
    members_ = routing::TakeUp(snapshot, partition_, *members_, book_);
  return members_;
}

Result<std::optional<Outcome>> PartitionRouter::Decide(
    const RouteRequest& request, const Prompt& prompt,
    const std::shared_ptr<const Members>& members, Scratch& scratch) {
  KVR_TRY_VOID(sched::FindEligible(request.constraints, members->hosts, scratch.eligible));
  FillCandidates(request.constraints, *members, scratch);
  const sched::CostOptions cost = request.cost.Over(options_.cost);
  KVR_TRY_VOID(cost.Validate());
  const sched::RequestShape shape{.isl_tokens = prompt.isl_tokens,
                                  .block_size = members->block_size,
                                  .track_prefill = options_.track_prefill};
  Choice choice;
  KVR_TRY(const bool current, Choose(request, prompt, members, cost, shape, scratch, choice));
  if (!current) return std::optional<Outcome>{};

  const std::uint32_t member = scratch.eligible[choice.candidate];
  std::uint32_t best = 0;
  for (const std::uint32_t i : scratch.eligible)
    best = std::max(best, scratch.overlaps[i].depth());
  const RankOverlap& overlap = scratch.overlaps[member];
  std::optional<Outcome> outcome(std::in_place);
  outcome->passed_over_blocks = best - overlap.depth();
  Decision& decision = outcome->decision;
  decision.rank = members->hosts[member].rank;
  decision.endpoint = members->members[member].url;
  decision.send_dp_rank = members->members[member].has_siblings;
  decision.block_size = members->block_size;
  decision.isl_tokens = prompt.isl_tokens;
  decision.overlap = overlap;
  decision.guessed_blocks = scratch.guessed[member];
  decision.predicted_cached_tokens = ReusedTokens(overlap, prompt, members->block_size);
  decision.effective_prefill_tokens = choice.effective_prefill_tokens;
  decision.policy = request.policy.value_or(options_.policy);
  decision.reason = ReasonFor(request.constraints, overlap.depth(), best);
  decision.cache_view = ViewOf(*members, scratch);
  decision.cost = scratch.costs[choice.candidate];
  decision.candidates = scratch.candidates.size();
  decision.booking = std::move(choice.booking);
  Explain(*members, choice.candidate, scratch, decision.explained);
  return outcome;
}

Result<bool> PartitionRouter::Choose(const RouteRequest& request, const Prompt& prompt,
                                     const std::shared_ptr<const Members>& members,
                                     const sched::CostOptions& cost,
                                     const sched::RequestShape& shape, Scratch& scratch,
                                     Choice& choice) {
  const Lock lock(book_.mutex);
  if (members_ != members) return false;

  const bool share = options_.assume_kv_reuse;
  const auto slot_of = [&](std::size_t candidate) {
    return members->members[scratch.eligible[candidate]].slot;
  };
  book_.Project(share ? prompt.sequence : std::span<const SequenceHash>{}, scratch.projections);
  for (std::size_t i = 0; i < scratch.candidates.size(); ++i) {
    const load::Projection& now = scratch.projections[Raw(slot_of(i))];
    sched::Candidate& candidate = scratch.candidates[i];
    candidate.active_prefill = now.active_prefill_tokens;
    candidate.decode_blocks = now.active_blocks + prompt.sequence.size() - now.shared_blocks;
    candidate.active_requests = now.active_requests;
  }
  sched::CostAll(cost, shape, scratch.candidates, scratch.costs);

  sched::Policy& policy =
      *policies_[static_cast<std::size_t>(request.policy.value_or(options_.policy))];
  choice.candidate = policy.Pick(cost, scratch.candidates, scratch.costs, rng_);
  const std::uint64_t cached =
      sched::CachedTokens(cost, shape, scratch.candidates[choice.candidate]);
  choice.effective_prefill_tokens = prompt.isl_tokens - std::min(cached, prompt.isl_tokens);
  if (!request.reserve) return true;

  KVR_TRY(
      choice.booking,
      book_.Reserve(slot_of(choice.candidate),
                    {.request_id = request.request_id,
                     .path = prompt.sequence,
                     .share_blocks = share,
                     .block_size = shape.block_size,
                     .isl_tokens = prompt.isl_tokens,
                     .prefill_tokens = options_.track_prefill ? choice.effective_prefill_tokens : 0,
                     .expected_output = request.expected_output_tokens}));
  if (!request.constraints.pinned) policy.Booked(scratch.candidates[choice.candidate].rank);
  return true;
}

void PartitionRouter::Explain(const Members& members, std::size_t chosen, Scratch& scratch,
                              std::vector<CandidateReport>& explained) const {
  const std::size_t count = std::min(options_.explained_max, scratch.candidates.size());
  if (count == 0) return;
  auto& order = scratch.order;
  order.resize(scratch.candidates.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::uint32_t>(i);
  std::swap(order[0], order[chosen]);
  const auto cheaper = [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(scratch.costs[a].total, a) < std::pair(scratch.costs[b].total, b);
  };
  std::partial_sort(order.begin() + 1, order.begin() + static_cast<std::ptrdiff_t>(count),
                    order.end(), cheaper);
  explained.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const sched::Candidate& candidate = scratch.candidates[order[i]];
    const std::uint32_t member = scratch.eligible[order[i]];
    const auto status = members.members[member].health->status();
    explained.push_back({.rank = candidate.rank,
                         .state = status.state,
                         .reason = status.reason,
                         .overlap = scratch.overlaps[member],
                         .cost = scratch.costs[order[i]],
                         .active_prefill_tokens = candidate.active_prefill,
                         .active_requests = candidate.active_requests});
  }
}

void PartitionRouter::AddGuesses(const Members& members, const Prompt& prompt,
                                 const index::HybridRanks* hybrid, Scratch& scratch) {
  if (guesses_.empty()) return;
  guesses_.Expire(clock_.Now());
  guesses_.Match(prompt.blocks, scratch.guesses);
  for (const RankSlot slot : scratch.guesses.scored()) {
    const RankOverlap& guess = scratch.guesses.at(slot);
    const auto member = members.Find(guess.rank);
    if (!member || guess.depth() <= scratch.overlaps[*member].depth()) continue;
    if (hybrid != nullptr && !hybrid->empty() && hybrid->Find(guess.rank)) continue;
    scratch.guessed[*member] = guess.depth() - scratch.overlaps[*member].depth();
    scratch.overlaps[*member] = guess;
  }
}

void PartitionRouter::Guess(const Members& members, const Prompt& prompt, Decision& decision) {
  const auto member = members.Find(decision.rank);
  if (!member || prompt.blocks.empty()) return;
  const auto status = members.members[*member].health->status();
  const Millis ttl = status.reason == StateReason::kNoEventSource ? options_.approximate_ttl
                                                                  : options_.speculative_ttl;
  if (ttl.count() == 0) return;
  const bool by_capacity =
      options_.approximate_by_capacity && status.reason == StateReason::kNoEventSource;
  const auto capacity = by_capacity ? members.members[*member].kv_blocks : std::nullopt;
  guesses_.SetCapacity(decision.rank, capacity);
  // What a limit refuses is counted there; the decision stands without it.
  if (!capacity) {
    static_cast<void>(
        guesses_.Add(decision.rank, prompt.blocks, prompt.sequence, clock_.Now(), ttl));
  } else if (auto lease = guesses_.Acquire(decision.rank, prompt.blocks, prompt.sequence,
                                           clock_.Now(), ttl)) {
    decision.lease = *std::move(lease);
  }
}

std::size_t PartitionRouter::Sweep() {
  guesses_.Expire(clock_.Now());
  std::vector<Rank> ranks;
  {
    const Lock lock(book_.mutex);
    for (const sched::Host& host : members_->hosts)
      ranks.push_back(host.rank);
  }
  guesses_.ForgetAllBut(ranks);
  return book_.Sweep();
}

bool PartitionRouter::IsIdle() const {
  if (book_.Stats().handles > 0 || guesses_.has_leases()) return false;
  const Lock lock(book_.mutex);
  return members_->hosts.empty();
}

}  // namespace kvr::routing
