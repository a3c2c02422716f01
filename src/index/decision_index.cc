#include "index/decision_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "index/heap_bytes.h"

namespace kvr::index {
namespace {

constexpr auto kNever = std::numeric_limits<Nanos::rep>::max();

// Names of blocks that are gone are not asked for again.
IndexOptions WithoutMemory(IndexOptions options) {
  options.remembered_names_max = 0;
  return options;
}

// Keeps room for what comes every day only.
template <typename T>
void Empty(std::vector<T>& list) {
  constexpr std::size_t kKept = 4'096;
  if (list.capacity() > kKept) list = {};
  list.clear();
}

Nanos RoundUp(Nanos time, Nanos step) {
  if (step.count() <= 1) return time;
  const Nanos over = time % step;
  return over.count() == 0 ? time : time + (step - over);
}

}  // namespace

DecisionIndex::Lease::Lease(Lease&& other) noexcept
    : index_(std::exchange(other.index_, nullptr)), id_(other.id_) {}

DecisionIndex::Lease& DecisionIndex::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    End();
    index_ = std::exchange(other.index_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void DecisionIndex::Lease::End() {
  if (DecisionIndex* const index = std::exchange(index_, nullptr)) index->End(id_);
}

DecisionIndex::DecisionIndex(const Options& options)
    : options_(options), arena_(WithoutMemory(options.index)), next_due_(kNever) {}

DecisionIndex::~DecisionIndex() = default;

Result<void> DecisionIndex::Add(Rank rank, std::span<const BlockHash> blocks,
                                std::span<const SequenceHash> sequence, Nanos now, Nanos ttl) {
  const Lock lock(mutex_);
  KVR_TRY(RankState* const entered, Enter(rank, blocks, sequence, now, ttl, false));
  EvictOverflow(*entered);
  return {};
}

Result<DecisionIndex::Lease> DecisionIndex::Acquire(Rank rank, std::span<const BlockHash> blocks,
                                                    std::span<const SequenceHash> sequence,
                                                    Nanos now, Nanos ttl) {
  const Lock lock(mutex_);
  KVR_TRY(RankState* const entered, Enter(rank, blocks, sequence, now, ttl, true));
  EvictOverflow(*entered);
  Lease lease;
  lease.index_ = this;
  lease.id_ = ++leases_;
  running_[lease.id_] = {rank, entered->incarnation, {sequence.begin(), sequence.end()}};
  return lease;
}

void DecisionIndex::SetCapacity(Rank rank, std::optional<std::uint32_t> blocks) {
  const Lock lock(mutex_);
  const auto entered = FindOrAdd(rank);
  if (!entered) return;
  (*entered)->capacity = blocks;
  EvictOverflow(**entered);
  NoteDue(**entered);
}

void DecisionIndex::Forget(Rank rank) {
  const Lock lock(mutex_);
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  Drop(*found->second);
  ranks_.erase(found);
}

void DecisionIndex::ForgetAllBut(std::span<const Rank> ranks) {
  const Lock lock(mutex_);
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    const auto here = at++;
    if (std::binary_search(ranks.begin(), ranks.end(), here->first)) continue;
    Drop(*here->second);
    ranks_.erase(here);
  }
}

void DecisionIndex::Expire(Nanos now) {
  if (now.count() < next_due_.load(std::memory_order_relaxed)) return;
  const Lock lock(mutex_);
  Nanos::rep next = kNever;
  for (const auto& [rank, state] : ranks_) {
    if (state->capacity) continue;
    state->entries.TakeDue(now, gone_);
    expired_ += RemoveGone(*state);
    if (const auto due = state->entries.next_due()) next = std::min(next, due->count());
  }
  next_due_.store(next, std::memory_order_relaxed);
}

bool DecisionIndex::has_leases() const {
  const Lock lock(mutex_);
  return !running_.empty();
}

DecisionIndex::Stats DecisionIndex::stats() const {
  const Lock lock(mutex_);
  Stats stats{.ranks = ranks_.size(),
              .blocks = blocks_.load(std::memory_order_relaxed),
              .expired_blocks = expired_,
              .evicted_blocks = evicted_,
              .refused = refused_,
              .bytes = arena_.Stats().bytes};
  constexpr std::size_t kTreeNode = 4 * sizeof(void*);
  for (const auto& [rank, state] : ranks_) {
    stats.bytes += HeapBytes(kTreeNode + sizeof(decltype(ranks_)::value_type)) +
                   HeapBytes(sizeof(RankState)) + state->entries.bytes();
  }
  stats.bytes += HeapBytes(running_.bucket_count() * sizeof(void*));
  for (const auto& [id, running] : running_) {
    stats.bytes += HeapBytes(sizeof(void*) + sizeof(decltype(running_)::value_type)) +
                   HeapBytes(running.path.capacity() * sizeof(SequenceHash));
  }
  stats.bytes += HeapBytes(gone_.capacity() * sizeof(EngineHash)) +
                 HeapBytes(placed_.capacity() * sizeof(PlacedBlock));
  return stats;
}

Result<DecisionIndex::RankState*> DecisionIndex::FindOrAdd(Rank rank) {
  std::unique_ptr<RankState>& state = ranks_[rank];
  if (!state) {
    auto slot = arena_.AddRank(rank);
    if (!slot) {
      ranks_.erase(rank);
      return tl::make_unexpected(std::move(slot).error());
    }
    state = std::make_unique<RankState>(rank, *slot, ++incarnations_, options_.index.hash_seed);
  }
  return state.get();
}

Result<DecisionIndex::RankState*> DecisionIndex::Enter(Rank rank, std::span<const BlockHash> blocks,
                                                       std::span<const SequenceHash> sequence,
                                                       Nanos now, Nanos ttl, bool hold) {
  if (blocks.size() != sequence.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} block hashes with {} sequence hashes; there must be one each",
                            blocks.size(), sequence.size()));
  }
  auto entered = FindOrAdd(rank);
  if (!entered) {
    ++refused_;
    return entered;
  }
  RankState& state = **entered;
  Empty(placed_);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    placed_.push_back({EngineHash{Raw(sequence[i])}, blocks[i]});
  PlacementEvent event;
  event.rank = rank;
  event.blocks = placed_;
  if (const auto status = arena_.Apply(state.slot, event).status; status != ApplyStatus::kOk) {
    ++refused_;
    return Fail(ErrorCode::kOverloaded,
                fmt::format("decision not entered: {}", ApplyStatusName(status)));
  }
  const std::size_t before = state.entries.size();
  const Nanos due = ttl.count() == 0 ? now : RoundUp(now + ttl, options_.step);
  state.entries.Use(sequence, due, hold);
  blocks_.fetch_add(state.entries.size() - before, std::memory_order_relaxed);
  NoteDue(state);
  return &state;
}

