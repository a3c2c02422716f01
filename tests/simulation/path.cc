#include "simulation/path.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"

namespace kvr::simulation {
namespace {

constexpr const char* kEngineEvents = "tcp://engine:1";
constexpr const char* kEngineReplay = "tcp://engine:2";
constexpr const char* kAgentEvents = "tcp://agent:1";
constexpr const char* kAgentReplay = "tcp://agent:2";

constexpr std::array<const char*, 8> kDialects = {"vllm-0.9.1", "vllm-0.14", "vllm-0.22",
                                                  "vllm-0.24",  "vllm-0.29", "vllm-map-batch",
                                                  "sglang",     "sglang-map"};

std::string Difference(const Held& known, const Held& truth) {
  Held extra;
  Held missing;
  std::ranges::set_difference(known, truth, std::inserter(extra, extra.end()));
  std::ranges::set_difference(truth, known, std::inserter(missing, missing.end()));
  return fmt::format("{} blocks known, {} held, {} of them unknown, {} known in error",
                     known.size(), truth.size(), missing.size(), extra.size());
}

bool Within(const Held& known, const Held& truth) {
  return std::ranges::includes(truth, known);
}

}  // namespace

std::string Plan::ToString() const {
  return fmt::format(
      "seed {}: {}{}, {} + {} blocks, engine ring {}{}, queue mark {}; agent ring {}, queue {}, "
      "mark {}, coalesce {} ms; clear_on_loss {}; drop {} dup {} reorder {} slow {} "
      "no_answer {} cut {} hole {}{}{}",
      seed, engine.dialect, engine.copies ? " with copies" : "", engine.blocks, engine.host_blocks,
      engine.publisher.replay_messages_max, engine_replay ? "" : " (no replay)",
      engine.publisher.unread_max, agent.socket.replay_messages_max, agent.socket.queue_max,
      agent.socket.unread_max, agent.publisher.coalescer.timeout.count(),
      router.stream.clear_on_loss, faults.drop, faults.duplicate, faults.reorder, faults.slow,
      faults.no_answer, faults.cut_answer, faults.hole_in_answer,
      keeps_numbers ? ", numbers kept" : "", long_outages ? ", long outages" : "");
}

Plan PlanOf(std::uint64_t seed) {
  Rng rng(seed * 2 + 1);
  const auto one_in = [&rng](std::uint64_t n) { return rng.Below(n) == 0; };
  // Each fault is in half of the plans.
  const auto maybe = [&](std::uint64_t most) { return one_in(2) ? 0 : 1 + rng.Below(most); };
  Plan plan;
  plan.seed = seed;
  plan.engine.dialect = kDialects[rng.Below(kDialects.size())];
  plan.engine.blocks = static_cast<std::uint32_t>(8 + rng.Below(40));
  plan.engine.host_blocks = static_cast<std::uint32_t>(one_in(3) ? 0 : 4 + rng.Below(40));
  plan.engine.copies = one_in(3);
  plan.engine.same_names = one_in(2);
  plan.engine.publisher.layout =
      one_in(2) ? net::ReplayLayout::kSeqPayload : net::ReplayLayout::kTopicSeqPayload;
  plan.engine.publisher.repeats = one_in(2);
  if (one_in(3)) plan.engine.publisher.replay_messages_max = 3 + rng.Below(60);
  if (one_in(3)) plan.engine.publisher.unread_max = 2 + rng.Below(20);
  plan.engine_replay = !one_in(10);
  if (one_in(3)) plan.agent.socket.replay_messages_max = 3 + rng.Below(60);
  if (one_in(3)) plan.agent.socket.queue_max = 1 + rng.Below(12);
  if (one_in(3)) plan.agent.socket.unread_max = 2 + rng.Below(20);
  plan.agent.stream.clear_on_loss = true;
  if (one_in(3)) plan.agent.publisher.coalescer.timeout = Millis(1 + rng.Below(200));
  if (one_in(4)) plan.agent.publisher.message_events_max = 1 + rng.Below(3);
  if (one_in(3)) plan.agent.publisher.snapshot_tail_max = rng.Below(20);
  if (one_in(4)) plan.agent.publisher.ring.events_max = 1 + rng.Below(40);
  plan.router.stream.clear_on_loss = one_in(2);
  for (auto* const stream : {&plan.agent.stream, &plan.router.stream}) {
    if (one_in(3)) stream->parked_messages_max = 2 + rng.Below(12);
  }
  plan.faults.drop = maybe(150);
  plan.faults.duplicate = maybe(150);
  plan.faults.reorder = maybe(150);
  plan.faults.slow = maybe(40);
  plan.faults.no_answer = maybe(300);
  plan.faults.cut_answer = maybe(400);
  plan.faults.slow_answer = maybe(300);
  plan.faults.hole_in_answer = one_in(4) ? maybe(60) : 0;
  Plan::Weights& weights = plan.weights;
  for (const auto weight : Plan::Weights::kAll)
    weights.*weight = maybe(20);
  plan.weights.undecodable = one_in(6) ? maybe(6) : 0;
  plan.keeps_numbers = one_in(4);
  plan.long_outages = one_in(4);
  plan.quiet = one_in(4);
  return plan;
}

Path::Path(const Plan& plan)
    : plan_([&plan] {
        Plan whole = plan;
        whole.engine.publisher.endpoint = kEngineEvents;
        if (whole.engine_replay) {
          whole.engine.publisher.replay_endpoint = kEngineReplay;
          whole.agent.replay = kEngineReplay;
        }
        whole.agent.events = kEngineEvents;
        whole.agent.publisher.rank = kRank;
        whole.agent.socket.endpoint = kAgentEvents;
        whole.agent.socket.replay_endpoint = kAgentReplay;
        whole.router.events = kAgentEvents;
        whole.router.replay = kAgentReplay;
        return whole;
      }()),
      rng_(plan.seed),
      network_(agenda_, rng_),
      engine_(network_, plan_.engine) {
  SetLogLevel(LogLevel::kError);  // refused messages are meant to be
  StartAgent();
  for (std::size_t i = 0; i < kRouters; ++i)
    StartRouter(i);
}

void Path::StartAgent() {
  agent_.reset();
  Agent::Options options = plan_.agent;
  options.publisher.publisher_id = 1'000 + ++agents_;
  agent_ = std::make_unique<Agent>(network_, options);
}

void Path::StartRouter(std::size_t i) {
  routers_[i].reset();
  routers_[i] = std::make_unique<Router>(network_, plan_.router);
}

void Path::WorkFor(Nanos span) {
  const Nanos end = agenda_.now() + span;
  while (agenda_.now() < end) {
    engine_.Work();
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
  if (is(weights.cut_agent)) return network_.CutOne(kEngineEvents, outage);
  if (is(weights.cut_router)) return network_.CutOne(kAgentEvents, outage);
  if (is(weights.stall_agent)) {
    if (agent_) agent_->StallFor(outage);
    return;
  }
  if (is(weights.stall_router)) {
    if (routers_[some]) routers_[some]->StallFor(outage);
    return;
  }
  if (is(weights.hold_agent)) {
    if (agent_) agent_->publisher().SetHeld(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.restart_engine)) {
    engine_.Kill();
    const bool keeps = plan_.keeps_numbers && rng_.Below(2) == 0;
    agenda_.After(outage, [this, keeps] { engine_.Start(keeps); });
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
    if (engine_.alive()) engine_.publisher()->SetReplaySilent(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.mute_agent)) {
    if (agent_) agent_->publisher().SetReplaySilent(rng_.Below(3) != 0);
    return;
  }
  if (is(weights.clear)) return engine_.Clear();
  if (is(weights.foreign)) return engine_.TellForeign();
  if (is(weights.garbage)) return engine_.TellGarbage();
  if (is(weights.undecodable)) return engine_.TellUndecodable();
  if (is(weights.burst)) {
    for (std::uint64_t i = 5 + rng_.Below(40); i > 0; --i)
      engine_.Work();
  }
}

void Path::Peace() {
  network_.faults = {};
  network_.EndCuts();
  engine_.Start(false);
  engine_.publisher()->SetReplaySilent(false);
  if (!agent_) StartAgent();
  agent_->publisher().SetReplaySilent(false);
  agent_->publisher().SetHeld(false);
  agent_->EndStall();
  for (std::size_t i = 0; i < kRouters; ++i) {
    if (!routers_[i]) StartRouter(i);
    routers_[i]->EndStall();
  }
  // What was lost shows with the next message. The longest pauses are 30 s between looks at an
  // endpoint that failed.
  for (int i = 0; i < 24; ++i) {
    if (!plan_.quiet || i < 3) engine_.Work();
    agenda_.RunFor(Millis(3'000 + rng_.Below(7'000)));
  }
  agenda_.RunFor(Millis(40'000));
  Count();
}

void Path::Count() {
  for (const auto& router : routers_)
    ++(router->status().state == RankState::kExact ? totals_.exact : totals_.degraded);
  for (const Follower* const follower : std::initializer_list<Follower*>{
           agent_.get(), routers_[0].get(), routers_[1].get(), routers_[2].get()}) {
    totals_.restarts += follower->stats().restarts;
    totals_.gaps += follower->stats().gaps;
    totals_.replays += follower->stats().replays_completed;
  }
  totals_.at_mark += agent_->publisher().stats().at_mark;
  for (const auto& router : routers_) {
    totals_.in_snapshots += router->ledger().count(fleet::MessageFate::kSnapshot);
    totals_.overtaken += router->ledger().count(fleet::MessageFate::kOvertaken);
  }
  if (EventsCompare()) ++totals_.events_compared;
}

// Events have no numbers, so that those of a message that was not read, or was read twice, are not
// to be told apart. Neither are those of an earlier engine, where a message that is no more to be
// had would tell whose the ones before were: they stay counted, and the agent says that it is not
// sure of them.
bool Path::EventsCompare() const {
  const fleet::RankLedger& ledger = agent_->ledger();
  const bool one_engine = engine_.histories() == 1 || agent_->status().state == RankState::kExact;
  return one_engine && ledger.messages_taken_back() == 0 &&
         ledger.messages() == ledger.count(fleet::MessageFate::kApplied) +
                                  ledger.count(fleet::MessageFate::kReplayed);
}

std::string Path::CounterComplaint() const {
  std::string wrong;
  const auto same = [&wrong](std::string_view what, std::uint64_t counted, std::uint64_t told) {
    if (counted != told) wrong += fmt::format("{}: {} counted, {} told; ", what, counted, told);
  };
  const fleet::RankLedger& agent = agent_->ledger();
  // Of an engine that nobody can be asked about, what it told last may be lost, or all, and no
  // newer message shows it.
  if (plan_.engine_replay || (agent_->watermark() && !plan_.quiet)) {
    same("messages of the engine", agent.messages() - agent.messages_taken_back(),
         engine_.publisher()->next_sequence());
  }
  if (EventsCompare() && agent_->watermark()) {
    same("events of the engine", agent.events(), engine_.told_events());
  }
  const auto published = agent_->published();
  same("placements of the agent",
       agent.count(fleet::Placement::kEvent) + agent.count(fleet::Placement::kClear),
       published.publisher.received_events + published.refused_events);
  for (const auto& router : routers_) {
    const fleet::RankLedger& ledger = router->ledger();
    same("messages of the agent", ledger.messages() - ledger.messages_taken_back(),
         published.publisher.messages);
    // An agent's numbers begin anew with its first event.
    if (published.publisher.messages == 0) continue;
    same("events of the agent", ledger.events() - ledger.events_taken_back(),
         published.publisher.published_events);
  }
  return wrong;
}

std::string Path::AgentComplaint() const {
  const auto status = agent_->status();
  const Held held = agent_->held();
  const std::string says = fmt::format("the agent is {} {} ({}), {}", RankStateName(status.state),
                                       StateReasonName(status.reason), agent_->detail(),
                                       Difference(held, engine_.held()));
  // A restart that keeps its numbers is told by the bytes of a replay, or by nothing.
  const bool unseen = plan_.keeps_numbers && !plan_.engine_replay;
  if (!Within(held, engine_.held()) && (!unseen || status.state == RankState::kExact)) return says;
  if (status.state == RankState::kExact) return held == engine_.held() ? std::string() : says;
  const StateReason reason = status.reason;
  const bool waits = status.state == RankState::kWarming && !plan_.engine_replay &&
                     reason == StateReason::kNoReplayEndpoint;  // for a message
  if (waits) return {};
  if (status.state != RankState::kDegraded) return says;
  const bool may =
      (reason == StateReason::kUndecodable && engine_.told_undecodable()) ||
      (plan_.engine_replay
           ? reason == StateReason::kHistoryGone && !engine_.tells_all()
           : reason == StateReason::kGapUnrepaired || reason == StateReason::kNoReplayEndpoint);
  return may ? std::string() : says + ", although everything could be had";
}

std::string Path::RouterComplaint(std::size_t i) const {
  const Router& router = *routers_[i];
  const auto status = router.status();
  const Held held = router.held();
  // The agent may know less than the engine, but nobody less than his agent: what messages no
  // longer tell its snapshot does.
  const Held told = agent_->reachable();
  const std::string says =
      fmt::format("router {} is {} {} ({}), {}", i, RankStateName(status.state),
                  StateReasonName(status.reason), router.detail(), Difference(held, told));
  if (held != told) return says;
  if (router.eligible() != agent_->eligible()) {
    return fmt::format("{}; of those that are eligible {}", says,
                       Difference(router.eligible(), agent_->eligible()));
  }
  const auto agent = agent_->status();
  const bool alike = status.state == agent.state && status.reason == agent.reason;
  return alike ? std::string()
               : fmt::format("{}, and the agent {} {}", says, RankStateName(agent.state),
                             StateReasonName(agent.reason));
}

std::string Path::Complaint() const {
  if (auto complaint = AgentComplaint(); !complaint.empty()) return complaint;
  for (std::size_t i = 0; i < kRouters; ++i) {
    if (auto complaint = RouterComplaint(i); !complaint.empty()) return complaint;
  }
  return CounterComplaint();
}

}  // namespace kvr::simulation
