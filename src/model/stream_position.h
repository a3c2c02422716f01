// How far a rank's event stream was applied, for whoever takes its blocks over.
#pragma once

#include <cstdint>
#include <optional>

namespace kvr {

// Every message up to `message` was applied, on top of blocks of which the same was true. One who
// enters the blocks elsewhere goes on behind it.
struct StreamPosition {
  std::uint64_t message = 0;
  // XXH3-64 of that message's payload, seed 0: an engine that has other bytes under the number is
  // another incarnation. None when the message did not come whole.
  std::optional<std::uint64_t> digest = {};

  friend bool operator==(const StreamPosition&, const StreamPosition&) = default;
};

}  // namespace kvr
