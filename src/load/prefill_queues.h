// The prompt tokens each rank was given and has not worked off yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "load/prompt_trie.h"

namespace kvr::load {

// One queue a rank, first in first out, of requests in prefill. An item may carry the time its
// prefill is expected to take; the tokens then fade while time passes instead of vanishing at once:
//
//   every item has one  Σ − ⌊front · elapsed / front duration⌋: the front's rate carries on into
//   the
//                       items behind it
//   some have none      only the front fades, if it has one
//   front duration 0    the front counts as done, nothing more
//
// where `elapsed` runs from when the front became the front. Not thread-safe.
class PrefillQueues {
 public:
  // Items are named by the caller with small dense numbers. `tokens` is at least 1, `item` is in no
  // queue.
  void Push(LoadSlot slot, std::uint32_t item, std::uint64_t tokens, std::optional<Nanos> duration,
            Nanos now);

  // Removing the front lets the next one start now. Removing another, where every item has a
  // duration, counts its time as worked off: the start of the front moves on by it, up to now.
  void Remove(LoadSlot slot, std::uint32_t item, Nanos now);

  [[nodiscard]] bool Contains(std::uint32_t item) const {
    return item < items_.size() && items_[item].tokens > 0;
  }
  [[nodiscard]] std::uint64_t ActiveTokens(LoadSlot slot, Nanos now) const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Item {
    std::uint64_t tokens = 0;  // 0: in no queue
    std::optional<Nanos> duration;
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
  };
  struct Queue {
    std::uint32_t front = kNone;
    std::uint32_t back = kNone;
    std::uint64_t tokens = 0;
    std::size_t without_duration = 0;
    Nanos front_since{};
  };

  std::vector<Queue> queues_;  // by slot
  std::vector<Item> items_;    // by item
};

}  // namespace kvr::load
