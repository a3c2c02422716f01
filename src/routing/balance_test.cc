// What a stream of decisions does to a fleet: no herd, no idle rank beside a hot one, no lost
// prefix, and the same again with the same seed.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "routing/router_fixture.h"

namespace kvr::routing {
namespace {

using Seen = std::map<Rank, int>;

std::pair<int, int> MinMax(const Seen& seen, std::size_t ranks) {
  int low = seen.size() < ranks ? 0 : INT32_MAX;
  int high = 0;
  for (const auto& [rank, count] : seen) {
    low = std::min(low, count);
    high = std::max(high, count);
  }
  return {low, high};
}

void AddWarmWorkers(RouterFixture& fixture, std::uint64_t count,
                    const std::vector<TokenId>& prefix) {
  for (std::uint64_t worker = 1; worker <= count; ++worker) {
    fixture.AddWorker(worker);
    fixture.Store({WorkerId{worker}, 0}, prefix);
  }
}

TEST(Balance, AdvisoryTiesAreUniform) {
  RouterFixture fixture;
  const auto prompt = MakePrompt(1, 4);
  AddWarmWorkers(fixture, 8, prompt);
  RouteRequest request = RequestFor(prompt);
  request.reserve = false;
  Seen seen;
  for (int i = 0; i < 800; ++i)
    ++seen[fixture.router.Route(request)->rank];
  EXPECT_EQ(seen.size(), 8u);
  for (const auto& [rank, count] : seen)
    EXPECT_NEAR(count, 100, 40);
  // A rank that comes back is as likely as before.
  fixture.RemoveWorker(3);
  fixture.AddWorker(3);
  fixture.Store({WorkerId{3}, 0}, prompt);
  seen.clear();
  for (int i = 0; i < 800; ++i)
    ++seen[fixture.router.Route(request)->rank];
  for (const auto& [rank, count] : seen)
    EXPECT_NEAR(count, 100, 40);
}

// A burst of prompts that all ranks know equally well: each decision sees those before it.
TEST(Balance, BurstOverWarmRanksSpreadsEvenly) {
  RouterOptions options;
  options.cost.decode_active_request_weight = 1;
  RouterFixture fixture(options);
  AddWarmWorkers(fixture, 8, MakePrompt(1, 4, 0));
  std::vector<Decision> live;
  Seen seen;
  for (std::uint32_t i = 0; i < 64; ++i) {
    auto prompt = MakePrompt(1, 4, 0);
    const auto unique = MakePrompt(100 + i, 1);
    prompt.insert(prompt.end(), unique.begin(), unique.end());
    live.push_back(*fixture.router.Route(RequestFor(prompt)));
    ++seen[live.back().rank];
  }
  for (const auto& [rank, count] : seen)
    EXPECT_EQ(count, 8);
}

TEST(Balance, BurstOfColdPromptsSpreadsEvenly) {
  RouterFixture fixture;
  for (std::uint64_t worker = 1; worker <= 8; ++worker)
    fixture.AddWorker(worker);
  std::vector<Decision> live;
  Seen seen;
  for (std::uint32_t i = 0; i < 64; ++i) {
    live.push_back(*fixture.router.Route(RequestFor(MakePrompt(100 + i, 5))));
    ++seen[live.back().rank];
  }
  const auto [low, high] = MinMax(seen, 8);
  EXPECT_LE(high - low, 1);
}

TEST(Balance, WithoutPrefixesEveryRankGetsItsShare) {
  RouterFixture fixture;
  for (std::uint64_t worker = 1; worker <= 5; ++worker)
    fixture.AddWorker(worker, 1, RankState::kBlind);
  Rng rng(17);
  std::vector<Decision> live;
  Seen seen;
  for (std::uint32_t i = 0; i < 500; ++i) {
    Decision decision = *fixture.router.Route(RequestFor(MakePrompt(100 + i, 32)));
    decision.booking.PrefillDone();
    ++seen[decision.rank];
    live.push_back(std::move(decision));
    while (live.size() > 50) {
      std::swap(live[rng.Below(live.size())], live.back());
      live.pop_back();
    }
    if (live.size() < 50) continue;
    std::uint64_t low = UINT64_MAX;
    std::uint64_t high = 0;
    for (const RankLoad& load : fixture.router.Loads(RouterFixture::ThePartition())) {
      low = std::min(low, load.active_blocks);
      high = std::max(high, load.active_blocks);
    }
    ASSERT_LE(high, 13 * low / 10) << "after " << i;
  }
  for (const auto& [rank, count] : seen)
    EXPECT_NEAR(count, 100, 10);
}

TEST(Balance, ConversationsStayWithTheirHolder) {
  RouterFixture fixture;
  for (std::uint64_t worker = 1; worker <= 5; ++worker)
    fixture.AddWorker(worker);
  int stayed = 0;
  std::map<std::uint32_t, Rank> holder;
  for (std::size_t round = 0; round < 10; ++round) {
    for (std::uint32_t talk = 0; talk < 20; ++talk) {
      const auto prompt = MakePrompt(100 + talk, 4 * (round + 1));
      const Decision decision = *fixture.router.Route(RequestFor(prompt));
      if (round > 0) {
        stayed += decision.rank == holder[talk] ? 1 : 0;
        if (decision.rank == holder[talk]) {
          EXPECT_EQ(decision.predicted_cached_tokens, 64 * round);
        }
      }
      holder[talk] = decision.rank;
      fixture.Store(decision.rank, prompt);
    }
  }
  EXPECT_GE(stayed, 171);  // 95 % of 180
}

// One hot prefix on one rank: it keeps the traffic only as long as that is cheaper than starting
// over on an idle rank.
TEST(Balance, NoRankIsTwiceAsBusyWhileAnotherIsIdle) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    RouterOptions options;
    options.seed = seed;
    RouterFixture fixture(options);
    constexpr std::uint64_t kRanks = 6;
    for (std::uint64_t worker = 1; worker <= kRanks; ++worker)
      fixture.AddWorker(worker);
    constexpr std::size_t kPrefixBlocks = 12;
    const auto prefix = MakePrompt(1, kPrefixBlocks, 0);
    fixture.Store({WorkerId{1}, 0}, prefix);
    Rng rng(seed);
    std::vector<Decision> live;
    for (std::uint32_t i = 0; i < 400; ++i) {
      auto prompt = prefix;
      const auto unique = MakePrompt(100 + i, 1 + rng.Below(6));
      prompt.insert(prompt.end(), unique.begin(), unique.end());
      live.push_back(*fixture.router.Route(RequestFor(prompt)));
      if (rng.Below(3) == 0) live[rng.Below(live.size())].booking.PrefillDone();
      if (live.size() > 24) {
        std::swap(live[rng.Below(live.size())], live.back());
        live.pop_back();
      }
      double sum = 0;
      double most = 0;
      bool idle = false;
      for (const RankLoad& load : fixture.router.Loads(RouterFixture::ThePartition())) {
        const double blocks =
            static_cast<double>(load.active_blocks) +
            static_cast<double>(load.active_prefill_tokens) / RouterFixture::kBlockSize;
        sum += blocks;
        most = std::max(most, blocks);
        idle |= load.active_requests == 0;
      }
      // The queue cost of the busiest rank is its load; starting over costs the prefix, once as
      // prefill and once as blocks, and the newest request itself may still be on top.
      const double warm_difference = 2 * kPrefixBlocks + 2 * 7;
      if (idle && most > warm_difference) {
        ASSERT_LE(most, 2 * sum / kRanks) << "after " << i;
      }
    }
    live.clear();
    for (const RankLoad& load : fixture.router.Loads(RouterFixture::ThePartition())) {
      EXPECT_EQ(load.active_requests, 0u);
      EXPECT_EQ(load.active_blocks, 0u);
      EXPECT_EQ(load.active_prefill_tokens, 0u);
    }
  }
}

