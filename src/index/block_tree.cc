#include "index/block_tree.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace kvr::index {
namespace {

constexpr unsigned Bit(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

constexpr std::uint64_t RenameKey(NodeId node, std::uint32_t slot) {
  return (std::uint64_t{node} << 32) | slot;
}

}  // namespace

BlockTree::BlockTree(const IndexOptions& options)
    : options_(options), nodes_(options.hash_seed), renamed_(0, SeededHash{options.hash_seed}) {
  KVR_CHECK(options_.Validate().has_value());
}

Result<RankSlot> BlockTree::AddRank(Rank rank) {
  WriteLock lock(mutex_);
  if (const auto known = ranks_.find(rank); known != ranks_.end()) return known->second;
  const std::size_t free = free_slots_.empty() ? slots_.size() : *free_slots_.begin();
  if (free >= options_.ranks_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("the index has its maximum of {} ranks; remove some or raise ranks_max",
                            options_.ranks_max));
  }
  const auto slot = static_cast<RankSlot>(free);
  if (free == slots_.size()) {
    slots_.emplace_back();
  } else {
    free_slots_.erase(free_slots_.begin());
  }
  slots_[free] = std::make_unique<RankBlocks>(rank, slot, options_);
  ranks_.emplace(rank, slot);
  return slot;
}

std::optional<RankSlot> BlockTree::FindRank(Rank rank) const {
  ReadLock lock(mutex_);
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? std::nullopt : std::optional(known->second);
}

bool BlockTree::RemoveRank(Rank rank) {
  WriteLock lock(mutex_);
  const auto known = ranks_.find(rank);
  if (known == ranks_.end()) return false;
  const std::uint32_t slot = Raw(known->second);
  Clear(*slots_[slot]);
  slots_[slot].reset();
  ranks_.erase(known);
  free_slots_.insert(slot);
  while (!slots_.empty() && !slots_.back()) {
    slots_.pop_back();
    free_slots_.erase(static_cast<std::uint32_t>(slots_.size()));
  }
  return true;
}

ApplyResult BlockTree::Apply(RankSlot slot, const PlacementEvent& event) {
  WriteLock lock(mutex_);
  KVR_CHECK(Raw(slot) < slots_.size() && slots_[Raw(slot)]);
  RankBlocks& rank = *slots_[Raw(slot)];
  ++rank.events;
  switch (event.kind) {
    case PlacementKind::kStored:
      return Store(rank, event);
    case PlacementKind::kRemoved:
      return Remove(rank, event);
    case PlacementKind::kCleared:
      Clear(rank);
      break;
  }
  return {};
}

ApplyResult BlockTree::Store(RankBlocks& rank, const PlacementEvent& event) {
  for (const PlacedBlock& block : event.blocks) {
    if (event.parent == block.engine) return {ApplyStatus::kInvalidSequence};
  }
  if (nodes_.size() + event.blocks.size() > options_.blocks_max) return {ApplyStatus::kCapacity};

  ApplyResult result;
  NodeId at = kRoot;
  bool placed = true;  // whether `at` is the place of the block before
  if (event.parent && !event.hash_only) {
    const NameId parent = rank.names.Find(*event.parent, true);
    placed = parent != 0;
    if (placed) at = rank.names[parent].node;
    if (!placed) result.status = ApplyStatus::kParentNotFound;
  }
  bool changed = false;
  std::optional<EngineHash> before = event.parent;
  const auto tier = static_cast<std::uint8_t>(Bit(event.tier));
  for (const PlacedBlock& block : event.blocks) {
    PendingBlock waiting{block.engine, {}, {}, tier, event.eligible};
    if (event.hash_only) {
      const NameId known = rank.names.Find(block.engine, false);
      placed = known != 0;
      if (placed) at = rank.names[known].node;
    } else {
      if (!placed) {  // a block behind one that waits may be known
        const NameId parent = rank.names.Find(*before, true);
        placed = parent != 0;
        if (placed) at = rank.names[parent].node;
      }
      if (placed) at = nodes_.FindOrAdd(at, block.local, block.engine);
      waiting.local = block.local;
      waiting.parent = before;
    }
    if (placed) {
      changed |= Hold(rank, at, block.engine, tier, event.eligible);
      if (rank.pending.size() > 0) Wake(rank, block.engine, at);
    } else {
      counts_.pending_dropped += rank.pending.Add(waiting);
      ++result.waiting_blocks;
      result.status = ApplyStatus::kParentNotFound;
    }
    before = block.engine;
  }
  result.duplicate_store = !changed && !event.blocks.empty() && result.waiting_blocks == 0;
  return result;
}

ApplyResult BlockTree::Remove(RankBlocks& rank, const PlacementEvent& event) {
  ApplyResult result;
  for (const EngineHash name : event.removed) {
    if (!RemoveOne(rank, name, event.tier)) result.status = ApplyStatus::kBlockNotFound;
  }
  return result;
}

bool BlockTree::RemoveOne(RankBlocks& rank, EngineHash name, Tier tier) {
  bool known = rank.pending.Remove(name, static_cast<std::uint8_t>(Bit(tier)));
  for (NameId id = rank.names.First(name); id != 0; id = rank.names.Next(id)) {
    Name& entry = rank.names[id];
    if (!(entry.tiers & Bit(tier))) {
      // Named twice in one event: no error.
      known |= entry.removed_by == rank.events;
      continue;
    }
    Drop(rank, id, Bit(tier));
    entry.removed_by = rank.events;
    if (entry.tiers == 0) {
      rank.names.Remember(id);
      if (rank.names.remembered() > options_.remembered_names_max) {
        const NameId oldest = rank.names.oldest_remembered();
        rank.names.Recall(oldest);
        EraseName(rank, oldest);
      }
    }
    return true;
  }
  return known;
}

