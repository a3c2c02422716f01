#include "support/naive_index.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "hashing/block_hash.h"

namespace kvr::index {
namespace {

constexpr unsigned Bit(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

}  // namespace

Result<RankSlot> NaiveIndex::AddRank(Rank rank) {
  Lock lock(mutex_);
  std::size_t free = slots_.size();
  for (std::size_t slot = slots_.size(); slot-- > 0;) {
    if (!slots_[slot]) {
      free = slot;
    } else if (slots_[slot]->rank == rank) {
      return static_cast<RankSlot>(slot);
    }
  }
  if (free >= options_.ranks_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("the index has its maximum of {} ranks", options_.ranks_max));
  }
  if (free == slots_.size()) slots_.emplace_back();
  slots_[free].emplace();
  slots_[free]->rank = rank;
  return static_cast<RankSlot>(free);
}

std::optional<RankSlot> NaiveIndex::FindRank(Rank rank) const {
  Lock lock(mutex_);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] && slots_[slot]->rank == rank) return static_cast<RankSlot>(slot);
  }
  return std::nullopt;
}

bool NaiveIndex::RemoveRank(Rank rank) {
  Lock lock(mutex_);
  for (auto& slot : slots_) {
    if (!slot || slot->rank != rank) continue;
    slot.reset();
    return true;
  }
  return false;
}

ApplyResult NaiveIndex::Apply(RankSlot slot, const PlacementEvent& event) {
  Lock lock(mutex_);
  KVR_CHECK(Raw(slot) < slots_.size() && slots_[Raw(slot)]);
  RankBlocks& blocks = *slots_[Raw(slot)];
  ++blocks.events;
  switch (event.kind) {
    case PlacementKind::kStored:
      return Store(blocks, event);
    case PlacementKind::kRemoved:
      return Remove(blocks, event);
    case PlacementKind::kCleared:
      break;
  }
  const Rank rank = blocks.rank;
  blocks = RankBlocks{};
  blocks.rank = rank;
  return {};
}

ApplyResult NaiveIndex::Store(RankBlocks& blocks, const PlacementEvent& event) {
  const Tiers tier = Bit(event.tier);
  for (const PlacedBlock& block : event.blocks) {
    if (event.parent == block.engine) return {ApplyStatus::kInvalidSequence};
  }
  ApplyResult result;
  bool changed = false;
  std::optional<EngineHash> before = event.parent;
  std::optional<Chain> at = before ? Named(blocks, *before, true) : std::optional<Chain>(0);
  if (!event.hash_only && !at) result.status = ApplyStatus::kParentNotFound;
  for (const PlacedBlock& block : event.blocks) {
    if (event.hash_only) {
      at = Named(blocks, block.engine, false);
      if (!at) Wait(blocks, {block.engine, {}, {}, tier, false}, result);
    } else {
      if (!at) at = Named(blocks, *before, true);  // a block behind one that waits may be known
      if (!at) Wait(blocks, {block.engine, block, before, tier, event.eligible}, result);
      if (at) at = Extend(*at, block.local);
    }
    if (at) changed |= Hold(blocks, *at, block.engine, tier, {event.hash_only, event.eligible});
    if (!at) {
      result.status = ApplyStatus::kParentNotFound;
      ++result.waiting_blocks;
    }
    before = block.engine;
  }
  result.duplicate_store = !changed && !event.blocks.empty() && result.waiting_blocks == 0;
  return result;
}

ApplyResult NaiveIndex::Remove(RankBlocks& blocks, const PlacementEvent& event) {
  ApplyResult result;
  for (const EngineHash name : event.removed) {
    bool found = false;
    for (auto it = blocks.waiting.rbegin(); it != blocks.waiting.rend(); ++it) {
      if (it->name != name || !(it->tiers & Bit(event.tier))) continue;
      found = true;
      it->tiers &= ~Bit(event.tier);
      if (it->tiers == 0) blocks.waiting.erase(std::prev(it.base()));
      break;
    }
    const auto named = blocks.names.find(name);
    if (named != blocks.names.end()) {
      const std::vector<Chain> chains = named->second;
      for (auto chain = chains.rbegin(); chain != chains.rend(); ++chain) {
        const Known& known = blocks.known.at(*chain);
        if (known.tiers & Bit(event.tier)) {
          Drop(blocks, *chain, event.tier);
          found = true;
          break;
        }
        found |= known.removed_by == blocks.events;
      }
    }
    if (!found) result.status = ApplyStatus::kBlockNotFound;
  }
  return result;
}

