#include "tokens/token_cache.h"

#include <iterator>
#include <utility>

#include <xxhash.h>

namespace kvr::tokens {

TokenList TokenCache::Find(std::string_view input) {
  const Key key = KeyOf(input);
  const Lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().tokens;
}

void TokenCache::Put(std::string_view input, TokenList tokens) {
  Entry entry{KeyOf(input), std::move(tokens)};
  const std::size_t bytes = BytesOf(entry);
  if (bytes > options_.bytes_max) return;
  const Lock lock(mutex_);
  if (const auto found = by_key_.find(entry.key); found != by_key_.end()) Drop(found->second);
  while (stats_.bytes + bytes > options_.bytes_max) {
    Drop(std::prev(entries_.end()));
    ++stats_.evicted;
  }
  stats_.bytes += bytes;
  entries_.push_front(std::move(entry));
  by_key_.emplace(entries_.front().key, entries_.begin());
}

TokenCache::Stats TokenCache::stats() const {
  const Lock lock(mutex_);
  Stats stats = stats_;
  stats.entries = entries_.size();
  return stats;
}

TokenCache::Key TokenCache::KeyOf(std::string_view input) const {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(input.data(), input.size(), options_.hash_seed);
  return {hash.low64, hash.high64};
}

std::size_t TokenCache::BytesOf(const Entry& entry) {
  constexpr std::size_t kBookkeeping = 160;  // list node, map node, control block
  return kBookkeeping + entry.tokens->capacity() * sizeof(TokenId);
}

void TokenCache::Drop(Entries::iterator entry) {
  stats_.bytes -= BytesOf(*entry);
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace kvr::tokens
