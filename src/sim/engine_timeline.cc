#include "sim/engine_timeline.h"

#include <algorithm>
#include <utility>

namespace kvr::sim {

EngineTimeline::EngineTimeline(std::vector<EngineCore*> ranks, Sink sink)
    : ranks_(std::move(ranks)), sink_(std::move(sink)), results_(ranks_.size()) {}

void EngineTimeline::Advance(Nanos now) {
  if (!end_) Start(now);
  while (end_ && *end_ <= now) {
    const Nanos end = *end_;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      sink_(rank, end, results_[rank]);
    Start(end);
  }
}

void EngineTimeline::Start(Nanos at) {
  end_.reset();
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const auto* core) { return core->idle(); })) {
    return;
  }
  Nanos longest{};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank]->Pass(results_[rank]);
    longest = std::max(longest, results_[rank].duration);
  }
  end_ = at + longest;
}

}  // namespace kvr::sim