bool NaiveIndex::Hold(RankBlocks& blocks, Chain chain, EngineHash name, Tiers tiers, Claim claim) {
  const bool changed = HoldOne(blocks, chain, name, tiers, claim);
  // Whoever waits for this name has its place now: the block itself, then its children.
  std::vector<std::pair<EngineHash, Chain>> placed{{name, chain}};
  while (!placed.empty()) {
    const auto [parent, at] = placed.back();
    placed.pop_back();
    for (std::size_t i = 0; i < blocks.waiting.size();) {
      const Waiting block = blocks.waiting[i];
      const bool is_same = !block.content && block.name == parent;
      const bool is_child = block.content && block.parent == parent;
      if (!is_same && !is_child) {
        ++i;
        continue;
      }
      blocks.waiting.erase(blocks.waiting.begin() + static_cast<std::ptrdiff_t>(i));
      const Chain place = is_same ? at : Extend(at, block.content->local);
      HoldOne(blocks, place, block.name, block.tiers, {!block.content, block.eligible});
      if (is_child) placed.emplace_back(block.name, place);
    }
  }
  return changed;
}

bool NaiveIndex::HoldOne(RankBlocks& blocks, Chain chain, EngineHash name, Tiers tiers,
                         Claim claim) {
  Known& known = blocks.known[chain];
  const Known before = known;
  if (before.tiers == 0) std::erase(blocks.remembered, chain);
  if (before.name != name) {
    std::erase(blocks.names[before.name], chain);
    if (blocks.names[before.name].empty()) blocks.names.erase(before.name);
  }
  std::vector<Chain>& same_name = blocks.names[name];
  if (std::erase(same_name, chain) == 0 && !same_name.empty()) ++name_conflicts_;
  same_name.push_back(chain);
  known.name = name;
  known.tiers |= tiers;
  known.eligible = claim.by_name ? before.eligible || claim.eligible
                                 : claim.eligible && (before.tiers == 0 || before.eligible);

  const Chain parent = links_[chain].first;
  if ((tiers & Bit(Tier::kDevice)) && (parent == 0 || blocks.reachable.contains(parent)))
    blocks.reachable.insert(chain);
  return known.tiers != before.tiers;
}

void NaiveIndex::Drop(RankBlocks& blocks, Chain chain, Tier tier) {
  Known& known = blocks.known.at(chain);
  known.tiers &= ~Bit(tier);
  known.removed_by = blocks.events;
  if (tier == Tier::kDevice) {
    for (auto it = blocks.reachable.begin(); it != blocks.reachable.end();)
      it = Extends(*it, chain) ? blocks.reachable.erase(it) : std::next(it);
  }
  if (known.tiers != 0) return;
  blocks.remembered.push_back(chain);
  if (blocks.remembered.size() > options_.remembered_names_max)
    Forget(blocks, blocks.remembered.front());
}

void NaiveIndex::Forget(RankBlocks& blocks, Chain chain) {
  std::erase(blocks.remembered, chain);
  const auto named = blocks.names.find(blocks.known.at(chain).name);
  std::erase(named->second, chain);
  if (named->second.empty()) blocks.names.erase(named);
  blocks.known.erase(chain);
}

