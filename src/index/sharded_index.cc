#include "index/sharded_index.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace kvr::index {
namespace {

IndexOptions PartOf(IndexOptions options, std::size_t shards) {
  const auto count = static_cast<std::uint32_t>(shards);
  options.blocks_max = options.blocks_max / count + (options.blocks_max % count > 0 ? 1 : 0);
  if (options.memory_limit > 0) {
    options.memory_limit = std::max<std::uint64_t>(options.memory_limit / count, 1);
  }
  return options;
}

void AddTo(IndexStats& sum, const IndexStats& part) {
  for (const auto field :
       {&IndexStats::ranks, &IndexStats::nodes, &IndexStats::idle_nodes, &IndexStats::memberships,
        &IndexStats::pending_blocks, &IndexStats::pending_dropped, &IndexStats::name_conflicts,
        &IndexStats::runs, &IndexStats::splits, &IndexStats::joins, &IndexStats::evicted_blocks,
        &IndexStats::evicted_memberships, &IndexStats::query_retries, &IndexStats::query_waits,
        &IndexStats::bytes})
    sum.*field += part.*field;
  for (std::size_t use = 0; use < kHeapUseCount; ++use)
    sum.bytes_of[use] += part.bytes_of[use];
}

}  // namespace

ShardedIndex::ShardedIndex(const IndexOptions& options, std::size_t shards) : options_(options) {
  KVR_CHECK(options_.Validate().has_value() && shards >= 1 && shards <= kShardsMax);
  for (std::size_t i = 0; i < shards; ++i)
    shards_.push_back(std::make_unique<Shard>(PartOf(options, shards)));
}

ShardedIndex::Shard* ShardedIndex::ShardOf(Rank rank, RankSlot& slot) const {
  for (const auto& shard : shards_) {
    if (const auto found = shard->arena.FindRank(rank)) {
      slot = *found;
      return shard.get();
    }
  }
  return nullptr;
}

Result<RankSlot> ShardedIndex::AddRank(Rank rank) {
  const Lock lock(changes_);
  RankSlot local{};
  if (const Shard* const known = ShardOf(rank, local))
    return RankSlot{known->slots[Raw(local)].load(std::memory_order_relaxed)};
  const std::uint32_t end = slots_end_.load(std::memory_order_relaxed);
  const std::uint32_t free = free_slots_.empty() ? end : *free_slots_.begin();
  if (free >= options_.ranks_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("the index has its maximum of {} ranks; remove some or raise ranks_max",
                            options_.ranks_max));
  }
  Shard& shard = **std::min_element(
      shards_.begin(), shards_.end(),
      [](const auto& one, const auto& other) { return one->ranks < other->ranks; });
  KVR_TRY(local, shard.arena.AddRank(rank));
  ++shard.ranks;
  shard.slots.Reserve(std::size_t{Raw(local)} + 1);
  shard.slots[Raw(local)].store(free, std::memory_order_relaxed);
  homes_.Reserve(std::size_t{free} + 1);
  homes_[free].slot.store(Raw(local), std::memory_order_relaxed);
  homes_[free].shard.store(&shard, std::memory_order_release);
  if (free == end) {
    // Pairs with Match and StatsOf, which look at slots below it.
    slots_end_.store(end + 1, std::memory_order_release);
  } else {
    free_slots_.erase(free);
  }
  return RankSlot{free};
}

std::optional<RankSlot> ShardedIndex::FindRank(Rank rank) const {
  const Lock lock(changes_);
  RankSlot local{};
  const Shard* const shard = ShardOf(rank, local);
  if (shard == nullptr) return std::nullopt;
  return RankSlot{shard->slots[Raw(local)].load(std::memory_order_relaxed)};
}

bool ShardedIndex::RemoveRank(Rank rank) {
  const Lock lock(changes_);
  RankSlot local{};
  Shard* const shard = ShardOf(rank, local);
  if (shard == nullptr) return false;
  const std::uint32_t slot = shard->slots[Raw(local)].load(std::memory_order_relaxed);
  shard->arena.RemoveRank(rank);
  --shard->ranks;
  homes_[slot].shard.store(nullptr, std::memory_order_relaxed);
  // A query may have got an answer with the arena's slot, and must find our slot for it: neither
  // gets another owner before.
  epoch_.Wait();
  free_slots_.insert(slot);
  std::uint32_t end = slots_end_.load(std::memory_order_relaxed);
  while (end > 0 && free_slots_.erase(end - 1) > 0)
    --end;
  slots_end_.store(end, std::memory_order_release);
  return true;
}

