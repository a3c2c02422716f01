#include "sim/kv_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace kvr::sim {
namespace {

void AppendStored(std::vector<KvEvent>& events, Tier tier, std::optional<EngineHash> parent,
                  EngineHash hash, std::span<const TokenId> tokens) {
  const bool continues = parent && !events.empty() &&
                         events.back().kind == PlacementKind::kStored &&
                         events.back().hashes.back() == *parent;
  if (!continues) {
    events.push_back({.kind = PlacementKind::kStored, .tier = tier, .parent = parent});
  }
  events.back().hashes.push_back(hash);
  events.back().tokens.insert(events.back().tokens.end(), tokens.begin(), tokens.end());
}

void AppendRemoved(std::vector<KvEvent>& events, Tier tier, EngineHash hash) {
  events.push_back({.kind = PlacementKind::kRemoved, .tier = tier, .hashes = {hash}});
}

}  // namespace

KvPool::KvPool(const Options& options) : options_(options), states_(options.blocks_max) {
  KVR_CHECK(options.block_size > 0 && options.blocks_max > 0 && options.blocks_max < kNone);
  free_.reserve(options.blocks_max);
  for (Block block = options.blocks_max; block-- > 0;)
    free_.push_back(block);
}

KvPool::Hit KvPool::Find(std::span<const EngineHash> chain) const {
  Hit hit;
  for (const EngineHash hash : chain) {
    const Block copy = FindCopy(hash);
    if (copy == kNone) break;
    ++hit.device;
    if (states_[copy].holds > 0) ++hit.device_active;
  }
  for (const EngineHash hash : chain.subspan(hit.device)) {
    if (!host_.contains(hash)) break;
    ++hit.host;
  }
  return hit;
}

bool KvPool::Reserve(std::span<const EngineHash> hits, std::uint32_t fresh,
                     std::vector<Block>& blocks) {
  std::size_t wanted = fresh;
  for (const EngineHash hash : hits) {
    const Block copy = FindCopy(hash);
    KVR_CHECK(copy != kNone);
    if (states_[copy].holds == 0) ++wanted;
  }
  if (wanted > free_.size() + idle_) return false;
  // Hits are held before anything is evicted, so that making room never costs the prefix itself.
  for (const EngineHash hash : hits) {
    const Block copy = FindCopy(hash);
    Hold(copy);
    blocks.push_back(copy);
  }
  for (std::uint32_t i = 0; i < fresh; ++i)
    blocks.push_back(TakeFresh());
  return true;
}

void KvPool::Commit(Block block, std::optional<EngineHash> parent, EngineHash hash,
                    std::span<const TokenId> tokens) {
  if (!options_.prefix_caching) return;
  State& state = states_[block];
  KVR_CHECK(state.holds > 0 && !state.cached && tokens.size() == options_.block_size);
  state.cached = true;
  state.hash = hash;
  const auto [entry, first] = first_copy_.try_emplace(hash, block);
  if (first) {
    AppendStored(device_events_, Tier::kDevice, parent, hash, tokens);
  } else {
    state.next_copy = std::exchange(entry->second, block);
  }
  if (options_.host_blocks_max > 0) StoreOnHost(parent, hash, tokens);
}

void KvPool::Release(std::vector<Block>& blocks) {
  for (std::size_t i = blocks.size(); i-- > 0;) {
    State& state = states_[blocks[i]];
    KVR_CHECK(state.holds > 0);
    if (state.cached) TouchOnHost(state.hash);
    if (--state.holds > 0) continue;
    --active_;
    if (state.cached) {
      LinkIdle(blocks[i]);
    } else {
      free_.push_back(blocks[i]);
    }
  }
  blocks.clear();
}

