// Which blocks were left out because they were not full.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "model/ids.h"

namespace kvr::wire {

// Blocks by name, and how many tokens they have: open addressing with linear probing. Keeps its
// room when it is cleared.
class BlockTable {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }

  void Insert(EngineHash name, std::uint32_t tokens) {
    if ((size_ + 1) * 4 > slots_.size() * 3) Grow();
    Slot& slot = slots_[PlaceOf(name)];
    if (!slot.used) ++size_;
    slot = {name, tokens, true};
  }

  [[nodiscard]] std::optional<std::uint32_t> Find(EngineHash name) const {
    if (size_ == 0) return std::nullopt;
    const Slot& slot = slots_[PlaceOf(name)];
    return slot.used ? std::optional(slot.tokens) : std::nullopt;
  }

  // Whether it was there.
  bool Erase(EngineHash name) {
    if (size_ == 0) return false;
    std::size_t hole = PlaceOf(name);
    if (!slots_[hole].used) return false;
    --size_;
    // Moves up what would not be found across the hole.
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t next = (hole + 1) & mask; slots_[next].used; next = (next + 1) & mask) {
      if (((next - HomeOf(slots_[next].name)) & mask) < ((next - hole) & mask)) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole].used = false;
    return true;
  }

  void Clear() {
    if (size_ > 0) std::fill(slots_.begin(), slots_.end(), Slot{});
    size_ = 0;
  }

 private:
  struct Slot {
    EngineHash name{};
    std::uint32_t tokens = 0;
    bool used = false;
  };

  [[nodiscard]] std::size_t HomeOf(EngineHash name) const {
    return static_cast<std::size_t>(Raw(name) * 0x9E3779B97F4A7C15u >> 32) & (slots_.size() - 1);
  }
  // Where the name is, or the unused slot where it belongs.
  [[nodiscard]] std::size_t PlaceOf(EngineHash name) const {
    std::size_t place = HomeOf(name);
    while (slots_[place].used && slots_[place].name != name)
      place = (place + 1) & (slots_.size() - 1);
    return place;
  }
  void Grow() {
    const std::vector<Slot> before =
        std::exchange(slots_, std::vector<Slot>(std::max<std::size_t>(16, slots_.size() * 2)));
    for (const Slot& slot : before) {
      if (slot.used) slots_[PlaceOf(slot.name)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t size_ = 0;
};

// Blocks that were left out because they were not full, so that their removals are left out as
// well. An engine has about one for each request, and never removes some of them: beyond the limit
// the older half is forgotten. A removal of one of those then passes, and finds nothing.
class PartialBlocks {
 public:
  explicit PartialBlocks(std::size_t blocks_max)
      : half_(std::max<std::size_t>(1, blocks_max / 2)) {}

  void Note(EngineHash name, std::uint32_t tokens) {
    if (young_.size() >= half_) {
      forgotten_ += old_.size();
      old_.Clear();
      std::swap(young_, old_);
    }
    old_.Erase(name);
    young_.Insert(name, tokens);
  }
  // The tokens of one that is noted.
  [[nodiscard]] std::optional<std::uint32_t> Find(EngineHash name) const {
    const auto young = young_.Find(name);
    return young ? young : old_.Find(name);
  }
  // Whether it was noted. It is not any more.
  bool Take(EngineHash name) { return young_.Erase(name) || old_.Erase(name); }
  void Clear() {
    young_.Clear();
    old_.Clear();
  }
  [[nodiscard]] std::size_t size() const { return young_.size() + old_.size(); }
  // So many, ever.
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }

 private:
  std::size_t half_;
  BlockTable young_;
  BlockTable old_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace kvr::wire
