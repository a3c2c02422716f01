#include "placement/chunk_book.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "hashing/block_hash.h"

namespace kvr::placement {
namespace {

SequenceHash Next(std::optional<SequenceHash> parent, BlockHash block) {
  return parent ? hashing::NextSequenceHash(*parent, block) : hashing::FirstSequenceHash(block);
}

}  // namespace

std::size_t ChunkBook::Learn(std::optional<EngineHash> parent, std::span<const BlockHash> blocks,
                             std::span<const EngineHash> names) {
  std::optional<SequenceHash> at;
  if (parent) {
    const auto known = place_of_.find(Raw(*parent));
    if (known == place_of_.end()) return 0;
    at = known->second;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    at = Next(at, blocks[i]);
    if (!Put(names[i], *at)) return blocks.size() - i;
  }
  return 0;
}

bool ChunkBook::Put(EngineHash name, SequenceHash at) {
  const auto known = place_of_.find(Raw(name));
  if (known == place_of_.end()) {
    if (place_of_.size() >= blocks_max_) return false;
    place_of_.emplace(Raw(name), at);
  } else {
    if (known->second == at) return true;
    Leave(known->second);
    known->second = at;
  }
  Place& place = by_place_.try_emplace(Raw(at), Place{name}).first->second;
  place.ambiguous = place.ambiguous || place.name != name;
  ++place.names;
  return true;
}

// One of two that share a place does not make the other's right again.
void ChunkBook::Leave(SequenceHash at) {
  const auto place = by_place_.find(Raw(at));
  if (place != by_place_.end() && --place->second.names == 0) by_place_.erase(place);
}

void ChunkBook::Forget(EngineHash name) {
  const auto known = place_of_.find(Raw(name));
  if (known == place_of_.end()) return;
  Leave(known->second);
  place_of_.erase(known);
}

const ChunkBook::Chunk* ChunkBook::Store(EngineHash name, std::optional<EngineHash> parent,
                                         std::span<const BlockHash> blocks, bool whole, Tier tier,
                                         double now, bool& repeated) {
  const double expires = now + ttl_seconds_;
  const auto again = chunks_.find(Raw(name));
  repeated = again != chunks_.end();
  if (repeated) {
    if (again->second.expires != expires) queue_.push_back({name, expires});
    again->second.expires = expires;
    return &again->second;
  }
  Chunk chunk;
  chunk.whole = whole;
  chunk.tier = tier;
  chunk.expires = expires;
  std::optional<SequenceHash> at;
  if (parent && Raw(*parent) != 0) {  // some adapters write 0 for the root
    const auto before = chunks_.find(Raw(*parent));
    if (before == chunks_.end() || !before->second.whole) return nullptr;
    at = before->second.end;
  }
  for (const BlockHash block : blocks) {
    at = Next(at, block);
    const auto known = by_place_.find(Raw(*at));
    if (known != by_place_.end() && !known->second.ambiguous)
      chunk.names.push_back(known->second.name);
  }
  if (!at || chunk.names.empty()) return nullptr;
  chunk.end = *at;
  chunk.names.shrink_to_fit();
  chunk_names_ += chunk.names.size();
  queue_.push_back({name, expires});
  return &chunks_.emplace(Raw(name), std::move(chunk)).first->second;
}

std::optional<ChunkBook::Chunk> ChunkBook::Expire(double now) {
  while (!queue_.empty() && (queue_.front().expires <= now || IsCrowded())) {
    const Turn turn = queue_.front();
    queue_.pop_front();
    const auto found = chunks_.find(Raw(turn.chunk));
    if (found == chunks_.end() || found->second.expires != turn.expires) continue;
    Chunk gone = std::move(found->second);
    chunks_.erase(found);
    chunk_names_ -= gone.names.size();
    return gone;
  }
  return std::nullopt;
}

void ChunkBook::Clear() {
  by_place_.clear();
  place_of_.clear();
  chunks_.clear();
  queue_.clear();
  chunk_names_ = 0;
}

std::size_t ChunkBook::bytes() const {
  if (!begun_) return 0;
  const auto map = [](const auto& table) {
    using Entry = typename std::decay_t<decltype(table)>::value_type;
    return table.size() * (sizeof(Entry) + sizeof(void*)) + table.bucket_count() * sizeof(void*);
  };
  return map(by_place_) + map(place_of_) + map(chunks_) + queue_.size() * sizeof(Turn) +
         chunk_names_ * sizeof(EngineHash);
}

}  // namespace kvr::placement
