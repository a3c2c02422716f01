#include "index/run_arena.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace kvr::index {
namespace {

constexpr unsigned Bit(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

}  // namespace

RunArena::RunArena(const IndexOptions& options)
    : options_(options),
      directory_(options.hash_seed),
      // Called from within Commit, which needs the lock.
      runs_(options.hash_seed, directory_, epoch_,
            [this](RunId from, RunId to, Stretch blocks)
                KVR_NO_ANALYSIS { OnMoved(from, to, blocks); }) {
  KVR_CHECK(options_.Validate().has_value());
}

Result<RankSlot> RunArena::AddRank(Rank rank) {
  FairLock lock(mutex_);
  while (leaving_.contains(rank))
    mutex_.Rest();
  if (const auto known = ranks_.find(rank); known != ranks_.end()) return known->second;
  const std::size_t free = free_slots_.empty() ? slots_.size() : *free_slots_.begin();
  if (free >= options_.ranks_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("the index has its maximum of {} ranks; remove some or raise ranks_max",
                            options_.ranks_max));
  }
  const auto slot = static_cast<std::uint32_t>(free);
  if (free == slots_.size()) {
    slots_.emplace_back();
    rank_cells_.Reserve(slots_.size());
  } else {
    free_slots_.erase(free_slots_.begin());
  }
  slots_[free] = std::make_unique<RankBlocks>(rank, slot, options_);
  CountBytes(*slots_[free]);
  ranks_.emplace(rank, RankSlot{slot});
  // No state that a query can see has this slot's bit: the last owner waited for that.
  rank_cells_[free].worker.store(Raw(rank.worker), std::memory_order_relaxed);
  rank_cells_[free].dp_rank.store(rank.dp_rank, std::memory_order_relaxed);
  static std::atomic<std::uint64_t> last_key{0};
  ranks_key_.store(last_key.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_release);
  // Pairs with Match, which looks at slots below it.
  slots_end_.store(static_cast<std::uint32_t>(slots_.size()), std::memory_order_release);
  return RankSlot{slot};
}

std::optional<RankSlot> RunArena::FindRank(Rank rank) const {
  FairLock lock(mutex_);
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? std::nullopt : std::optional(known->second);
}

bool RunArena::RemoveRank(Rank rank) {
  FairLock lock(mutex_);
  while (leaving_.contains(rank))
    mutex_.Rest();
  const auto known = ranks_.find(rank);
  if (known == ranks_.end()) return false;
  const std::uint32_t slot = Raw(known->second);
  ranks_.erase(known);
  leaving_.insert(rank);
  Clear(*slots_[slot]);
  runs_.Commit();
  // The slot's next owner must not meet a query that still reads of this one.
  const std::uint64_t now = epoch_.Advance();
  while (!epoch_.HasPassed(now))
    mutex_.Rest();
  runs_.FreeRetired();
  rank_bytes_ -= slots_[slot]->counted_bytes;
  slots_[slot].reset();
  free_slots_.insert(slot);
  while (!slots_.empty() && !slots_.back()) {
    slots_.pop_back();
    free_slots_.erase(static_cast<std::uint32_t>(slots_.size()));
  }
  slots_end_.store(static_cast<std::uint32_t>(slots_.size()), std::memory_order_release);
  leaving_.erase(rank);
  return true;
}

ApplyResult RunArena::Apply(RankSlot slot, const PlacementEvent& event) {
  FairLock lock(mutex_);
  KVR_CHECK(Raw(slot) < slots_.size() && slots_[Raw(slot)]);
  RankBlocks& rank = *slots_[Raw(slot)];
  ApplyResult result;
  switch (event.kind) {
    case PlacementKind::kStored:
      result = event.hash_only ? StoreByName(rank, event) : Store(rank, event);
      break;
    case PlacementKind::kRemoved:
      result = Remove(rank, event);
      break;
    case PlacementKind::kCleared:
      Clear(rank);
      break;
  }
  runs_.Commit();
  KeepIdle(rank);
  CountBytes(rank);
  if (options_.memory_limit > 0) {
    Tick();
    KeepLimit();
  }
  // Updates that follow each other closely would leave it to chance when queries get their turn.
  if (unsure_.waiting.load(std::memory_order_relaxed) > 0) mutex_.LetIn();
  return result;
}

