// What is known of the blocks of one rank between frames. Private to the module.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

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
  bool mixed : 1 = false;      // stores of different content: copies of which, nobody can tell
  bool keyed : 1 = false;      // its hash covers keys of its own, beside tokens, adapter and salt
  std::uint16_t epoch = 0;     // CopyTable's: since when the copies are counted; may wrap
  std::uint32_t content = 0;   // a part of the content's hash; 0 when no store has said
  std::uint64_t salt_mix = 0;  // the salt's share of the seed; the salt itself is a secret

  [[nodiscard]] bool on_path() const { return copies[0] + copies[1] > 0; }
  [[nodiscard]] bool held() const { return on_path() || copies[2] + copies[3] > 0; }
};

static_assert(sizeof(BlockRecord) == 32);

// Engine hash → record. Not thread-safe. Pointers are valid until the next Add, Erase or Clear.
class CopyTable {
 public:
  explicit CopyTable(std::size_t records_max);
  ~CopyTable();
  CopyTable(CopyTable&&) noexcept;
  CopyTable& operator=(CopyTable&&) noexcept;

  // Null when there is none.
  BlockRecord* Find(EngineHash hash);
  // The record, made when there is none; null when the table is full.
  BlockRecord* Add(EngineHash hash);
  void Erase(EngineHash hash);
  void Clear();
  // Sets all counts to 0 and keeps the salts. Costs nothing now: a record is emptied when it is
  // found again.
  void ForgetCounts() { ++epoch_; }

 private:
  struct Map;
  BlockRecord& Current(BlockRecord& record) const;

  std::unique_ptr<Map> map_;
  std::size_t records_max_;
  std::uint16_t epoch_ = 0;
};

}  // namespace kvr::placement
