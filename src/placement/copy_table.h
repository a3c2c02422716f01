// What is known of the blocks of one rank between frames. Private to the module.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"

namespace kvr::placement {

// The cache salt a block was stored with.
enum class SaltState : std::uint8_t {
  kUnknown,  // no store has said
  kNone,
  kSalted,
  kAmbiguous,  // different ones; children that do not say their own cannot be named
};

struct BlockRecord {
  std::array<std::uint32_t, kTierCount> copies{};  // physical copies, per tier
  SaltState salt_state = SaltState::kUnknown;
  bool keyed : 1 = false;      // its hash covers keys of its own, beside tokens, adapter and salt
  bool placed : 1 = false;     // a store on the device said its place
  bool misplaced : 1 = false;  // the name stands for blocks in several places: none is indexed
  std::uint8_t twins : 5 = 0;  // further blocks of this name that differ by their salt: copies of
                               // which, nobody can tell
  std::uint16_t epoch = 0;     // CopyTable's: since when the copies are counted; may wrap
  std::uint32_t place = 0;     // of its content and its parent, a hash; 0 when no store has said
  std::uint64_t salt_mix = 0;  // the salt's share of the seed; the salt itself is a secret

  [[nodiscard]] bool on_path() const { return copies[0] + copies[1] > 0; }
  // The device told one place and no other.
  [[nodiscard]] bool has_one_place() const { return placed && !misplaced && twins == 0; }
  [[nodiscard]] bool held() const { return on_path() || copies[2] + copies[3] > 0; }
};

static_assert(sizeof(BlockRecord) == 32);

inline constexpr std::uint8_t kTwinsMax = 31;

// Engine hash → record: open addressing with linear probing, the hashes apart from the records, so
// that a search mostly stays in one cache line. A table of a large rank does not fit a cache; who
// works on many hashes asks for them ahead with Prefetch. Grows by doubling, and is halved as it
// empties; Clear gives all but a small one back. Not thread-safe. Pointers are valid until the next
// Add, Erase or Clear.
class CopyTable {
 public:
  explicit CopyTable(std::size_t records_max) : records_max_(records_max) {}

  void Prefetch(EngineHash hash) const {
    if (keys_.empty()) return;
    const std::size_t home = HomeOf(hash);
    __builtin_prefetch(keys_.data() + home);
    __builtin_prefetch(records_.data() + home, 1);
  }
  // Null when there is none.
  BlockRecord* Find(EngineHash hash);
  // The record, made when there is none; null when the table is full.
  BlockRecord* Add(EngineHash hash);
  // `record` is one that Find or Add returned.
  void Erase(BlockRecord* record);
  void Clear();
  [[nodiscard]] std::size_t size() const { return size_; }
  // Heap in use, without the allocator's own.
  [[nodiscard]] std::size_t bytes() const {
    return keys_.capacity() * sizeof(EngineHash) + records_.capacity() * sizeof(BlockRecord);
  }
  // Calls `use` with every hash and its record, in no particular order.
  template <typename Use>
  void ForEach(Use use) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] != kEmpty) use(keys_[i], *Current(&records_[i]));
    }
    if (has_zero_) use(kEmpty, *Current(&zero_));
  }
  // Erases what `drop` says, which may change a record that stays.
  template <typename Drop>
  void EraseIf(Drop drop);
  // Sets all counts to 0 and keeps the salts. Costs nothing now: a record is emptied when it is
  // found again. Only once in 65,536 times all are looked at.
  void ForgetCounts();

  // Something is stored in the tier.
  void NoteStore(Tier tier) { used_[static_cast<std::size_t>(tier)] = true; }
  // A block has no record, so that its copies are not counted.
  void NoteUncounted() { complete_ = false; }
  // Whether anything was stored in the tier since the last Clear.
  [[nodiscard]] bool used(Tier tier) const { return used_[static_cast<std::size_t>(tier)]; }
  // Whether the copies of every store since the last Clear are counted.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  static constexpr EngineHash kEmpty{0};

  // Fibonacci hashing: the upper bits of the product depend on all of the hash.
  [[nodiscard]] std::size_t HomeOf(EngineHash hash) const {
    return static_cast<std::size_t>(Raw(hash) * 0x9E3779B97F4A7C15u >> shift_);
  }
  [[nodiscard]] std::size_t PlaceOf(EngineHash hash) const;
  BlockRecord* Current(BlockRecord* record) const {
    if (record->epoch != epoch_) {
      record->epoch = epoch_;
      record->copies = {};
    }
    return record;
  }
  void Rehash(std::size_t capacity);

  std::size_t records_max_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
  std::uint16_t epoch_ = 0;
  std::array<bool, kTierCount> used_{};
  bool complete_ = true;
  std::vector<EngineHash> keys_;  // a power of two; kEmpty where there is none
  std::vector<BlockRecord> records_;
  // Of the hash that means "empty" among the keys.
  bool has_zero_ = false;
  BlockRecord zero_;
};

template <typename Drop>
void CopyTable::EraseIf(Drop drop) {
  std::vector<EngineHash> dropped;
  ForEach([&](EngineHash hash, BlockRecord& record) {
    if (drop(record)) dropped.push_back(hash);
  });
  for (const EngineHash hash : dropped)
    Erase(Find(hash));
}

}  // namespace kvr::placement