ApplyResult RunArena::Store(RankBlocks& rank, const PlacementEvent& event) {
  for (const PlacedBlock& block : event.blocks) {
    if (event.parent == block.engine) return {ApplyStatus::kInvalidSequence};
  }
  if (!MakeRoomFor(rank, event)) return {ApplyStatus::kCapacity};

  ApplyResult result;
  std::optional<BlockPlace> at = BlockPlace{};  // where the next block belongs
  const auto behind = [&](EngineHash name) KVR_REQUIRES(mutex_) {
    at = Find(rank, name, true);
    if (at) ++at->depth;
  };
  if (event.parent) behind(*event.parent);
  if (!at) result.status = ApplyStatus::kParentNotFound;
  const unsigned tier = Bit(event.tier);
  bool changed = false;
  if (at && rank.pending.size() == 0) {
    changed = Place(rank, *at, event.blocks, tier, ClaimOf(event.eligible));
  } else {
    std::optional<EngineHash> before = event.parent;
    for (const PlacedBlock& block : event.blocks) {
      if (!at) behind(*before);  // a block behind one that waits may be known
      if (at) {
        changed |= Place(rank, *at, {&block, 1}, tier, ClaimOf(event.eligible));
        Wake(rank, block.engine, {at->run, at->depth - 1}, result);
      } else {
        Wait(rank,
             {block.engine, block.local, before, static_cast<std::uint8_t>(tier), event.eligible},
             result);
      }
      before = block.engine;
    }
  }
  result.duplicate_store = !changed && !event.blocks.empty() && result.waiting_blocks == 0;
  return result;
}

bool RunArena::MakeRoomFor(const RankBlocks& rank, const PlacementEvent& store) {
  const auto fits = [this](std::size_t added) KVR_REQUIRES(mutex_) {
    return added == 0 || (runs_.blocks() + added <= options_.blocks_max &&
                          runs_.runs() + added <= RunStore::kRunsMax);
  };
  if (fits(store.blocks.size())) return true;
  const auto needs = [&]() KVR_REQUIRES(mutex_) -> std::size_t {
    BlockPlace at;
    if (store.parent) {
      const auto parent = Find(rank, *store.parent, true);
      if (!parent) return 0;  // they wait
      at = {parent->run, parent->depth + 1};
    }
    return CountNew(at, store.blocks);
  };
  if (fits(needs())) return true;
  for (const auto& slot : slots_) {
    if (!slot || slot->remembered.size() == 0) continue;
    ForgetOldest(*slot, slot->remembered.size());
    CountBytes(*slot);
  }
  runs_.Commit();
  return fits(needs());
}

std::size_t RunArena::CountNew(BlockPlace at, std::span<const PlacedBlock> blocks) const {
  while (!blocks.empty()) {
    std::size_t count = 0;
    if (at.depth < runs_.BlocksOf(at.run).end) count = runs_.CommonLength(at, blocks);
    if (count == 0) {
      at.run = runs_.FindChild(at, blocks[0].local);
      if (at.run == kRootRun) return blocks.size();
      continue;
    }
    at.depth += static_cast<std::uint32_t>(count);
    blocks = blocks.subspan(count);
  }
  return 0;
}

ApplyResult RunArena::StoreByName(RankBlocks& rank, const PlacementEvent& event) {
  for (const PlacedBlock& block : event.blocks) {
    if (event.parent == block.engine) return {ApplyStatus::kInvalidSequence};
  }
  const Claim claim = event.eligible ? Claim::kEligibleAnyway : Claim::kNothing;
  ApplyResult result;
  bool changed = false;
  for (const PlacedBlock& block : event.blocks) {
    if (const auto place = Find(rank, block.engine, false)) {
      SetName(rank, *place, block.engine);
      changed |= Hold(rank, place->run, {place->depth, place->depth + 1}, Bit(event.tier), claim);
      Wake(rank, block.engine, *place, result);
    } else {
      Wait(rank, {block.engine, {}, {}, static_cast<std::uint8_t>(Bit(event.tier)), false}, result);
    }
  }
  result.duplicate_store = !changed && !event.blocks.empty() && result.waiting_blocks == 0;
  return result;
}

