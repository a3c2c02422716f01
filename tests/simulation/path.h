// An engine, its agent and three routers in one simulated network, and what goes wrong with them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "simulation/agenda.h"
#include "simulation/engine.h"
#include "simulation/network.h"
#include "simulation/nodes.h"

namespace kvr::simulation {

inline constexpr std::size_t kRouters = 3;

// What a run is made of. A seed decides all of it; tests of one fault set what they need.
struct Plan {
  std::uint64_t seed = 0;
  Engine::Options engine;
  bool engine_replay = true;
  Agent::Options agent;
  Router::Options router;
  Faults faults;
  // How often each is what goes wrong next, beside the others.
  struct Weights {
    std::uint64_t nothing = 1;
    std::uint64_t cut_agent = 0, cut_router = 0;  // connections
    std::uint64_t stall_agent = 0, stall_router = 0;
    std::uint64_t hold_agent = 0;  // what it publishes stays in its queue
    std::uint64_t restart_engine = 0, kill_agent = 0, restart_router = 0;
    std::uint64_t mute_engine = 0, mute_agent = 0;  // replay sockets
    std::uint64_t clear = 0, foreign = 0, garbage = 0, burst = 0;
    std::uint64_t undecodable = 0;  // seldom, for it spoils what is known until a restart

    static constexpr std::array<std::uint64_t Weights::*, 14> kAll = {
        &Weights::cut_agent,    &Weights::cut_router,     &Weights::stall_agent,
        &Weights::stall_router, &Weights::hold_agent,     &Weights::restart_engine,
        &Weights::kill_agent,   &Weights::restart_router, &Weights::mute_engine,
        &Weights::mute_agent,   &Weights::clear,          &Weights::foreign,
        &Weights::garbage,      &Weights::burst};
    [[nodiscard]] std::uint64_t sum() const {
      std::uint64_t sum = nothing + undecodable;
      for (const auto weight : kAll)
        sum += this->*weight;
      return sum;
    }
  } weights;
  bool keeps_numbers = false;  // some restarts of the engine do
  bool long_outages = false;   // some take longer than the blocks of who is gone are kept
  bool quiet = false;          // once all is well, the engine soon has nothing more to do
  int rounds = 2;              // of trouble and peace

  [[nodiscard]] std::string ToString() const;
};

// Everything that may go wrong, each in some seeds.
Plan PlanOf(std::uint64_t seed);

class Path {
 public:
  explicit Path(const Plan& plan);

  // Goes wrong for a while.
  void Trouble();
  // All faults end; then so much time passes, with some work, that whatever can be repaired is.
  void Peace();
  // Empty when everybody knows what the engine holds, or rightly says that he does not.
  [[nodiscard]] std::string Complaint() const;

  // What a test of one fault does by hand.
  [[nodiscard]] Network& network() { return network_; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] Agent& agent() { return *agent_; }
  [[nodiscard]] Router& router(std::size_t i) { return *routers_[i]; }
  void StartAgent();
  void StartRouter(std::size_t i);
  void RunFor(Nanos span) { agenda_.RunFor(span); }
  // The engine works now and then for so long.
  void WorkFor(Nanos span);

  struct Totals {
    std::uint64_t exact = 0, degraded = 0;  // of routers, at the ends of rounds
    std::uint64_t restarts = 0, gaps = 0, replays = 0, at_mark = 0;
    // Of routers: what did not come as messages. Of agents: ends at which every event of the engine
    // was compared with what became of it.
    std::uint64_t in_snapshots = 0, overtaken = 0, events_compared = 0;
  };
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  void GoWrong();
  [[nodiscard]] Nanos Outage();
  [[nodiscard]] std::string AgentComplaint() const;
  [[nodiscard]] std::string RouterComplaint(std::size_t i) const;
  // Whether what one counts as told is what the next one counts, by what became of it:
  // docs/agent.md, "The counters add up".
  [[nodiscard]] std::string CounterComplaint() const;
  [[nodiscard]] bool EventsCompare() const;
  void Count();

  const Plan plan_;
  Rng rng_;
  Agenda agenda_;
  Network network_;
  Engine engine_;
  std::unique_ptr<Agent> agent_;
  std::array<std::unique_ptr<Router>, kRouters> routers_;
  std::uint64_t agents_ = 0;  // lives
  Totals totals_;
};

}  // namespace kvr::simulation
