#include "service/gateway/engine_watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"

namespace kvr::service {
namespace {

void LogDown(WorkerId worker, std::string_view url, std::string_view why) {
  KVR_WARN("worker {} cannot be reached at {}: {}; it gets no requests until it answers",
           Raw(worker), url, why);
}

void LogUp(WorkerId worker, bool again) {
  KVR_INFO("worker {} answers{}", Raw(worker), again ? " again" : "");
}

}  // namespace

void EngineWatch::Failed(WorkerId worker, std::string_view why) {
  const Nanos now = clock_.Now();
  {
    const Lock lock(mutex_);
    FollowCatalog();
    const auto found = engines_.find(worker);
    if (found == engines_.end()) return;
    Engine& engine = found->second;
    // Requests that were under way together.
    if (engine.state == State::kDown && engine.probe_at > now) return;
    if (!SetDown(engine, now, why)) return;
  }
  LogDown(worker, UrlOf(worker), why);
}

void EngineWatch::Answered(WorkerId worker) {
  if (not_up_.load(std::memory_order_relaxed) == 0) return;
  {
    const Lock lock(mutex_);
    const auto found = engines_.find(worker);
    if (found == engines_.end() || found->second.state == State::kUp) return;
  }
  Settle(worker, Probed::kAnswered);
}

void EngineWatch::ProbeSoon(WorkerId worker) {
  const Lock lock(mutex_);
  const auto found = engines_.find(worker);
  if (found != engines_.end() && found->second.state == State::kUp) found->second.probe_at = {};
}

std::optional<std::string> EngineWatch::DownReason(WorkerId worker) const {
  if (down() == 0) return std::nullopt;
  const Lock lock(mutex_);
  const auto found = engines_.find(worker);
  if (found == engines_.end() || found->second.state != State::kDown) return std::nullopt;
  return found->second.why;
}

std::vector<Rank> EngineWatch::DownRanks(const fleet::Snapshot& fleet) const {
  std::vector<Rank> ranks;
  if (down() == 0) return ranks;
  const Lock lock(mutex_);
  for (const auto& [worker, engine] : engines_) {
    if (engine.state != State::kDown) continue;
    const auto of_worker = RanksOf(fleet, worker);
    ranks.insert(ranks.end(), of_worker.begin(), of_worker.end());
  }
  return ranks;
}

EngineWatch::Reach EngineWatch::ReachOf(const fleet::Snapshot& fleet) const {
  Reach reach;
  const Lock lock(mutex_);
  for (const auto& worker : fleet.workers) {
    const auto found = engines_.find(worker->spec.id);
    const State state = found == engines_.end() ? State::kUntried : found->second.state;
    if (state == State::kUp) ++reach.up;
    if (state == State::kUntried) ++reach.untried;
  }
  return reach;
}

net::Task<void> EngineWatch::Run() {
  for (;;) {
    while (const auto id = Claim()) {
      co_await Probe(*id);
    }
    const bool slept = co_await net::Sleep(options_.probe_first);
    if (!slept) co_return;
  }
}

std::optional<WorkerId> EngineWatch::Claim() {
  const Nanos now = clock_.Now();
  const Lock lock(mutex_);
  FollowCatalog();
  for (auto& [worker, engine] : engines_) {
    if (engine.claimed || engine.probe_at > now) continue;
    engine.claimed = true;
    return worker;
  }
  return std::nullopt;
}

void EngineWatch::FollowCatalog() {
  const auto fleet = catalog_.snapshot();
  if (version_ == fleet->version) return;
  version_ = fleet->version;
  for (const auto& worker : fleet->workers)
    engines_.try_emplace(worker->spec.id);
  std::erase_if(engines_, [&](const auto& entry) { return fleet->Find(entry.first) == nullptr; });
  Count();
}

net::Task<void> EngineWatch::Probe(WorkerId id) {
  const auto fleet = catalog_.snapshot();
  const fleet::Worker* worker = fleet->Find(id);
  const auto url = net::ParseUrl(worker != nullptr ? worker->spec.url : std::string());
  if (!url) {
    Settle(id, Probed::kFailed, url.error().message);  // or gone from the catalog
    co_return;
  }
  net::HttpRequest request;
  request.target = "/health";
  const auto answer = co_await client_.FetchWithin(options_.probe_timeout, *url, request);
  if (answer) {
    Settle(id, answer->status < 500 ? Probed::kAnswered : Probed::kFailed,
           fmt::format("status {} of GET /health", answer->status));
  } else if (answer.error().code == ErrorCode::kTimeout) {
    Settle(id, Probed::kSilent, answer.error().message);
  } else if (answer.error().code == ErrorCode::kOverloaded) {
    Settle(id, Probed::kNotAsked);
  } else if (answer.error().code != ErrorCode::kCancelled) {
    Settle(id, Probed::kFailed, answer.error().message);
  }
}

std::string EngineWatch::UrlOf(WorkerId worker) const {
  const auto fleet = catalog_.snapshot();
  const fleet::Worker* found = fleet->Find(worker);
  return found != nullptr ? found->spec.url : std::string();
}

void EngineWatch::Settle(WorkerId worker, Probed probed, std::string_view why) {
  const Nanos now = clock_.Now();
  State before = State::kUntried;
  bool up = false;
  {
    const Lock lock(mutex_);
    const auto found = engines_.find(worker);
    if (found == engines_.end()) return;  // not in the catalog any more
    Engine& engine = found->second;
    engine.claimed = false;
    before = engine.state;
    up = probed == Probed::kAnswered;
    if (probed == Probed::kNotAsked) {
      engine.probe_at = now + options_.probe_first;
      return;
    }
    if (up) {
      engine = {State::kUp, false, NextOfOneThatIsUp(now), {}, 0, {}};
      if (before != State::kUp) Count();
    } else if (probed == Probed::kSilent && before == State::kUp &&
               ++engine.silent < options_.silent_max) {
      engine.probe_at = now + options_.probe_first;
      return;
    } else {
      SetDown(engine, now, why);
    }
  }
  if (up && before != State::kUp) LogUp(worker, before == State::kDown);
  if (!up && before != State::kDown) LogDown(worker, UrlOf(worker), why);
}

bool EngineWatch::SetDown(Engine& engine, Nanos now, std::string_view why) {
  const bool was_down = engine.state == State::kDown;
  engine.why = why;
  engine.state = State::kDown;
  engine.silent = 0;
  engine.pause = was_down ? std::min(engine.pause * 2, options_.probe_max) : options_.probe_first;
  engine.probe_at = now + engine.pause;
  Count();
  return !was_down;
}

Nanos EngineWatch::NextOfOneThatIsUp(Nanos now) const {
  return options_.probe_interval > Millis{0} ? now + options_.probe_interval : Nanos::max();
}

void EngineWatch::Count() {
  std::size_t down = 0;
  std::size_t not_up = 0;
  for (const auto& entry : engines_) {
    if (entry.second.state == State::kDown) ++down;
    if (entry.second.state != State::kUp) ++not_up;
  }
  down_.store(down, std::memory_order_relaxed);
  not_up_.store(not_up, std::memory_order_relaxed);
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
