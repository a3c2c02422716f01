// What a replay shows: a table for the terminal, JSON for programs, charts and one HTML page for
// people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sim/replay_stats.h"

namespace kvr::sim {

struct ReplayReport {
  std::string title;
  // What was run, as shown above the table: name and value.
  std::vector<std::pair<std::string, std::string>> setup;
  // The share of prompt tokens that one cache of unlimited size, shared by all engines, would have
  // spared: no router can do better.
  double infinite_cache_ratio = 0;
  std::vector<ArmResult> arms;
};

// Plain text: two tables with one row an arm each.
std::string ToTable(const ReplayReport& report);

// {"setup":{...},"infinite_cache_ratio":r,"arms":[{...}]}
std::string ToJson(const ReplayReport& report);

// Writes report.html (self-contained), report.json, table.txt and the charts ttft.svg,
// hit_ratio.svg and load.svg into `directory`, which is made if it is not there. kIo names the
// file.
Result<void> WriteReport(const ReplayReport& report, const std::filesystem::path& directory);

}  // namespace kvr::sim