void RunArena::Wait(RankBlocks& rank, PendingBlock block, ApplyResult& result) {
  if (block.local) AgreeWithHeld(rank, block);
  if (const auto dropped = rank.pending.Add(block)) {
    ++pending_dropped_;
    if (dropped->local) ++result.dropped_blocks;
  }
  ++result.waiting_blocks;
  result.status = ApplyStatus::kParentNotFound;
}

void RunArena::Wake(RankBlocks& rank, EngineHash name, BlockPlace place, ApplyResult& result) {
  if (rank.pending.size() == 0) return;
  if (const auto same = rank.pending.TakeNameOnly(name)) {
    SetName(rank, place, name);
    Hold(rank, place.run, {place.depth, place.depth + 1}, same->tiers, Claim::kNothing);
  }
  std::vector<std::pair<EngineHash, BlockPlace>> placed{{name, place}};
  while (!placed.empty() && rank.pending.size() > 0) {
    const auto [parent, parent_place] = placed.back();
    placed.pop_back();
    for (const PendingBlock& child : rank.pending.TakeChildren(parent)) {
      if (runs_.blocks() >= options_.blocks_max) {
        ++pending_dropped_;
        ++result.dropped_blocks;
        continue;
      }
      BlockPlace at{parent_place.run, parent_place.depth + 1};
      const PlacedBlock block{child.name, *child.local};
      Place(rank, at, {&block, 1}, child.tiers, ClaimOf(child.eligible));
      placed.emplace_back(child.name, BlockPlace{at.run, at.depth - 1});
    }
  }
}

bool RunArena::Place(RankBlocks& rank, BlockPlace& at, std::span<const PlacedBlock> blocks,
                     unsigned tiers, Claim claim) {
  bool changed = false;
  while (!blocks.empty()) {
    std::size_t count = 0;
    const Stretch run = runs_.BlocksOf(at.run);
    if (at.depth < run.end) count = runs_.CommonLength(at, blocks);
    if (count == 0) {
      if (const RunId child = runs_.FindChild(at, blocks[0].local)) {
        at.run = child;
        continue;
      }
      const bool append =
          at.run != kRootRun && at.depth == run.end && runs_.MayAppend(at.run, rank.slot);
      count =
          std::min<std::size_t>(blocks.size(), RunStore::kRunBlocksMax - (append ? run.size() : 0));
      if (append) {
        runs_.Append(at.run, blocks.first(count));
      } else {
        at.run = runs_.AddRun(at, blocks.first(count));
      }
    }
    changed |= HoldNamed(rank, at, blocks.first(count), tiers, claim);
    at.depth += static_cast<std::uint32_t>(count);
    blocks = blocks.subspan(count);
  }
  return changed;
}

bool RunArena::HoldNamed(RankBlocks& rank, BlockPlace at, std::span<const PlacedBlock> blocks,
                         unsigned tiers, Claim claim) {
  bool changed = false;
  for (std::size_t i = 0; i < blocks.size();) {
    // Blocks that go by their common name, which leads there and nowhere else for this rank.
    const std::uint32_t begin = at.depth;
    const AliasColumn* const aliases = runs_.AliasesOf(at.run, rank.slot);
    if (runs_.AllCommon(at.run)) {
      const auto left = static_cast<std::uint32_t>(blocks.size() - i);
      const bool all = aliases == nullptr && rank.names.empty();
      for (const std::uint64_t name : runs_.CommonNames(at.run, {begin, begin + left})) {
        if (name != Raw(blocks.data()[i].engine)) break;
        if (!all && ((aliases && aliases->At(at.depth)) || rank.names.First(EngineHash{name}) != 0))
          break;
        ++i;
        ++at.depth;
      }
    }
    if (at.depth > begin) changed |= Hold(rank, at.run, {begin, at.depth}, tiers, claim);
    if (i == blocks.size()) break;
    SetName(rank, at, blocks[i].engine);
    changed |= Hold(rank, at.run, {at.depth, at.depth + 1}, tiers, claim);
    ++i;
    ++at.depth;
  }
  return changed;
}

