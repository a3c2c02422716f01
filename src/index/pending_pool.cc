#include "index/pending_pool.h"

#include <algorithm>
#include <iterator>

#include "index/heap_bytes.h"

namespace kvr::index {

std::optional<PendingBlock> PendingPool::Add(PendingBlock block) {
  std::optional<PendingBlock> dropped;
  if (const auto same = FindSame(block); same != blocks_.end()) {
    const PendingBlock before = TakeOut(same);
    block.tiers |= before.tiers;
    if (!block.local) {
      block.local = before.local;
      block.parent = before.parent;
      block.eligible = before.eligible;
    } else if (before.local) {
      block.eligible = block.eligible && before.eligible;
    }
  } else if (blocks_max_ == 0) {
    return block;
  } else if (blocks_.size() >= blocks_max_) {
    dropped = TakeOut(blocks_.begin());
  }
  const Age age = next_age_++;
  blocks_.emplace(age, block);
  by_name_.emplace(block.name, age);
  if (block.local) by_content_.emplace(ContentOf(block), age);
  return dropped;
}

PendingPool::Blocks::iterator PendingPool::FindSame(const PendingBlock& block) {
  if (block.local) {
    const auto known = by_content_.find(ContentOf(block));
    if (known != by_content_.end()) return blocks_.find(known->second);
  }
  const auto newest = Newest(block.name);
  // Two contents are two blocks.
  if (newest != blocks_.end() && block.local && newest->second.local) return blocks_.end();
  return newest;
}

PendingPool::Blocks::iterator PendingPool::Newest(EngineHash name) {
  const auto after = by_name_.upper_bound({name, next_age_});
  if (after == by_name_.begin()) return blocks_.end();
  const auto& [known, age] = *std::prev(after);
  return known == name ? blocks_.find(age) : blocks_.end();
}

std::optional<PendingBlock> PendingPool::TakeNameOnly(EngineHash name) {
  const auto newest = Newest(name);
  if (newest == blocks_.end() || newest->second.local) return std::nullopt;
  return TakeOut(newest);
}

std::vector<PendingBlock> PendingPool::TakeChildren(EngineHash parent) {
  std::vector<Age> ages;
  for (auto it = by_content_.lower_bound({parent, EngineHash{}, BlockHash{}});
       it != by_content_.end() && std::get<0>(it->first) == parent; ++it)
    ages.push_back(it->second);
  std::sort(ages.begin(), ages.end());
  std::vector<PendingBlock> taken;
  taken.reserve(ages.size());
  for (const Age age : ages)
    taken.push_back(TakeOut(blocks_.find(age)));
  return taken;
}

bool PendingPool::Remove(EngineHash name, std::uint8_t tier) {
  for (auto it = by_name_.upper_bound({name, next_age_});
       it != by_name_.begin() && (--it)->first == name;) {
    const auto at = blocks_.find(it->second);
    PendingBlock& block = at->second;
    if ((block.tiers & tier) == 0) continue;
    block.tiers = static_cast<std::uint8_t>(block.tiers & ~tier);
    if (block.tiers == 0) TakeOut(at);
    return true;
  }
  return false;
}

std::size_t PendingPool::DropOldest(std::size_t count) {
  std::size_t dropped = 0;
  for (; dropped < count && !blocks_.empty(); ++dropped)
    TakeOut(blocks_.begin());
  return dropped;
}

void PendingPool::Clear() {
  blocks_.clear();
  by_name_.clear();
  by_content_.clear();
}

std::size_t PendingPool::bytes() const {
  constexpr std::size_t kTreeNode = 4 * sizeof(void*);
  const auto node = [](std::size_t value) { return HeapBytes(kTreeNode + value); };
  return blocks_.size() * node(sizeof(Blocks::value_type)) +
         by_name_.size() * node(sizeof(decltype(by_name_)::value_type)) +
         by_content_.size() * node(sizeof(decltype(by_content_)::value_type));
}

PendingBlock PendingPool::TakeOut(Blocks::iterator it) {
  const PendingBlock block = it->second;
  by_name_.erase({block.name, it->first});
  if (block.local) by_content_.erase(ContentOf(block));
  blocks_.erase(it);
  return block;
}

}  // namespace kvr::index
