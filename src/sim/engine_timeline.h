// When the passes of the mock engine's ranks begin and end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sim/engine_core.h"

namespace kvr::sim {

// Runs engine ranks along a time line, real or virtual: one pass after the other, each starting
// when the one before ended, however late the caller looks. Several ranks on one time line move in
// step, as the ranks of a mixture-of-experts model do: a pass ends with the slowest rank, idle ones
// wait.
//
// Not thread-safe.
class EngineTimeline {
 public:
  // What a rank's pass did, at the moment it ended. `result` may be plundered.
  using Sink = std::function<void(std::size_t rank, Nanos end, PassResult& result)>;

  // The cores must outlive the time line.
  EngineTimeline(std::vector<EngineCore*> ranks, Sink sink);

  // When the pass under way ends; nothing when all ranks are idle.
  [[nodiscard]] std::optional<Nanos> next() const { return end_; }

  // Ends every pass due by `now`, oldest first, and starts the next ones; starts one at `now` when
  // none was under way and there is work. Call it before a request is submitted, so that the
  // request does not slip into a pass that had started already, and again after it.
  void Advance(Nanos now);

 private:
  void Start(Nanos at);

  const std::vector<EngineCore*> ranks_;
  const Sink sink_;
  std::vector<PassResult> results_;
  std::optional<Nanos> end_;
};

}  // namespace kvr::sim