void NaiveIndex::Wait(RankBlocks& blocks, Waiting block, ApplyResult& result) {
  if (const auto held = Named(blocks, block.name, true);
      held && block.content && links_[*held].second == block.content->local) {
    bool& eligible = blocks.known.at(*held).eligible;  // behind a block that is held no more
    eligible = block.eligible = eligible && block.eligible;
  }
  // One name with two contents, or behind two parents, is two blocks. Without either the name means
  // the newest.
  for (auto other = blocks.waiting.rbegin(); other != blocks.waiting.rend(); ++other) {
    const bool both = block.content && other->content;
    if (other->name != block.name ||
        (both && (block.content != other->content || block.parent != other->parent)))
      continue;
    Waiting merged = block;
    merged.tiers |= other->tiers;
    if (!block.content) {
      merged.content = other->content;
      merged.parent = other->parent;
      merged.eligible = other->eligible;
    } else if (both) {
      merged.eligible = block.eligible && other->eligible;
    }
    blocks.waiting.erase(std::prev(other.base()));
    blocks.waiting.push_back(merged);
    return;
  }
  if (options_.pending_blocks_max == 0 || blocks.waiting.size() >= options_.pending_blocks_max) {
    const bool none = options_.pending_blocks_max == 0;
    const Waiting& dropped = none ? block : blocks.waiting.front();
    ++pending_dropped_;
    if (dropped.content) ++result.dropped_blocks;
    if (none) return;
    blocks.waiting.erase(blocks.waiting.begin());
  }
  blocks.waiting.push_back(block);
}

std::optional<NaiveIndex::Chain> NaiveIndex::Named(const RankBlocks& blocks, EngineHash name,
                                                   bool held_only) {
  const auto named = blocks.names.find(name);
  if (named == blocks.names.end()) return std::nullopt;
  for (auto chain = named->second.rbegin(); chain != named->second.rend(); ++chain) {
    if (blocks.known.at(*chain).tiers != 0) return *chain;
  }
  if (held_only) return std::nullopt;
  return named->second.back();
}

NaiveIndex::Chain NaiveIndex::Extend(Chain parent, BlockHash local) {
  const auto [it, added] = chains_.try_emplace({parent, local}, links_.size());
  if (added) links_.emplace_back(parent, local);
  return it->second;
}

std::optional<NaiveIndex::Chain> NaiveIndex::Find(Chain parent, BlockHash local) const {
  const auto it = chains_.find({parent, local});
  if (it == chains_.end()) return std::nullopt;
  return it->second;
}

bool NaiveIndex::Extends(Chain chain, Chain prefix) const {
  while (chain > prefix)  // a chain has a higher number than its parent
    chain = links_[chain].first;
  return chain == prefix;
}

void NaiveIndex::Match(std::span<const BlockHash> blocks, const MatchOptions& options,
                       OverlapScores& scores) const {
  Lock lock(mutex_);
  scores.Reset(slots_.size());
  std::vector<Chain> path;  // as far as any rank ever announced it
  Chain at = 0;
  for (const BlockHash block : blocks) {
    const std::optional<Chain> next = Find(at, block);
    if (!next) break;
    path.push_back(at = *next);
  }
  std::vector<std::uint32_t>& holders = scores.mutable_device_holders();
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) continue;
    const RankBlocks& rank = *slots_[slot];
    RankOverlap overlap;
    overlap.rank = rank.rank;
    std::size_t depth = 0;
    for (std::size_t tier = 0; tier < (options.device_only ? 1 : kTierCount); ++tier) {
      for (; depth < path.size(); ++depth) {
        const auto known = rank.known.find(path[depth]);
        if (known == rank.known.end() || !(known->second.tiers & (1u << tier))) break;
        overlap.last = known->second.name;
        ++overlap.blocks[tier];
      }
    }
    if (depth > 0) scores.Score(static_cast<RankSlot>(slot), overlap);
    if (!options.device_holders) continue;
    if (holders.size() < overlap.device()) holders.resize(overlap.device());
    for (std::uint32_t i = 0; i < overlap.device(); ++i)
      ++holders[i];
  }
  if (options.best > 0) scores.KeepDeepest(options.best);
  scores.Seal();
}

