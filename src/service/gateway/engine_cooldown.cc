#include "service/gateway/engine_cooldown.h"

#include <algorithm>

namespace kvr::service {

void EngineCooldown::Failed(WorkerId worker) {
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  Pause& pause = pauses_[worker];
  if (pause.until > now) return;  // requests that were under way together fail together
  pause.length =
      pause.length == Millis{0} ? options_.first : std::min(pause.length * 2, options_.longest);
  pause.until = now + pause.length;
  count_.store(pauses_.size(), std::memory_order_relaxed);
}

void EngineCooldown::Answered(WorkerId worker) {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const Lock lock(mutex_);
  pauses_.erase(worker);
  count_.store(pauses_.size(), std::memory_order_relaxed);
}

bool EngineCooldown::IsPaused(WorkerId worker) const {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  const auto pause = pauses_.find(worker);
  return pause != pauses_.end() && pause->second.until > now;
}

std::vector<Rank> EngineCooldown::PausedRanks(const fleet::Snapshot& fleet) const {
  std::vector<Rank> ranks;
  if (count_.load(std::memory_order_relaxed) == 0) return ranks;
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  for (const auto& [worker, pause] : pauses_) {
    if (pause.until <= now) continue;
    const auto of_worker = RanksOf(fleet, worker);
    ranks.insert(ranks.end(), of_worker.begin(), of_worker.end());
  }
  return ranks;
}

std::vector<Rank> RanksOf(const fleet::Snapshot& fleet, WorkerId worker) {
  std::vector<Rank> ranks;
  if (const fleet::Worker* found = fleet.Find(worker)) {
    for (const std::uint32_t dp_rank : found->spec.dp_ranks)
      ranks.push_back({worker, dp_rank});
  }
  return ranks;
}

}  // namespace kvr::service
