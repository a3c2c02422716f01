// Remembers which token ids a text became.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "model/ids.h"

namespace kvr::tokens {

using TokenList = std::shared_ptr<const std::vector<TokenId>>;

// Least recently used entries give way when the bytes reach their maximum. Entries are found by a
// 128-bit hash of the input with a seed that clients do not know; the input itself is not kept.
// Thread-safe.
class TokenCache {
 public:
  struct Options {
    std::size_t bytes_max = 64u << 20;  // ids and bookkeeping; 0 keeps nothing
    std::uint64_t hash_seed = 0;        // a secret one in production
  };

  struct Stats {
    std::size_t entries = 0;
    std::size_t bytes = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t evicted = 0;
  };

  explicit TokenCache(const Options& options) : options_(options) {}

  // Null when it is not there.
  [[nodiscard]] TokenList Find(std::string_view input) KVR_EXCLUDES(mutex_);
  // Replaces what is there. A list that alone exceeds the maximum is not kept.
  void Put(std::string_view input, TokenList tokens) KVR_EXCLUDES(mutex_);
  [[nodiscard]] Stats stats() const KVR_EXCLUDES(mutex_);

 private:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return static_cast<std::size_t>(key.low); }
  };
  struct Entry {
    Key key;
    TokenList tokens;
  };
  using Entries = std::list<Entry>;

  [[nodiscard]] Key KeyOf(std::string_view input) const;
  static std::size_t BytesOf(const Entry& entry);
  void Drop(Entries::iterator entry) KVR_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  Entries entries_ KVR_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_ KVR_GUARDED_BY(mutex_);
  Stats stats_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::tokens