void DecisionIndex::End(std::uint64_t lease) {
  const Lock lock(mutex_);
  const auto running = running_.find(lease);
  const auto state = ranks_.find(running->second.rank);
  if (state != ranks_.end() && state->second->incarnation == running->second.incarnation) {
    DecisionEntries& entries = state->second->entries;
    entries.Release(running->second.path);
    EvictOverflow(*state->second);
    NoteDue(*state->second);
  }
  running_.erase(running);
  if (running_.empty()) running_ = {};
}

void DecisionIndex::NoteDue(const RankState& rank) {
  const auto due = rank.entries.next_due();
  if (rank.capacity || !due || due->count() >= next_due_.load(std::memory_order_relaxed)) return;
  next_due_.store(due->count(), std::memory_order_relaxed);
}

void DecisionIndex::EvictOverflow(RankState& rank) {
  const std::size_t most = rank.capacity.value_or(options_.blocks_max);
  if (rank.entries.size() <= most) return;
  rank.entries.TakeOldest(rank.entries.size() - most, gone_);
  evicted_ += RemoveGone(rank);
}

std::uint64_t DecisionIndex::RemoveGone(RankState& rank) {
  const std::uint64_t count = gone_.size();
  if (count == 0) return 0;
  PlacementEvent event;
  event.kind = PlacementKind::kRemoved;
  event.rank = rank.rank;
  event.removed = gone_;
  static_cast<void>(arena_.Apply(rank.slot, event));
  blocks_.fetch_sub(count, std::memory_order_relaxed);
  Empty(gone_);
  return count;
}

void DecisionIndex::Drop(RankState& rank) {
  blocks_.fetch_sub(rank.entries.size(), std::memory_order_relaxed);
  arena_.RemoveRank(rank.rank);
}

}  // namespace kvr::index
