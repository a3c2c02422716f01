#include "simulation/path.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace kvr::simulation {
namespace {

Feed EngineFeed(Rank rank) {
  const std::string host = fmt::format("tcp://worker-{}-{}", Raw(rank.worker), rank.dp_rank);
  return {rank, host + ":1", host + ":2"};
}

// Every rank of one worker, then of the next.
std::vector<Engine::Options> EnginesOf(const Plan& plan) {
  std::vector<Engine::Options> engines;
  const auto add = [&](Engine::Options options, WorkerId worker) {
    for (std::uint32_t dp_rank = 0; dp_rank < plan.ranks; ++dp_rank) {
      options.rank = {worker, dp_rank};
      const Feed feed = EngineFeed(options.rank);
      options.publisher.endpoint = feed.events;
      if (plan.engine_replay) options.publisher.replay_endpoint = feed.replay;
      engines.push_back(options);
    }
  };
  add(plan.engine, kEngine);
  if (plan.manager) add(*plan.manager, kManager);
  return engines;
}

}  // namespace

Path::Path(const Plan& plan) : plan_(plan), rng_(plan.seed), network_(agenda_, rng_) {
  SetLogLevel(LogLevel::kError);  // refused messages are meant to be
  for (const Engine::Options& options : EnginesOf(plan_))
    engines_.push_back(std::make_unique<Engine>(network_, options));
  StartAgent();
  for (std::size_t i = 0; i < kRouters; ++i)
    StartRouter(i);
}

void Path::StartAgent() {
  agent_.reset();
  Agent::Options options = plan_.agent;
  options.life = ++agents_;
  for (const auto& engine : engines_) {
    Feed feed = EngineFeed(engine->rank());
    if (!plan_.engine_replay) feed.replay.clear();
    options.feeds.push_back(std::move(feed));
  }
  agent_ = std::make_unique<Agent>(network_, options);
}

void Path::StartRouter(std::size_t i) {
  routers_[i].reset();
  Router::Options options = plan_.router;
  for (std::uint32_t dp_rank = 0; dp_rank < plan_.ranks; ++dp_rank)
    options.feeds.push_back(Agent::PublishedFeed({kEngine, dp_rank}));
  routers_[i] = std::make_unique<Router>(network_, options);
}