// The terms of the explanation are what was decided by: no other candidate is cheaper.
TEST(Balance, KvTakesTheCheapest) {
  RouterOptions options;
  options.explained_max = 64;
  RouterFixture fixture(options);
  for (std::uint64_t worker = 1; worker <= 16; ++worker)
    fixture.AddWorker(worker);
  Rng rng(3);
  std::vector<Decision> live;
  for (int i = 0; i < 300; ++i) {
    const auto prompt = MakePrompt(static_cast<std::uint32_t>(rng.Below(8)), 2 + rng.Below(10));
    live.push_back(*fixture.router.Route(RequestFor(prompt)));
    const Decision& decision = live.back();
    for (const CandidateReport& other : decision.explained)
      ASSERT_LE(decision.cost.total, other.cost.total);
    fixture.Store(decision.rank, prompt);
    if (live.size() > 40) live.erase(live.begin(), live.begin() + 20);
  }
}

TEST(Balance, SameSeedSameDecisions) {
  const auto run = [](std::uint64_t seed) {
    RouterOptions options;
    options.seed = seed;
    options.cost.temperature = 0.5;
    RouterFixture fixture(options);
    for (std::uint64_t worker = 1; worker <= 7; ++worker)
      fixture.AddWorker(worker);
    std::vector<Decision> live;
    std::vector<Rank> chosen;
    for (std::uint32_t i = 0; i < 100; ++i) {
      live.push_back(*fixture.router.Route(RequestFor(MakePrompt(i % 9, 4))));
      chosen.push_back(live.back().rank);
    }
    return chosen;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace kvr::routing
