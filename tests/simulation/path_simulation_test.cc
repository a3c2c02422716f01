// Thousands of histories of one path, engine → agent → three routers, in virtual time; and of an
// engine of two ranks, and of block managers beside it, which tell the agent of the same ranks. A
// seed says what goes wrong: messages dropped, repeated, late, out of order or unreadable,
// connections cut, readers that stop, queues that overflow, answers that break off, restarts of
// everything. Then the faults end, and everybody has to know what the engine holds, or say rightly
// why not, and what each has counted has to add up.
//
// KVR_TEST_SEEDS and KVR_TEST_FIRST_SEED widen a run or repeat one seed.
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "simulation/path.h"

namespace kvr::simulation {
namespace {

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string RunPlan(const Plan& plan, Path::Totals& totals) {
  Path path(plan);
  std::string complaint;
  for (int round = 0; round < plan.rounds && complaint.empty(); ++round) {
    path.Trouble();
    path.Peace();
    complaint = path.Complaint();
    if (!complaint.empty()) complaint += " after round " + std::to_string(round);
  }
  totals.exact += path.totals().exact;
  totals.degraded += path.totals().degraded;
  totals.restarts += path.totals().restarts;
  totals.gaps += path.totals().gaps;
  totals.replays += path.totals().replays;
  totals.at_mark += path.totals().at_mark;
  totals.in_snapshots += path.totals().in_snapshots;
  totals.overtaken += path.totals().overtaken;
  totals.events_compared += path.totals().events_compared;
  totals.shared += path.totals().shared;
  totals.told += path.totals().told;
  return complaint;
}

// Fewer where the build is not optimised, to keep the suite quick.
#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 200;
constexpr std::uint64_t kSeedsOfATrouble = 10;
#else
constexpr std::uint64_t kSeeds = 20;
constexpr std::uint64_t kSeedsOfATrouble = 2;
#endif

Path::Totals RunSeeds(Plan (*plan_of)(std::uint64_t), std::uint64_t seeds) {
  const std::uint64_t first = FromEnvironment("KVR_TEST_FIRST_SEED", 1);
  Path::Totals totals;
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + seeds && failures < 20; ++seed) {
    const Plan plan = plan_of(seed);
    const std::string complaint = RunPlan(plan, totals);
    EXPECT_EQ(complaint, "") << plan.ToString();
    failures += complaint.empty() ? 0 : 1;
  }
  if (seeds < 100) return totals;
  // The faults have to have happened for this to mean anything.
  EXPECT_GT(totals.exact, 2 * totals.degraded);
  EXPECT_GT(totals.degraded, 0u);
  EXPECT_GT(totals.restarts, seeds);
  EXPECT_GT(totals.gaps, seeds);
  EXPECT_GT(totals.replays, 10 * seeds);
  EXPECT_GT(totals.at_mark, seeds / 4);
  EXPECT_GT(totals.in_snapshots, seeds);
  EXPECT_GT(totals.overtaken, 0u);
  EXPECT_GT(totals.events_compared, seeds / 10);
  EXPECT_GT(totals.told, seeds / 200);
  return totals;
}

TEST(PathSimulation, EveryRouterEndsEqualToTheEngineOrSaysWhatIsLost) {
  RunSeeds(PlanOf, FromEnvironment("KVR_TEST_SEEDS", kSeeds));
}

TEST(PathSimulation, EveryRouterEndsEqualToAllSourcesOfEachRank) {
  const std::uint64_t seeds = FromEnvironment("KVR_TEST_SEEDS", kSeeds / 2);
  const Path::Totals totals = RunSeeds(PlanOfSeveral, seeds);
  if (seeds >= 100) {
    EXPECT_GT(totals.shared, 10 * seeds);
  }
}

// Of a run of 10,000: what each showed.
TEST(PathSimulation, SeedsThatOnceFailed) {
  const struct {
    std::uint64_t seed;
    std::string_view what;
  } seeds[] = {
      {1'312, "a restarted agent that has nothing to tell yet"},
      {1'762, "a restart that keeps its numbers, of an engine without replay"},
      {2'007,
       "the agent slept through three engines, and applied messages of the third behind "
       "those of the first"},
      {3'000, "the last messages are lost, and the engine falls silent"},
      {3'613,
       "the agent slept through an engine that told as many messages as the one before, and the "
       "ring of the third begins right behind them"},
  };
  for (const auto& [seed, what] : seeds) {
    Path::Totals totals;
    EXPECT_EQ(RunPlan(PlanOf(seed), totals), "") << seed << ": " << what;
  }
}

// Likewise, of several sources.
TEST(PathSimulation, SeedsOfSeveralSourcesThatOnceFailed) {
  const struct {
    std::uint64_t seed;
    std::string_view what;
  } seeds[] = {
      {642,
       "the agent slept through an engine without replay, and took what was left of it for the "
       "next one's, whose numbers went on"},
  };
  for (const auto& [seed, what] : seeds) {
    Path::Totals totals;
    EXPECT_EQ(RunPlan(PlanOfSeveral(seed), totals), "") << seed << ": " << what;
  }
}

// One thing that goes wrong, again and again, and nothing else.
struct Trouble {
  const char* name;
  void (*into)(Plan& plan);
  bool loses = false;  // something for good, so that not everybody ends exact
};

std::ostream& operator<<(std::ostream& out, const Trouble& trouble) {
  return out << trouble.name;
}

class OneTrouble : public testing::TestWithParam<Trouble> {};

TEST_P(OneTrouble, EndsWell) {
  Path::Totals totals;
  for (std::uint64_t seed = 1; seed <= kSeedsOfATrouble; ++seed) {
    Plan plan;
    plan.seed = seed;
    plan.engine.copies = seed % 2 == 0;
    plan.engine.same_names = seed % 3 == 0;
    plan.agent.stream.clear_on_loss = true;
    GetParam().into(plan);
    EXPECT_EQ(RunPlan(plan, totals), "") << plan.ToString();
  }
  if (!GetParam().loses) {
    EXPECT_EQ(totals.degraded, 0u);
  }
}

constexpr std::uint64_t kOften = 10;

INSTANTIATE_TEST_SUITE_P(
    PathSimulation, OneTrouble,
    testing::Values(
        Trouble{"None", [](Plan&) {}},  //
        Trouble{"Dropped", [](Plan& plan) { plan.faults.drop = 300; }},
        Trouble{"Repeated", [](Plan& plan) { plan.faults.duplicate = 300; }},
        Trouble{"OutOfOrder", [](Plan& plan) { plan.faults.reorder = 300; }},
        Trouble{"Undecodable", [](Plan& plan) { plan.weights.undecodable = kOften; }, true},
        Trouble{"Late", [](Plan& plan) { plan.faults.slow = 100; }},
        Trouble{"AnswersCutShort",
                [](Plan& plan) {
                  plan.faults.drop = 100;
                  plan.faults.cut_answer = 600;
                }},
        Trouble{"AnswersWithHoles",
                [](Plan& plan) {
                  plan.faults.drop = 100;
                  plan.faults.hole_in_answer = 100;
                }},
        Trouble{"NoAnswers",
                [](Plan& plan) {
                  plan.faults.drop = 100;
                  plan.faults.no_answer = 600;
                }},
        Trouble{"SilentReplaySockets",
                [](Plan& plan) {
                  plan.faults.drop = 100;
                  plan.weights.mute_engine = plan.weights.mute_agent = kOften;
                }},
        Trouble{"ConnectionsCut",
                [](Plan& plan) { plan.weights.cut_agent = plan.weights.cut_router = kOften; }},
        Trouble{"LongOutages",
                [](Plan& plan) {
                  plan.weights.cut_agent = plan.weights.cut_router = kOften;
                  plan.weights.kill_agent = plan.weights.restart_engine = kOften;
                  plan.long_outages = true;
                }},
        Trouble{"EngineRestarts", [](Plan& plan) { plan.weights.restart_engine = kOften; }},
        Trouble{"EngineRestartsThatKeepTheirNumbers",
                [](Plan& plan) {
                  plan.weights.restart_engine = kOften;
                  plan.keeps_numbers = true;
                },
                true},
        Trouble{"AgentKilled", [](Plan& plan) { plan.weights.kill_agent = kOften; }},
        Trouble{"RoutersRestart", [](Plan& plan) { plan.weights.restart_router = kOften; }},
        Trouble{"RoutersStopReading",
                [](Plan& plan) {
                  plan.weights.stall_router = plan.weights.burst = kOften;
                  plan.agent.socket.unread_max = 4;
                }},
        Trouble{"AgentStopsReading",
                [](Plan& plan) {
                  plan.weights.stall_agent = plan.weights.burst = kOften;
                  plan.engine.publisher.unread_max = 4;
                }},
        Trouble{"QueuesOverflow",
                [](Plan& plan) {
                  plan.weights.hold_agent = plan.weights.burst = kOften;
                  plan.agent.socket.queue_max = 3;
                  plan.agent.socket.replay_messages_max = 5;
                }},
        Trouble{"ShortRings",
                [](Plan& plan) {
                  plan.weights.cut_agent = plan.weights.cut_router = plan.weights.burst = kOften;
                  plan.engine.publisher.replay_messages_max = 4;
                  plan.agent.socket.replay_messages_max = 4;
                },
                true},
        Trouble{"NoReplayOfTheEngine",
                [](Plan& plan) {
                  plan.faults.drop = 20;
                  plan.weights.cut_agent = plan.weights.restart_engine = kOften;
                  plan.engine_replay = false;
                },
                true},
        Trouble{"ClearsAndForeignMessages",
                [](Plan& plan) {
                  plan.weights.clear = plan.weights.foreign = plan.weights.garbage = kOften;
                }}),
    [](const testing::TestParamInfo<Trouble>& trouble) { return std::string(trouble.param.name); });

}  // namespace
}  // namespace kvr::simulation
