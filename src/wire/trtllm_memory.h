// What earlier events of a TensorRT-LLM stream taught. Private to the decoder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "wire/partial_blocks.h"

namespace kvr::wire {

// Which attention window of an engine is the main one: the largest. An engine says which there are
// when it starts; who comes later learns from the events themselves.
class WindowTable {
 public:
  void Created(std::uint64_t window) {
    main_ = announced_ ? std::max(main_, window) : window;
    announced_ = true;
    seen_main_ = true;
  }

  // An event of a window; 0 is one that does not say.
  void Seen(std::uint64_t window) {
    if (window == 0 || announced_) return;
    largest_seen_ = std::max(largest_seen_, window);
    seen_main_ = seen_main_ || window == main_;
    ++events_;
    // What was learned before a reset holds unless the events disprove it: a larger window does at
    // once, one that nobody speaks of any more after a while.
    if (window > main_) {
      main_ = window;
      seen_main_ = true;
    } else if (!seen_main_ && events_ >= kEventsToForget) {
      main_ = largest_seen_;
      seen_main_ = true;
    }
  }

  [[nodiscard]] std::uint64_t main() const { return main_; }  // 0 before any window was told
  [[nodiscard]] bool IsMinor(std::uint64_t window) const { return window != 0 && window < main_; }
  // Since the last reset it was announced, or somebody spoke of it: it only grows from then on.
  [[nodiscard]] bool main_is_seen() const { return seen_main_; }

  void Reset() {
    announced_ = false;
    seen_main_ = false;
    largest_seen_ = 0;
    events_ = 0;
  }

 private:
  static constexpr std::uint64_t kEventsToForget = 256;

  std::uint64_t main_ = 0;
  bool announced_ = false;  // by the engine, since the last reset
  bool seen_main_ = false;  // since the last reset
  std::uint64_t largest_seen_ = 0;
  std::uint64_t events_ = 0;
};

// Stores of single blocks that are shorter than the registered size: pieces that will not be
// filled, or full blocks of an engine whose size is another one. One cannot tell by one; but an
// engine of the registered size fills a block some time.
class ShortStores {
 public:
  void Short(std::uint32_t tokens) {
    largest_ = std::max(largest_, tokens);
    if (!full_) ++stores_;
  }
  // A block of the registered size.
  void Full() { full_ = true; }
  // The largest there was, when there were that many before any was full; else none.
  [[nodiscard]] std::optional<std::uint32_t> size() const {
    return !full_ && stores_ >= kStoresToDoubt ? std::optional(largest_) : std::nullopt;
  }
  void Reset() { *this = {}; }

 private:
  static constexpr std::uint32_t kStoresToDoubt = 64;

  std::uint32_t stores_ = 0;
  std::uint32_t largest_ = 0;
  bool full_ = false;
};

}  // namespace kvr::wire
