#include "sched/policy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::sched {
namespace {

std::vector<CostTerms> Costs(const std::vector<double>& totals) {
  std::vector<CostTerms> costs(totals.size());
  for (std::size_t i = 0; i < totals.size(); ++i)
    costs[i].total = totals[i];
  return costs;
}

std::vector<Candidate> Ranks(std::size_t count) {
  std::vector<Candidate> candidates(count);
  for (std::size_t i = 0; i < count; ++i)
    candidates[i].rank = {WorkerId{i / 2}, static_cast<std::uint32_t>(i % 2)};
  return candidates;
}

// How often each index comes up in `draws` picks.
template <typename Pick>
std::vector<int> Histogram(std::size_t count, int draws, const Pick& pick) {
  std::vector<int> seen(count);
  for (int i = 0; i < draws; ++i)
    ++seen[pick()];
  return seen;
}

TEST(PickCheapest, TakesTheLeast) {
  Rng rng(1);
  EXPECT_EQ(PickCheapest(Costs({3, 1, 2}), rng), 1u);
  EXPECT_EQ(PickCheapest(Costs({3}), rng), 0u);
}

TEST(PickCheapest, TiesAreUniform_S8) {
  Rng rng(7);
  for (const std::size_t tied : {2u, 3u, 8u}) {
    std::vector<double> totals(tied, 1.0);
    totals.push_back(2.0);
    const auto seen = Histogram(tied + 1, 8000, [&] { return PickCheapest(Costs(totals), rng); });
    for (std::size_t i = 0; i < tied; ++i)
      EXPECT_NEAR(seen[i], 8000.0 / static_cast<double>(tied), 300) << tied;
    EXPECT_EQ(seen[tied], 0);
  }
}

TEST(PickCheapest, SameSeedSameChoices_S9) {
  Rng a(42);
  Rng b(42);
  const auto costs = Costs({1, 1, 1, 1, 5});
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(PickCheapest(costs, a), PickCheapest(costs, b));
}

TEST(PickByTemperature, EqualCostsAreUniform_S10) {
  Rng rng(3);
  const auto costs = Costs({5, 5, 5, 5});
  const auto seen = Histogram(4, 8000, [&] {
    return PickByTemperature(costs, 0.7, TemperatureScale::kRange, rng.Uniform());
  });
  for (const int count : seen)
    EXPECT_NEAR(count, 2000, 200);
}

struct Draw {
  std::string name;
  std::vector<double> totals;
  double temperature;
  TemperatureScale scale;
  double first;  // probability of row 0
};
class TemperatureTest : public testing::TestWithParam<Draw> {};

TEST_P(TemperatureTest, FirstRowHasItsShare) {
  const Draw& row = GetParam();
  const auto costs = Costs(row.totals);
  const auto pick = [&](double u) {
    return PickByTemperature(costs, row.temperature, row.scale, u);
  };
  EXPECT_EQ(pick(std::max(0.0, row.first - 1e-3)), 0u);
  if (row.first < 0.99) {
    EXPECT_NE(pick(row.first + 1e-3), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, TemperatureTest,
    testing::ValuesIn(std::vector<Draw>{
        {"S11", {0, 1}, 1, TemperatureScale::kRange, 0.731},
        {"range_is_scale_free", {0, 1000}, 1, TemperatureScale::kRange, 0.731},
        {"best_to_worst_is_7_39_at_half", {0, 3}, 0.5, TemperatureScale::kRange, 7.389 / 8.389},
        {"S12_overflowing_range",
         {0, 1e308, -1e308},
         1,
         TemperatureScale::kRange,
         std::exp(-0.5) / (1 + std::exp(-0.5) + std::exp(-1))},
        {"blocks_close_costs_are_close", {0, 1}, 10, TemperatureScale::kBlocks, 0.525},
        {"blocks_far_costs_are_far", {0, 1000}, 10, TemperatureScale::kBlocks, 1}}),
    [](const auto& row) { return row.param.name; });

TEST(PickByTemperature, LastRowTakesWhatRoundingLeaves_S13) {
  const auto costs = Costs({0, 0.3, 0.7});
  EXPECT_EQ(PickByTemperature(costs, 1, TemperatureScale::kRange, 1.0), 2u);
  EXPECT_EQ(PickByTemperature(costs, 1, TemperatureScale::kRange, 1.5), 2u);
  EXPECT_EQ(PickByTemperature(costs, 1, TemperatureScale::kRange, 0.0), 0u);
}

TEST(KvPolicy, TemperatureZeroIsDeterministic_S14) {
  const auto policy = MakePolicy(PolicyKind::kKv);
  const auto candidates = Ranks(3);
  const auto costs = Costs({3, 1, 2});
  Rng rng(5);
  const CostOptions hot{.temperature = 2};
  const auto seen = Histogram(3, 300, [&] { return policy->Pick(hot, candidates, costs, rng); });
  EXPECT_THAT(seen, testing::Each(testing::Gt(0)));
  const CostOptions cold = CostOverrides{.overlap_score_credit = {},
                                         .prefill_load_scale = {},
                                         .shared_cache_multiplier = {},
                                         .temperature = 0}
                               .Over(hot);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(policy->Pick(cold, candidates, costs, rng), 1u);
}

class RoundRobinTest : public testing::Test {
 protected:
  // Picks and reports it as booked.
  Rank Next(const std::vector<Candidate>& candidates) {
    const Rank rank = candidates[Peek(candidates)].rank;
    policy_->Booked(rank);
    return rank;
  }
  std::size_t Peek(const std::vector<Candidate>& candidates) {
    return policy_->Pick({}, candidates, Costs(std::vector<double>(candidates.size())), rng_);
  }

  Rng rng_{1};
  std::unique_ptr<Policy> policy_ = MakePolicy(PolicyKind::kRoundRobin);
};

TEST_F(RoundRobinTest, VisitsAllInOrder) {
  const auto candidates = Ranks(3);
  for (int round = 0; round < 2; ++round) {
    for (const Candidate& candidate : candidates)
      EXPECT_EQ(Next(candidates), candidate.rank);
  }
}

TEST_F(RoundRobinTest, AdvisoryPicksDoNotAdvance_S40) {
  const auto candidates = Ranks(3);
  Next(candidates);
  EXPECT_EQ(Peek(candidates), 1u);
  EXPECT_EQ(Peek(candidates), 1u);
  EXPECT_EQ(Next(candidates), candidates[1].rank);
}

TEST_F(RoundRobinTest, KeepsItsPlaceWhenRanksComeAndGo) {
  const auto four = Ranks(4);
  Next(four);
  Next(four);
  const std::vector<Candidate> without_first_two(four.begin() + 2, four.end());
  EXPECT_EQ(Next(without_first_two), four[2].rank);
  const std::vector<Candidate> without_last(four.begin(), four.begin() + 3);
  EXPECT_EQ(Next(without_last), four[0].rank);
}

TEST(LeastLoadedPolicy, TakesTheFewestRequestsAndBreaksTies) {
  const auto policy = MakePolicy(PolicyKind::kLeastLoaded);
  auto candidates = Ranks(3);
  candidates[0].active_requests = 2;
  candidates[1].active_requests = 1;
  candidates[2].active_requests = 1;
  const auto costs = Costs({0, 9, 9});
  Rng rng(9);
  const auto seen = Histogram(3, 1000, [&] { return policy->Pick({}, candidates, costs, rng); });
  EXPECT_EQ(seen[0], 0);
  EXPECT_NEAR(seen[1], 500, 80);
}

TEST(RandomPolicy, IsUniform) {
  const auto policy = MakePolicy(PolicyKind::kRandom);
  const auto candidates = Ranks(4);
  const auto costs = Costs({0, 1, 2, 3});
  Rng rng(11);
  const auto seen = Histogram(4, 4000, [&] { return policy->Pick({}, candidates, costs, rng); });
  for (const int count : seen)
    EXPECT_NEAR(count, 1000, 150);
}

TEST(PolicyNames, RoundTrip) {
  for (std::size_t i = 0; i < kPolicyCount; ++i) {
    const auto kind = static_cast<PolicyKind>(i);
    EXPECT_EQ(PolicyFromName(PolicyName(kind)), kind);
    EXPECT_EQ(MakePolicy(kind)->kind(), kind);
  }
  EXPECT_EQ(PolicyFromName("kvv"), std::nullopt);
  EXPECT_EQ(PolicyFromName(""), std::nullopt);
}

}  // namespace
}  // namespace kvr::sched
