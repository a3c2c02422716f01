// Finds a repeated hash within one event. Private to the module.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/reused_lists.h"
#include "model/ids.h"

namespace kvr::placement {

// A set that is emptied by counting on, so that a new round costs nothing. Keeps its room, but for
// what only an extraordinary event needed. Not thread-safe.
class HashSet {
 public:
  // Replaces the content. Whether a store of these blocks behind `parent` has one that would stand
  // behind itself; `name_of` is a block's name.
  template <typename Blocks, typename NameOf>
  bool FindRepeated(std::optional<EngineHash> parent, const Blocks& blocks, const NameOf& name_of) {
    if (looks_.IsDue()) [[unlikely]]
      GiveBack();
    if (blocks.size() == 1) return parent == name_of(blocks.front());
    Begin(blocks.size() + 1);
    if (parent) Insert(*parent);
    return !std::all_of(blocks.begin(), blocks.end(),
                        [&](const auto& block) { return Insert(name_of(block)); });
  }

 private:
  // Empties the set and makes room for `count` hashes.
  void Begin(std::size_t count) {
    const std::size_t wanted = std::bit_ceil(count * 2 + 2);
    if (slots_.size() < wanted) {
      slots_.assign(wanted, Slot{});
      round_ = 0;
    }
    ++round_;
  }

  // False when it was there already.
  bool Insert(EngineHash hash) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = Spread(hash) & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.round != round_) {
        slot = Slot{hash, round_};
        return true;
      }
      if (slot.hash == hash) return false;
    }
  }

  void GiveBack() {
    if (slots_.size() * sizeof(Slot) > ReusedLists::kKeptBytesMax) std::vector<Slot>().swap(slots_);
  }

  struct Slot {
    EngineHash hash{};
    std::uint64_t round = 0;
  };

  static std::size_t Spread(EngineHash hash) {
    const std::uint64_t mixed = Raw(hash) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
  }

  std::vector<Slot> slots_;
  std::uint64_t round_ = 0;
  ReusedLists looks_;
};

}  // namespace kvr::placement
