// What a run is made of: who is there, what may go wrong and how often.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "simulation/agent.h"
#include "simulation/engine.h"
#include "simulation/network.h"
#include "simulation/router.h"

namespace kvr::simulation {

// A seed decides all of it; tests of one fault set what they need.
struct Plan {
  std::uint64_t seed = 0;
  Engine::Options engine;  // of each rank
  std::uint32_t ranks = 1;
  std::optional<Engine::Options> manager;  // of blocks, beside each rank
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
// The same to an engine of two ranks, to one with a block manager, or to one with both.
Plan PlanOfSeveral(std::uint64_t seed);

}  // namespace kvr::simulation
