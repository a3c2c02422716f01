// Everything a rank holds at one moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::publish {

// The stores that rebuild what a rank holds, when applied in order to nothing. Immutable once it is
// shared, so that it is written to a slow reader while the stream goes on.
struct Snapshot {
  struct Run {
    Tier tier = Tier::kDevice;
    bool eligible = false;
    std::optional<EngineHash> parent;
    std::size_t begin = 0;  // in `blocks`
    std::size_t count = 0;
  };

  Rank rank;
  // The last event that is in it, and the first that is not comes right after.
  std::uint64_t cursor = 0;
  // Blocks beyond the limit of the book are held by the rank and missing here.
  bool complete = true;
  std::vector<Run> runs;
  std::vector<PlacedBlock> blocks;

  [[nodiscard]] std::span<const PlacedBlock> BlocksOf(const Run& run) const {
    return std::span(blocks).subspan(run.begin, run.count);
  }
};

}  // namespace kvr::publish
