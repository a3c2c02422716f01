// Engines, their agent and three routers in one simulated network, and what goes wrong with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulation/agenda.h"
#include "simulation/agent.h"
#include "simulation/engine.h"
#include "simulation/network.h"
#include "simulation/plan.h"
#include "simulation/router.h"

namespace kvr::simulation {

inline constexpr std::size_t kRouters = 3;

class Path {
 public:
  explicit Path(const Plan& plan);

  // Goes wrong for a while.
  void Trouble();
  // All faults end; then so much time passes, with some work, that whatever can be repaired is.
  void Peace();
  // Empty when everybody knows what the engines hold, or rightly says that he does not.
  [[nodiscard]] std::string Complaint() const;

  struct Totals {
    std::uint64_t exact = 0, degraded = 0;  // of routers, at the ends of rounds
    std::uint64_t restarts = 0, gaps = 0, replays = 0, at_mark = 0;
    // Of routers: what did not come as messages. Of agents: ends at which every event of an engine
    // was compared with what became of it. Of several sources: blocks that another one had told of.
    std::uint64_t in_snapshots = 0, overtaken = 0, events_compared = 0, shared = 0;
    // Of agents: ends at which an engine's own messages alone had told everything.
    std::uint64_t told = 0;
  };
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  void StartAgent();
  void StartRouter(std::size_t i);
  // The engines work now and then for so long.
  void WorkFor(Nanos span);
  void GoWrong();
  [[nodiscard]] Nanos Outage();
  // One of so many; no choice of one.
  [[nodiscard]] std::size_t Some(std::size_t count) { return count == 1 ? 0 : rng_.Below(count); }
  void Count();

  // Whether the agent got each message of the engine's present life, in order, soon and readable.
  [[nodiscard]] bool WasTold(std::size_t engine) const;
  // path_complaint.cc: what is wrong, or nothing.
  [[nodiscard]] std::string SourceComplaint(std::size_t engine) const;
  [[nodiscard]] std::string AgentComplaint(std::size_t rank) const;
  [[nodiscard]] std::string RouterComplaint(std::size_t i, std::size_t rank) const;
  // Whether what one counts as told is what the next one counts, by what became of it:
  // docs/agent.md, "The counters add up".
  [[nodiscard]] std::string SourceCounters(std::size_t engine) const;
  [[nodiscard]] std::string RankCounters(std::size_t rank) const;
  [[nodiscard]] bool EventsCompare(std::size_t engine) const;

  const Plan plan_;
  Rng rng_;
  Agenda agenda_;
  Network network_;
  std::vector<std::unique_ptr<Engine>> engines_;  // in the order of the agent's feeds
  std::unique_ptr<Agent> agent_;
  std::array<std::unique_ptr<Router>, kRouters> routers_;
  std::uint64_t agents_ = 0;  // lives
  Totals totals_;
};

}  // namespace kvr::simulation
