// How an index grows with ranks, depth and sharing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvr::bench {

struct GrowthPoint {
  std::uint32_t ranks = 0, depth = 0, holders = 0, chains = 0;
  double write_ns = 0;      // a stored block
  double query_ns = 0;      // a query, back to back
  double query_p99_ns = 0;  // timed alone
  double bytes = 0;         // of heap, a held block
};

struct GrowthSweep {
  std::string name;  // of what varies
  std::vector<GrowthPoint> points;
};

// `blocks` held blocks at every point, or a little more: as many chains as that takes. `steps_max`
// bounds each sweep, for a short trial.
Result<std::vector<GrowthSweep>> MeasureGrowth(std::uint64_t blocks, std::size_t steps_max);

std::string GrowthJson(const std::vector<GrowthSweep>& sweeps);
std::string GrowthText(const std::vector<GrowthSweep>& sweeps);
std::string GrowthSvg(const std::vector<GrowthSweep>& sweeps);

}  // namespace kvr::bench