void BlockTree::Clear(RankBlocks& rank) {
  for (NameId id = 1; id < rank.names.end(); ++id) {
    const Name& entry = rank.names[id];
    if (entry.node == kRoot) continue;
    Drop(rank, id, entry.tiers);
    LetGo(rank, entry.node);
  }
  rank.names = NameTable(options_.hash_seed);
  rank.pending.Clear();
}

bool BlockTree::Hold(RankBlocks& rank, NodeId node, EngineHash name, unsigned tiers,
                     bool eligible) {
  NameId id = rank.names.Find(name, node);
  if (id == 0) {
    id = AddName(rank, name, node);
  } else {
    rank.names.Touch(id);
  }
  Name& entry = rank.names[id];
  entry.eligible |= eligible;
  const unsigned added = tiers & ~unsigned{entry.tiers};
  if (added == 0) return false;
  rank.names.Recall(id);
  entry.tiers = static_cast<std::uint8_t>(entry.tiers | added);
  Node& block = nodes_[node];
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (!((added >> tier) & 1u)) continue;
    HolderSet& holders = block.holders[tier];
    more_words_ -= holders.words();
    holders.Add(rank.slot);
    more_words_ += holders.words();
    if (block.held++ == 0) ++counts_.nodes;
    ++rank.held[tier];
    ++counts_.memberships;
  }
  return true;
}

void BlockTree::Wake(RankBlocks& rank, EngineHash name, NodeId node) {
  if (const auto same = rank.pending.Take(name))
    Hold(rank, node, name, same->tiers, same->eligible);
  std::vector<std::pair<EngineHash, NodeId>> placed{{name, node}};
  while (!placed.empty() && rank.pending.size() > 0) {
    const auto [parent, at] = placed.back();
    placed.pop_back();
    for (const PendingBlock& child : rank.pending.TakeChildren(parent)) {
      if (nodes_.size() >= options_.blocks_max) {
        ++counts_.pending_dropped;
        continue;
      }
      const NodeId place = nodes_.FindOrAdd(at, *child.local, child.name);
      Hold(rank, place, child.name, child.tiers, child.eligible);
      placed.emplace_back(child.name, place);
    }
  }
}

void BlockTree::Drop(RankBlocks& rank, NameId id, unsigned tiers) {
  Name& entry = rank.names[id];
  Node& block = nodes_[entry.node];
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (!((tiers >> tier) & 1u)) continue;
    HolderSet& holders = block.holders[tier];
    KVR_DCHECK(holders.Has(rank.slot));
    more_words_ -= holders.words();
    holders.Remove(rank.slot);
    more_words_ += holders.words();
    if (--block.held == 0) --counts_.nodes;
    --rank.held[tier];
    --counts_.memberships;
  }
  entry.tiers = static_cast<std::uint8_t>(entry.tiers & ~tiers);
}

NameId BlockTree::AddName(RankBlocks& rank, EngineHash name, NodeId node) {
  if (rank.names.First(name) != 0) ++counts_.name_conflicts;
  const EngineHash old_name = NameOf(rank.slot, node);
  const NameId old = old_name == name ? 0 : rank.names.Find(old_name, node);
  const NameId id = rank.names.Add(name, node);
  nodes_.Pin(node);
  if (old != 0) {  // the block goes by its new name
    rank.names[id].tiers = rank.names[old].tiers;
    rank.names[id].removed_by = rank.names[old].removed_by;
    rank.names.Recall(old);
    EraseName(rank, old);
  }
  Node& block = nodes_[node];
  if (name != block.engine) {
    renamed_.emplace(RenameKey(node, rank.slot), name);
    ++block.renamed;
  }
  return id;
}

void BlockTree::EraseName(RankBlocks& rank, NameId id) {
  const NodeId node = rank.names[id].node;
  rank.names.Erase(id);
  LetGo(rank, node);
}

void BlockTree::LetGo(const RankBlocks& rank, NodeId node) {
  Node& block = nodes_[node];
  if (block.renamed > 0 && renamed_.erase(RenameKey(node, rank.slot)) > 0) --block.renamed;
  nodes_.Unpin(node);
}

EngineHash BlockTree::NameOf(std::uint32_t slot, NodeId node) const {
  const Node& block = nodes_[node];
  if (block.renamed > 0) {
    const auto own = renamed_.find(RenameKey(node, slot));
    if (own != renamed_.end()) return own->second;
  }
  return block.engine;
}

IndexStats BlockTree::Stats() const {
  ReadLock lock(mutex_);
  IndexStats stats = counts_;
  stats.ranks = ranks_.size();
  stats.idle_nodes = nodes_.size() - counts_.nodes;
  stats.bytes = nodes_.bytes() + more_words_ * sizeof(std::uint64_t) +
                slots_.capacity() * sizeof(slots_[0]) +
                renamed_.size() * (sizeof(std::uint64_t) + sizeof(EngineHash) + sizeof(void*)) +
                renamed_.bucket_count() * sizeof(void*);
  for (const auto& slot : slots_) {
    if (!slot) continue;
    stats.pending_blocks += slot->pending.size();
    stats.bytes += sizeof(RankBlocks) + slot->names.bytes() + slot->pending.bytes();
  }
  return stats;
}

RankStats BlockTree::StatsOf(RankSlot slot) const {
  ReadLock lock(mutex_);
  if (Raw(slot) >= slots_.size() || !slots_[Raw(slot)]) return {};
  const RankBlocks& rank = *slots_[Raw(slot)];
  return {.rank = rank.rank, .blocks = rank.held, .pending_blocks = rank.pending.size()};
}

}  // namespace kvr::index