bool KvPool::Clear() {
  if (active_ > 0) return false;
  while (oldest_ != kNone) {
    const Block block = oldest_;
    UnlinkIdle(block);
    states_[block] = State{};
    free_.push_back(block);
  }
  first_copy_.clear();
  host_.clear();
  host_lru_.clear();
  // What came up before the clear is void, but a reader of the stream may not skip it.
  std::move(host_events_.begin(), host_events_.end(), std::back_inserter(device_events_));
  host_events_.clear();
  device_events_.push_back({.kind = PlacementKind::kCleared});
  return true;
}

std::vector<KvEvent> KvPool::TakeEvents() {
  std::vector<KvEvent> events = std::exchange(device_events_, {});
  std::move(host_events_.begin(), host_events_.end(), std::back_inserter(events));
  host_events_.clear();
  return events;
}

std::vector<EngineHash> KvPool::Visible(Tier tier) const {
  std::vector<EngineHash> hashes;
  if (tier == Tier::kDevice) {
    for (const auto& [hash, block] : first_copy_)
      hashes.push_back(hash);
  } else if (tier == Tier::kHostPinned) {
    hashes.assign(host_lru_.begin(), host_lru_.end());
  }
  std::sort(hashes.begin(), hashes.end());
  return hashes;
}

KvPool::Block KvPool::FindCopy(EngineHash hash) const {
  const auto entry = first_copy_.find(hash);
  if (entry == first_copy_.end()) return kNone;
  for (Block copy = entry->second; copy != kNone; copy = states_[copy].next_copy) {
    if (states_[copy].holds > 0) return copy;
  }
  return entry->second;
}

void KvPool::Hold(Block block) {
  if (states_[block].holds++ > 0) return;
  UnlinkIdle(block);
  ++active_;
}

KvPool::Block KvPool::TakeFresh() {
  Block block = kNone;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = oldest_;
    KVR_CHECK(block != kNone);
    UnlinkIdle(block);
    Uncache(block);
    ++evicted_;
  }
  states_[block].holds = 1;
  ++active_;
  return block;
}

void KvPool::Uncache(Block block) {
  State& state = states_[block];
  const auto entry = first_copy_.find(state.hash);
  KVR_CHECK(state.cached && entry != first_copy_.end());
  if (entry->second == block && state.next_copy == kNone) {
    first_copy_.erase(entry);
    AppendRemoved(device_events_, Tier::kDevice, state.hash);
  } else if (entry->second == block) {
    entry->second = state.next_copy;
  } else {
    Block before = entry->second;
    while (states_[before].next_copy != block)
      before = states_[before].next_copy;
    states_[before].next_copy = state.next_copy;
  }
  state = State{};
}

void KvPool::LinkIdle(Block block) {
  State& state = states_[block];
  state.older = newest_;
  state.newer = kNone;
  (newest_ == kNone ? oldest_ : states_[newest_].newer) = block;
  newest_ = block;
  ++idle_;
}

void KvPool::UnlinkIdle(Block block) {
  State& state = states_[block];
  (state.older == kNone ? oldest_ : states_[state.older].newer) = state.newer;
  (state.newer == kNone ? newest_ : states_[state.newer].older) = state.older;
  state.older = state.newer = kNone;
  --idle_;
}

void KvPool::StoreOnHost(std::optional<EngineHash> parent, EngineHash hash,
                         std::span<const TokenId> tokens) {
  if (host_.contains(hash)) return TouchOnHost(hash);
  if (host_.size() == options_.host_blocks_max) {
    const EngineHash victim = host_lru_.front();
    host_.erase(victim);
    host_lru_.pop_front();
    AppendRemoved(host_events_, Tier::kHostPinned, victim);
  }
  host_.emplace(hash, host_lru_.insert(host_lru_.end(), hash));
  AppendStored(host_events_, Tier::kHostPinned, parent, hash, tokens);
}

void KvPool::TouchOnHost(EngineHash hash) {
  const auto entry = host_.find(hash);
  if (entry != host_.end()) host_lru_.splice(host_lru_.end(), host_lru_, entry->second);
}

}  // namespace kvr::sim
