// The JSON bodies of the indexer, apart from how they are asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "index/side_groups.h"
#include "model/overlap.h"

namespace kvr::service {

struct QueryAnswerOptions {
  bool include_zero = false;                   // list workers without overlap too
  const index::HybridRanks* hybrid = nullptr;  // the partition's, if it has any
};

// {"scores":{"1":{"0":48}},"frequencies":[2,1],"instances":{"1":{"longest_matched":64,"gpu":48,
// "dp":{"0":48},"cpu":64,"disk":64}}}, all in tokens; plus "not_exact": ranks of the partition
// whose picture is incomplete, absent when there are none; and "hybrid":{"1":{"0":32}}, of ranks
// that serve a hybrid model, how much of all that is matched the engine can reuse. `scores` must
// hold the device holders.
std::string QueryAnswer(const OverlapScores& scores, std::uint32_t block_size,
                        std::span<const fleet::Worker* const> workers,
                        const QueryAnswerOptions& options);

// One object per worker, in the given order.
std::string WorkersAnswer(std::span<const fleet::Worker* const> workers, Nanos now);

// "failed" when something answers that is no publisher, "connecting" (where the reference says
// "pending") or "active". Active means that the transport reports a connection; failed listeners go
// on trying.
std::string_view ListenerStatus(const fleet::RankEntry& entry);

}  // namespace kvr::service
