// The figures of one replay, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/index_feed.h"
#include "bench/measure.h"

namespace kvr::bench {

struct ReplayOptions {
  double loop_s = 1;  // of asking back to back, and for each number of readers
  std::size_t readers_max = 1;
  double window_s = 0;  // of a second open loop, beside the one that cannot keep up; 0: none
};

struct ReplayResult {
  OpCounts counts;
  Checksum checksum;
  WriteResult write;
  FillResult fill;
  LoopResult loop;
  LoopResult loop_unread;
  Percentiles alone;
  BesideResult beside;
  std::vector<ReadersResult> readers;
  std::vector<OpenLoopResult> open_loop;
};

// Needs at least one query and one update.
ReplayResult Replay(const IndexFeed& feed, const ReplayOptions& options);

// The members are those that bench/peer prints too.
std::string ReplayJson(const ReplayResult& result);
std::string ReplayText(const ReplayResult& result);

}  // namespace kvr::bench