void Path::WorkFor(Nanos span) {
  const Nanos end = agenda_.now() + span;
  while (agenda_.now() < end) {
    engines_[Some(engines_.size())]->Work();
    agenda_.RunFor(std::min<Nanos>(Millis(rng_.Below(rng_.Below(20) == 0 ? 3'000 : 150)),
                                   end - agenda_.now()));
  }
}

void Path::Trouble() {
  network_.faults = plan_.faults;
  const int mishaps = 8 + static_cast<int>(rng_.Below(16));
  for (int i = 0; i < mishaps; ++i) {
    WorkFor(Millis(rng_.Below(rng_.Below(4) == 0 ? 4'000 : 700)));
    GoWrong();
  }
}

Nanos Path::Outage() {
  if (plan_.long_outages && rng_.Below(12) == 0) return Millis(100'000 + rng_.Below(60'000));
  return Millis(rng_.Below(rng_.Below(3) == 0 ? 12'000 : 600));
}

void Path::GoWrong() {
  const Plan::Weights& weights = plan_.weights;
  std::uint64_t left = rng_.Below(weights.sum());
  const auto is = [&left](std::uint64_t weight) {
    if (left < weight) return true;
    left -= weight;
    return false;
  };
  const std::size_t some = rng_.Below(kRouters);
  const Nanos outage = Outage();
  Engine& engine = *engines_[Some(engines_.size())];
  const Rank rank = engine.rank();
  if (is(weights.cut_agent)) return network_.CutOne(EngineFeed(rank).events, outage);
  if (is(weights.cut_router)) return network_.CutOne(Agent::PublishedFeed(rank).events, outage);
  if (is(weights.stall_agent)) {
    if (agent_) agent_->StallFor(outage);
    return;
  }
  if (is(weights.stall_router)) {
    if (routers_[some]) routers_[some]->StallFor(outage);
    return;
  }
  if (is(weights.hold_agent)) {
    if (agent_) agent_->publisher(rank.dp_rank).SetHeld(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.restart_engine)) {
    engine.Kill();
    const bool keeps = plan_.keeps_numbers && rng_.Below(2) == 0;
    agenda_.After(outage, [&engine, keeps] { engine.Start(keeps); });
    return;
  }
  if (is(weights.kill_agent)) {
    agent_.reset();
    agenda_.After(outage, [this] {
      if (!agent_) StartAgent();
    });
    return;
  }
  if (is(weights.restart_router)) {
    routers_[some].reset();
    agenda_.After(outage, [this, some] {
      if (!routers_[some]) StartRouter(some);
    });
    return;
  }
  if (is(weights.mute_engine)) {
    if (engine.alive()) engine.publisher()->SetReplaySilent(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.mute_agent)) {
    if (agent_) agent_->publisher(rank.dp_rank).SetReplaySilent(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.clear)) return engine.Clear();
  if (is(weights.foreign)) return engine.TellForeign();
  if (is(weights.garbage)) return engine.TellGarbage();
  if (is(weights.undecodable)) return engine.TellUndecodable();
  if (is(weights.burst)) {
    for (std::uint64_t i = 5 + rng_.Below(40); i > 0; --i)
      engine.Work();
  }
}

void Path::Peace() {
  network_.faults = {};
  network_.EndCuts();
  for (const auto& engine : engines_) {
    engine->Start(false);
    engine->publisher()->SetReplaySilent(false);
  }
  if (!agent_) StartAgent();
  for (std::size_t rank = 0; rank < agent_->ranks(); ++rank) {
    agent_->publisher(rank).SetReplaySilent(false);
    agent_->publisher(rank).SetHeld(false);
  }
  agent_->EndStall();
  for (std::size_t i = 0; i < kRouters; ++i) {
    if (!routers_[i]) StartRouter(i);
    routers_[i]->EndStall();
  }
  // What was lost shows with the next message. The longest pauses are 30 s between looks at an
  // endpoint that failed.
  for (int i = 0; i < 24; ++i) {
    for (const auto& engine : engines_) {
      if (!plan_.quiet || i < 3) engine->Work();
    }
    agenda_.RunFor(Millis(3'000 + rng_.Below(7'000)));
  }
  agenda_.RunFor(Millis(40'000));
  Count();
}

void Path::Count() {
  for (const Follower* const follower : std::initializer_list<Follower*>{
           agent_.get(), routers_[0].get(), routers_[1].get(), routers_[2].get()}) {
    for (const Followed& followed : follower->followed()) {
      totals_.restarts += followed.stats().restarts;
      totals_.gaps += followed.stats().gaps;
      totals_.replays += followed.stats().replays_completed;
    }
  }
  for (std::size_t rank = 0; rank < agent_->ranks(); ++rank) {
    const auto stats = agent_->stats(rank);
    totals_.at_mark += agent_->publisher(rank).stats().at_mark;
    totals_.shared += stats.book.shared_stores;
  }
  for (const auto& router : routers_) {
    for (const Followed& followed : router->followed()) {
      ++(followed.status().state == RankState::kExact ? totals_.exact : totals_.degraded);
      totals_.in_snapshots += followed.ledger().count(fleet::MessageFate::kSnapshot);
      totals_.overtaken += followed.ledger().count(fleet::MessageFate::kOvertaken);
    }
  }
  for (std::size_t engine = 0; engine < engines_.size(); ++engine) {
    if (EventsCompare(engine)) ++totals_.events_compared;
    if (WasTold(engine)) ++totals_.told;
  }
}

}  // namespace kvr::simulation
