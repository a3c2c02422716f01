#include "index/pending_pool.h"

#include "index/heap_bytes.h"

namespace kvr::index {

std::size_t PendingPool::Add(PendingBlock block) {
  std::size_t dropped = 0;
  if (const auto known = by_name_.find(block.name); known != by_name_.end()) {
    const PendingBlock before = TakeOut(known).block;
    block.tiers |= before.tiers;
    if (!block.local) {
      block.local = before.local;
      block.parent = before.parent;
      block.eligible = before.eligible;
    } else if (block.local == before.local && block.parent == before.parent) {
      block.eligible = block.eligible && before.eligible;
    }
  } else if (blocks_max_ == 0) {
    return 1;
  } else if (by_name_.size() >= blocks_max_) {
    TakeOut(by_name_.find(by_age_.begin()->second));
    dropped = 1;
  }
  const Age age = next_age_++;
  by_name_.emplace(block.name, Waiting{block, age});
  by_age_.emplace(age, block.name);
  if (block.parent) by_parent_.emplace(std::pair(*block.parent, age), block.name);
  return dropped;
}

std::optional<PendingBlock> PendingPool::Take(EngineHash name) {
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return std::nullopt;
  return TakeOut(known).block;
}

std::vector<PendingBlock> PendingPool::TakeChildren(EngineHash parent) {
  std::vector<PendingBlock> taken;
  while (true) {
    const auto child = by_parent_.lower_bound({parent, 0});
    if (child == by_parent_.end() || child->first.first != parent) return taken;
    taken.push_back(TakeOut(by_name_.find(child->second)).block);
  }
}

bool PendingPool::Remove(EngineHash name, std::uint8_t tier) {
  const auto known = by_name_.find(name);
  if (known == by_name_.end() || !(known->second.block.tiers & tier)) return false;
  PendingBlock& block = known->second.block;
  block.tiers = static_cast<std::uint8_t>(block.tiers & ~tier);
  if (block.tiers == 0) TakeOut(known);
  return true;
}

std::size_t PendingPool::DropOldest(std::size_t count) {
  std::size_t dropped = 0;
  for (; dropped < count && !by_age_.empty(); ++dropped)
    TakeOut(by_name_.find(by_age_.begin()->second));
  return dropped;
}

void PendingPool::Clear() {
  by_name_.clear();
  by_age_.clear();
  by_parent_.clear();
}

std::size_t PendingPool::bytes() const {
  constexpr std::size_t kTreeNode = 4 * sizeof(void*);
  const auto node = [](std::size_t value) { return HeapBytes(kTreeNode + value); };
  return by_name_.size() * node(sizeof(decltype(by_name_)::value_type)) +
         by_age_.size() * node(sizeof(decltype(by_age_)::value_type)) +
         by_parent_.size() * node(sizeof(decltype(by_parent_)::value_type));
}

PendingPool::Waiting PendingPool::TakeOut(std::map<EngineHash, Waiting>::iterator it) {
  const Waiting waiting = it->second;
  by_age_.erase(waiting.age);
  if (waiting.block.parent) by_parent_.erase({*waiting.block.parent, waiting.age});
  by_name_.erase(it);
  return waiting;
}

}  // namespace kvr::index
