#include "service/gateway/engine_watch.h"

#include <algorithm>
#include <string>

#include "base/log.h"

namespace kvr::service {

void EngineWatch::Failed(WorkerId worker) {
  const Nanos now = clock_.Now();
  {
    const Lock lock(mutex_);
    Down& down = down_[worker];
    const bool known = down.pause > Millis{0};
    if (known && down.probe_at > now) return;  // requests that were under way together
    down.pause = known ? std::min(down.pause * 2, options_.probe_max) : options_.probe_first;
    down.probe_at = now + down.pause;
    count_.store(down_.size(), std::memory_order_relaxed);
    if (known) return;
  }
  KVR_WARN("worker {} cannot be reached; it gets no requests until it answers", Raw(worker));
}

void EngineWatch::Answered(WorkerId worker) {
  if (down() > 0 && Forget(worker)) KVR_INFO("worker {} answers again", Raw(worker));
}

bool EngineWatch::Forget(WorkerId worker) {
  const Lock lock(mutex_);
  const bool was_down = down_.erase(worker) > 0;
  count_.store(down_.size(), std::memory_order_relaxed);
  return was_down;
}

bool EngineWatch::IsDown(WorkerId worker) const {
  if (down() == 0) return false;
  const Lock lock(mutex_);
  return down_.contains(worker);
}

std::vector<Rank> EngineWatch::DownRanks(const fleet::Snapshot& fleet) const {
  std::vector<Rank> ranks;
  if (down() == 0) return ranks;
  const Lock lock(mutex_);
  for (const auto& entry : down_) {
    const auto of_worker = RanksOf(fleet, entry.first);
    ranks.insert(ranks.end(), of_worker.begin(), of_worker.end());
  }
  return ranks;
}

net::Task<void> EngineWatch::Run() {
  for (;;) {
    const bool slept = co_await net::Sleep(options_.probe_first);
    if (!slept) co_return;
    const std::vector<WorkerId> due = Due();
    for (const WorkerId id : due) {
      co_await Probe(id);
    }
  }
}

std::vector<WorkerId> EngineWatch::Due() const {
  std::vector<WorkerId> due;
  if (down() == 0) return due;
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  for (const auto& [worker, down] : down_) {
    if (down.probe_at <= now) due.push_back(worker);
  }
  return due;
}

net::Task<void> EngineWatch::Probe(WorkerId id) {
  const auto fleet = catalog_.snapshot();
  const fleet::Worker* worker = fleet->Find(id);
  const auto url = net::ParseUrl(worker != nullptr ? worker->spec.url : std::string());
  if (!url) {
    Forget(id);  // nobody is sent there any more
    co_return;
  }
  net::HttpRequest request;
  request.target = "/health";
  const auto answer = co_await client_.FetchWithin(options_.probe_timeout, *url, request);
  if (answer && answer->status < 500) {
    Answered(id);
  } else {
    Failed(id);
  }
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