void NaiveIndex::FindBlocks(std::span<const SequenceHash> sequence,
                            std::vector<BlockHash>& blocks) const {
  Lock lock(mutex_);
  blocks.clear();
  Chain at = 0;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const auto next = std::find_if(chains_.begin(), chains_.end(), [&](const auto& entry) {
      const auto& [parent, local] = entry.first;
      return parent == at &&
             sequence[i] == (i == 0 ? hashing::FirstSequenceHash(local)
                                    : hashing::NextSequenceHash(sequence[i - 1], local));
    });
    if (next == chains_.end()) return;
    blocks.push_back(next->first.second);
    at = next->second;
  }
}

std::vector<Rank> NaiveIndex::Ranks() const {
  Lock lock(mutex_);
  std::vector<Rank> ranks;
  for (const auto& slot : slots_) {
    if (slot) ranks.push_back(slot->rank);
  }
  return ranks;
}

void NaiveIndex::CopyRank(Rank rank, RankCopy& copy) const {
  copy = {};
  Lock lock(mutex_);
  for (const auto& slot : slots_) {
    if (!slot || slot->rank != rank) continue;
    std::set<Chain> way{0};         // reachable through blocks held in any tier
    std::set<Chain> device_way{0};  // and through the device tier alone
    for (const auto& [chain, known] : slot->known) {
      const auto [parent, local] = links_[chain];
      if (known.tiers == 0 || !way.contains(parent)) continue;
      if (parent != 0 && slot->known.at(parent).name == known.name) continue;
      way.insert(chain);
      RankCopy::Run run;
      run.device_way = (known.tiers & Bit(Tier::kDevice)) && device_way.contains(parent);
      if (run.device_way) device_way.insert(chain);
      run.begin = copy.blocks.size();
      run.end = run.begin + 1;
      run.tiers = known.tiers;
      run.eligible = known.eligible;
      if (parent != 0) run.parent = slot->known.at(parent).name;
      copy.runs.push_back(run);
      copy.blocks.push_back({known.name, local});
    }
  }
}

IndexStats NaiveIndex::Stats() const {
  Lock lock(mutex_);
  IndexStats stats;
  std::set<Chain> held;
  for (const auto& slot : slots_) {
    if (!slot) continue;
    ++stats.ranks;
    stats.pending_blocks += slot->waiting.size();
    for (const auto& [chain, known] : slot->known) {
      if (known.tiers == 0) continue;
      held.insert(chain);
      stats.memberships += static_cast<std::uint64_t>(__builtin_popcount(known.tiers));
    }
  }
  stats.nodes = held.size();
  stats.pending_dropped = pending_dropped_;
  stats.name_conflicts = name_conflicts_;
  return stats;
}

RankStats NaiveIndex::StatsOf(RankSlot slot) const {
  Lock lock(mutex_);
  RankStats stats;
  if (Raw(slot) >= slots_.size() || !slots_[Raw(slot)]) return stats;
  const RankBlocks& blocks = *slots_[Raw(slot)];
  stats.rank = blocks.rank;
  stats.pending_blocks = blocks.waiting.size();
  for (const auto& [chain, known] : blocks.known) {
    for (std::size_t tier = 0; tier < kTierCount; ++tier)
      stats.blocks[tier] += (known.tiers >> tier) & 1u;
  }
  return stats;
}

NaiveIndex::Bounds NaiveIndex::DeviceBounds(Rank rank, std::span<const BlockHash> blocks) const {
  Lock lock(mutex_);
  Bounds bounds;
  for (const auto& slot : slots_) {
    if (!slot || slot->rank != rank) continue;
    bool reachable = true;
    Chain at = 0;
    for (const BlockHash block : blocks) {
      const std::optional<Chain> next = Find(at, block);
      const auto known = next ? slot->known.find(*next) : slot->known.end();
      if (known == slot->known.end() || !(known->second.tiers & Bit(Tier::kDevice))) break;
      at = *next;
      ++bounds.upper;
      reachable = reachable && slot->reachable.contains(at);
      bounds.lower += reachable ? 1 : 0;
    }
  }
  return bounds;
}

}  // namespace kvr::index