bool RunArena::Hold(RankBlocks& rank, RunId run, Stretch blocks, unsigned tiers, Claim claim) {
  std::uint32_t missing = 0;
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if ((tiers >> tier) & 1u)
      missing += blocks.size() - runs_.View(run, tier).Count(rank.slot, blocks);
  }
  if (missing == 0) {
    const std::uint32_t eligible = runs_.View(run, kEligiblePlane).Count(rank.slot, blocks);
    const bool changes = claim == Claim::kIneligible
                             ? eligible > 0
                             : claim == Claim::kEligibleAnyway && eligible < blocks.size();
    if (!changes) {
      runs_.NoteUse(run, clock_.load(std::memory_order_relaxed));
      return false;
    }
  }
  RunDraft& draft = runs_.Edit(run);
  draft.used_at = clock_.load(std::memory_order_relaxed);
  const Stretch whole = runs_.BlocksOf(run);
  NoteClaim(draft, rank.slot, blocks, whole, claim);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (((tiers >> tier) & 1u) == 0) continue;
    if (!draft.planes[tier].view().HasAny(rank.slot)) rank.runs.Add(run);
    const std::uint32_t added = draft.planes[tier].Add(rank.slot, blocks, whole);
    rank.held[tier] += added;
    rank.memberships += added;
    memberships_ += added;
  }
  if (rank.remembered.size() > 0 &&
      draft.planes[kRememberedPlane].Remove(rank.slot, blocks, whole) > 0)
    rank.remembered.Recall(run, blocks);
  return missing > 0;
}

void RunArena::Clear(RankBlocks& rank) {
  constexpr std::size_t kAtOnce = 2'048;  // blocks, and some for each run
  constexpr std::size_t kForRun = 16;
  memberships_ -= rank.memberships;
  rank.memberships = 0;
  rank.held = {};
  rank.evicted = 0;
  rank.names = PrivateNames(options_.hash_seed);
  rank.remembered = RememberedBlocks();
  rank.unchecked = 0;
  rank.victims = {};
  rank.pending.Clear();
  rank.sweeping = true;
  for (std::size_t work = 0; rank.runs.size() > 0;) {
    const RunId run = rank.runs.Take();
    for (PlaneDraft& plane : runs_.Edit(run).planes)
      plane.Drop(rank.slot);
    runs_.DropAliases(run, rank.slot);
    work += kForRun + runs_.BlocksOf(run).size();
    if (work < kAtOnce) continue;
    work = 0;
    runs_.Commit();
    CountBytes(rank);
    mutex_.LetIn();
  }
  rank.sweeping = false;
}

IndexStats RunArena::Stats() const {
  FairLock lock(mutex_);
  IndexStats stats;
  stats.ranks = ranks_.size();
  stats.nodes = runs_.held_blocks();
  stats.idle_nodes = runs_.blocks() - runs_.held_blocks();
  stats.memberships = memberships_;
  stats.pending_dropped = pending_dropped_;
  stats.name_conflicts = name_conflicts_;
  stats.runs = runs_.runs();
  stats.splits = runs_.splits();
  stats.joins = runs_.joins();
  stats.query_retries = unsure_.looks.load(std::memory_order_relaxed);
  stats.query_waits = unsure_.waits.load(std::memory_order_relaxed);
  stats.evicted_blocks = evicted_blocks_;
  stats.evicted_memberships = evicted_memberships_;
  for (const auto& slot : slots_) {
    if (slot) stats.pending_blocks += slot->pending.size();
  }
  const RunStoreBytes bytes = runs_.bytes();
  stats.bytes = Bytes();
  stats.bytes_of = {bytes.columns, bytes.states, bytes.aliases,
                    bytes.names,   bytes.tree,   stats.bytes - bytes.total(),
                    bytes.retired};
  return stats;
}

RankStats RunArena::StatsOf(RankSlot slot) const {
  FairLock lock(mutex_);
  if (Raw(slot) >= slots_.size() || !slots_[Raw(slot)]) return {};
  const RankBlocks& rank = *slots_[Raw(slot)];
  return {.rank = rank.rank,
          .blocks = rank.held,
          .pending_blocks = rank.pending.size(),
          .evicted = rank.evicted};
}

}  // namespace kvr::index