ApplyResult ShardedIndex::Apply(RankSlot slot, const PlacementEvent& event) {
  KVR_CHECK(Raw(slot) < slots_end_.load(std::memory_order_acquire));
  const Home& home = homes_[Raw(slot)];
  Shard* const shard = home.shard.load(std::memory_order_acquire);
  KVR_CHECK(shard != nullptr);
  return shard->arena.Apply(RankSlot{home.slot.load(std::memory_order_relaxed)}, event);
}

void ShardedIndex::Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                         OverlapScores& scores) const {
  // One a thread, so that a warm query allocates nothing.
  static thread_local OverlapScores part;
  const Epoch::Reader reader(epoch_);
  // Ranks that come later hold nothing yet.
  const std::uint32_t end = slots_end_.load(std::memory_order_acquire);
  scores.Reset(end);
  std::vector<std::uint32_t>& holders = scores.mutable_device_holders();
  for (const auto& shard : shards_) {
    shard->arena.Match(blocks, options, part);
    for (const RankSlot local : part.scored()) {
      const std::uint32_t slot = shard->slots[Raw(local)].load(std::memory_order_relaxed);
      if (slot >= end) continue;
      scores.Score(RankSlot{slot}, part.at(local));
    }
    const auto more = part.device_holders();
    if (holders.size() < more.size()) holders.resize(more.size(), 0);
    for (std::size_t depth = 0; depth < more.size(); ++depth)
      holders[depth] += more[depth];
  }
  if (options.best > 0) scores.KeepDeepest(options.best);
  scores.Seal();
}

void ShardedIndex::FindBlocks(std::span<const SequenceHash> sequence,
                              std::vector<BlockHash>& blocks) const {
  blocks.clear();
  std::vector<BlockHash> part;
  for (const auto& shard : shards_) {
    shard->arena.FindBlocks(sequence, part);
    if (part.size() > blocks.size()) blocks.swap(part);
  }
}

std::vector<Rank> ShardedIndex::Ranks() const {
  const Lock lock(changes_);  // none moves to another shard meanwhile
  std::vector<Rank> ranks;
  for (const auto& shard : shards_) {
    const std::vector<Rank> part = shard->arena.Ranks();
    ranks.insert(ranks.end(), part.begin(), part.end());
  }
  return ranks;
}

void ShardedIndex::CopyRank(Rank rank, RankCopy& copy) const {
  RankSlot local{};
  copy = {};
  if (const Shard* const shard = ShardOf(rank, local)) shard->arena.CopyRank(rank, copy);
}

void ShardedIndex::CopyKnown(Rank rank, RankCopy& copy) const {
  RankSlot local{};
  copy = {};
  if (const Shard* const shard = ShardOf(rank, local)) shard->arena.CopyKnown(rank, copy);
}

IndexStats ShardedIndex::Stats() const {
  IndexStats sum;
  for (const auto& shard : shards_)
    AddTo(sum, shard->arena.Stats());
  return sum;
}

RankStats ShardedIndex::StatsOf(RankSlot slot) const {
  const Shard* shard = nullptr;
  RankSlot local{};
  {
    // So that the slot gets no other owner between the two loads.
    const Epoch::Reader reader(epoch_);
    if (Raw(slot) >= slots_end_.load(std::memory_order_acquire)) return {};
    const Home& home = homes_[Raw(slot)];
    shard = home.shard.load(std::memory_order_acquire);
    if (shard == nullptr) return {};
    local = RankSlot{home.slot.load(std::memory_order_relaxed)};
  }
  return shard->arena.StatsOf(local);
}

std::unique_ptr<PrefixIndex> MakeIndex(const IndexOptions& options, std::size_t shards) {
  if (shards <= 1) return std::make_unique<RunArena>(options);
  return std::make_unique<ShardedIndex>(options, shards);
}

}  // namespace kvr::index
