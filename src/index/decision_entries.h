// Which guessed blocks of one rank are to go next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "index/hash_mix.h"
#include "model/ids.h"

namespace kvr::index {

// The entries of one rank, least recently used first; of one path the deepest first. Entries that
// running requests use are not in that order and do not go. Not thread-safe.
class DecisionEntries {
 public:
  explicit DecisionEntries(std::uint64_t hash_seed) : places_(0, SeededHash{hash_seed}) {}

  // A path is used now and, by this decision, until `due`. `hold`: a request keeps it in use until
  // it is released as often as it was held.
  void Use(std::span<const SequenceHash> path, Nanos due, bool hold);
  void Release(std::span<const SequenceHash> path);

  // Drops the next to go and appends their names to `out`: those due at `now`, or the first
  // `count`.
  void TakeDue(Nanos now, std::vector<EngineHash>& out);
  void TakeOldest(std::size_t count, std::vector<EngineHash>& out);

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  // When the next to go is due; none when there is none.
  [[nodiscard]] std::optional<Nanos> next_due() const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;
  struct Entry {
    SequenceHash name{};
    Nanos due{};
    std::uint32_t users = 0;
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
  };

  std::uint32_t FindOrAdd(SequenceHash name);
  void Append(std::uint32_t at);
  void Unlink(std::uint32_t at);
  void TakeFirst(std::vector<EngineHash>& out);

  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> places_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
};

}  // namespace kvr::index
