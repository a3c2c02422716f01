// Which guessed blocks of one rank are to go next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "index/hash_mix.h"
#include "model/ids.h"

namespace kvr::index {

// The entries of one rank in two orders: least recently used first, of one path the deepest first;
// and by when they are due. Entries that running requests use are in neither and do not go. Not
// thread-safe.
class DecisionEntries {
 public:
  explicit DecisionEntries(std::uint64_t hash_seed) : places_(0, SeededHash{hash_seed}) {}

  // A path is used now and due not before `due`, nor before an earlier use said. `hold`: a request
  // keeps it in use until it is released as often as it was held.
  void Use(std::span<const SequenceHash> path, Nanos due, bool hold);
  void Release(std::span<const SequenceHash> path);

  // Drops entries and appends their names to `out`: those due at `now`, or the `count` least
  // recently used.
  void TakeDue(Nanos now, std::vector<EngineHash>& out);
  void TakeOldest(std::size_t count, std::vector<EngineHash>& out);

  [[nodiscard]] std::size_t size() const { return places_.size(); }
  // When the first is due; none when none can be.
  [[nodiscard]] std::optional<Nanos> next_due() const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;
  struct Links {
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
  };
  struct Entry {
    SequenceHash name{};
    Nanos due{};
    std::uint32_t users = 0;
    Links by_use;
    Links by_due;  // among those due at the same time
  };

  std::uint32_t FindOrAdd(SequenceHash name);
  void Append(std::uint32_t at);
  void Unlink(std::uint32_t at);
  void Take(std::uint32_t at, std::vector<EngineHash>& out);
  // Gives memory back when most entries are gone.
  void Shrink();

  std::unordered_map<std::uint64_t, std::uint32_t, SeededHash> places_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
  std::map<Nanos, std::uint32_t> due_;  // → the first that is due then
};

}  // namespace kvr::index
