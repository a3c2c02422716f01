// Rows S* and the worked examples of the scheduling specification, and its defaults.
#include "sched/cost.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::sched {
namespace {

constexpr WorkerId kAnyone{1};

RequestShape Shape(std::uint64_t isl, std::uint32_t block_size) {
  return {.isl_tokens = isl, .block_size = block_size};
}

struct CostRow {
  std::string name;
  CostOptions options;
  RequestShape request;
  Candidate candidate;
  double cost;
  std::uint64_t prefill_floor = 0;
};

class CostTest : public testing::TestWithParam<CostRow> {};

TEST_P(CostTest, TotalIs) {
  const CostRow& row = GetParam();
  EXPECT_NEAR(Cost(row.options, row.request, row.candidate, row.prefill_floor).total, row.cost,
              5e-3);
}

Candidate Ours() {
  return {.rank = {kAnyone, 0}};
}
Candidate Load(std::uint32_t device, std::uint64_t decode, std::uint64_t prefill = 0,
               std::uint32_t requests = 0) {
  Candidate candidate = Ours();
  candidate.device = device;
  candidate.decode_blocks = decode;
  candidate.active_prefill = prefill;
  candidate.active_requests = requests;
  return candidate;
}
Candidate Tainted(std::uint64_t decode, double weight) {
  Candidate candidate = Load(0, decode);
  candidate.taint_weight = weight;
  return candidate;
}
Candidate Tiers(std::uint32_t device, std::uint32_t host, std::uint32_t disk,
                std::uint32_t shared) {
  Candidate candidate = Load(device, 0);
  candidate.host = host;
  candidate.disk = disk;
  candidate.shared_beyond = shared;
  return candidate;
}
RequestShape Untracked(RequestShape shape, bool decode_pool = true) {
  shape.track_prefill = false;
  shape.decode_pool = decode_pool;
  return shape;
}
Candidate Unknown() {
  Candidate candidate = Ours();
  candidate.has_load = false;
  return candidate;
}

INSTANTIATE_TEST_SUITE_P(
    WorkedExamples, CostTest,
    testing::ValuesIn(std::vector<CostRow>{
        {"three_workers_a", {}, Shape(160, 16), Load(2, 10), 18},
        {"three_workers_b", {}, Shape(160, 16), Load(5, 5), 10},
        {"three_workers_c", {}, Shape(160, 16), Load(8, 9), 11},
        {"shared_w0", {.shared_cache_multiplier = 0.5}, Shape(4, 1), Tiers(2, 0, 0, 2), 1},
        {"shared_w1", {.shared_cache_multiplier = 0.5}, Shape(4, 1), Tiers(0, 0, 0, 4), 2},
        {"scale_w0", {.prefill_load_scale = 2}, Shape(64, 16), Load(2, 3), 7},
        {"scale_w1", {.prefill_load_scale = 2}, Shape(64, 16), Load(0, 0), 8},
        {"warm_credit_1", {}, Shape(128, 16), Load(4, 5), 9},
        {"cold_credit_1", {}, Shape(128, 16), Load(0, 0), 8},
        {"warm_credit_1_5", {.overlap_score_credit = 1.5}, Shape(128, 16), Load(4, 5), 7},
        {"S15_overlap_beyond_prompt", {.prefill_load_scale = 2}, Shape(64, 16), Load(6, 5, 16), 7},
        {"untracked_prefill_pool",
         {.prefill_load_scale = 2},
         Untracked(Shape(64, 16), false),
         Load(6, 5, 16),
         5},
        {"requests_none",
         {.decode_active_request_weight = 32},
         Untracked(Shape(1, 1), false),
         Load(0, 100, 0, 0),
         100},
        {"requests_four",
         {.decode_active_request_weight = 32},
         Untracked(Shape(1, 1), false),
         Load(0, 100, 0, 4),
         228},
        {"decode_pool", {}, Untracked(Shape(64, 16)), Load(3, 10), 7},
        {"no_decay_warm", {}, Shape(64, 16), Load(4, 0, 48), 3},
        {"no_decay_cold", {}, Shape(64, 16), Load(0, 0), 4},
        {"decay_warm", {.overlap_score_credit_decay = 1}, Shape(64, 16), Load(4, 0, 48), 4.714},
        {"taint_wanted", {}, Untracked(Shape(1, 1), false), Tainted(100, 0.85), 50.1},
        {"taint_unwanted", {}, Untracked(Shape(1, 1), false), Tainted(90, -0.25), 114.98},
        {"all_tiers",
         {.overlap_score_credit = 0.5,
          .host_cache_hit_weight = 0.25,
          .disk_cache_hit_weight = 0.1,
          .shared_cache_multiplier = 0.5},
         Shape(160, 16),
         Tiers(2, 1, 2, 2),
         10 - 2.45}}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    EdgeRows, CostTest,
    testing::ValuesIn(std::vector<CostRow>{
        {"S16_credit_beyond_prefill", {.overlap_score_credit = 3}, Shape(64, 16), Load(4, 7), 7},
        {"S17_credit_0_ignores_device",
         {.overlap_score_credit = 0},
         Shape(64, 16),
         Tiers(2, 1, 1, 0),
         4 - 0.75 - 0.25},
        {"S18_credit_above_1_clamps", {.overlap_score_credit = 1.5}, Shape(64, 16), Load(4, 0), 0},
        {"S19_host_weight_0", {.host_cache_hit_weight = 0}, Shape(64, 16), Tiers(1, 2, 0, 0), 3},
        {"S23_no_load_entry", {}, Shape(64, 16), Unknown(), 4},
        {"S24_no_load_entry_untracked", {}, Untracked(Shape(64, 16), false), Unknown(), 0},
        {"S25_at_the_floor",
         {.overlap_score_credit_decay = 1},
         Shape(64, 16),
         Load(4, 0, 48),
         3,
         48},
        {"S26_one_request_above",
         {.overlap_score_credit_decay = 1},
         Shape(64, 16),
         Load(4, 0, 112),
         11 - 2,
         48},
        {"S27_decay_untracked",
         {.overlap_score_credit_decay = 1},
         Untracked(Shape(64, 16)),
         Load(4, 10, 640),
         6},
        {"S28_decode_pool_credit_0",
         {.overlap_score_credit = 0, .decode_active_request_weight = 2},
         Untracked(Shape(64, 16)),
         Load(4, 10, 0, 3),
         16},
        {"S29_decode_pool_clamps",
         {.decode_active_request_weight = 2},
         Untracked(Shape(320, 16)),
         Load(20, 10, 0, 3),
         6},
        {"S30_no_taint_matches", {}, Shape(64, 16), Tainted(3, 0), 7},
        {"S32_no_taint_asked", {}, Shape(64, 16), Load(0, 3), 7},
        {"taint_weight_1", {}, Untracked(Shape(1, 1), false), Tainted(100, 1), 46.692},
        {"taint_weight_2", {}, Untracked(Shape(1, 1), false), Tainted(100, 2), 38.135},
        {"taint_cannot_move_an_idle_cluster", {}, Untracked(Shape(1, 1), false), Tainted(0, -5), 0},
        {"partial_block_is_fractional", {}, Shape(20, 16), Load(0, 0), 1.25}}),
    [](const auto& row) { return row.param.name; });

TEST(Cost, OnlyEffectiveOverlapStandsInForDevice_S20) {
  RequestShape request = Shape(64, 16);
  request.only_effective_overlap = true;
  Candidate candidate = Ours();
  candidate.effective_overlap = 2.5;
  EXPECT_DOUBLE_EQ(Cost({}, request, candidate, 0).total, 1.5);
  EXPECT_EQ(CachedTokens({}, request, candidate), 40u);
  // S21: a tier map with any entry turns the fall-back off for everybody.
  request.only_effective_overlap = false;
  EXPECT_DOUBLE_EQ(Cost({}, request, candidate, 0).total, 4);
}

TEST(Cost, TermsExplainTheTotal) {
  const CostOptions options{
      .overlap_score_credit_decay = 1, .prefill_load_scale = 2, .decode_active_request_weight = 3};
  Candidate candidate = Load(2, 5, 128, 4);
  candidate.taint_weight = 0.5;
  const CostTerms terms = Cost(options, Shape(64, 16), candidate, 64);
  EXPECT_DOUBLE_EQ(terms.credit_decay, 0.5);
  EXPECT_DOUBLE_EQ(terms.credit_blocks, 1);
  EXPECT_DOUBLE_EQ(terms.raw_prefill_blocks, 12);
  EXPECT_DOUBLE_EQ(terms.total, (2 * (terms.raw_prefill_blocks - terms.credit_blocks) +
                                 terms.decode_blocks + terms.request_blocks) *
                                    terms.taint_factor);
}

TEST(Cost, EffectiveOverlapAndCachedTokens) {
  const CostOptions options{.host_cache_hit_weight = 0.5, .disk_cache_hit_weight = 0.25};
  const Candidate candidate = Tiers(2, 3, 9, 0);
  EXPECT_DOUBLE_EQ(EffectiveOverlap(options, candidate), 5.75);
  EXPECT_EQ(CachedTokens(options, Shape(160, 16), candidate), 92u);
}

// A fraction of a block never books a whole one.
TEST(Cost, Report35CachedTokensAreFloored) {
  const CostOptions options{.host_cache_hit_weight = 0.6};
  EXPECT_EQ(CachedTokens(options, Shape(12, 4), Tiers(0, 1, 0, 0)), 2u);
  EXPECT_EQ(CachedTokens(options, Shape(12, 4), Tiers(0, 2, 0, 0)), 4u);
  EXPECT_EQ(CachedTokens(options, Shape(12, 4), Tiers(3, 0, 0, 0)), 12u);
}

TEST(Cost, PrefillFloorIsTheLeast) {
  const std::vector<Candidate> candidates{Load(0, 0, 30), Load(0, 0, 20), Load(0, 0, 25)};
  EXPECT_EQ(PrefillFloor(candidates), 20u);
  EXPECT_EQ(PrefillFloor({}), 0u);
}

TEST(Cost, AllAreAsEachOverTheCommonFloor) {
  CostOptions options;
  options.overlap_score_credit_decay = 1;
  const RequestShape request = Shape(64, 16);
  const std::vector<Candidate> candidates = {Load(2, 7, 640), Tainted(3, 0.5), Load(1, 5, 64, 2)};
  // What an earlier request left there counts for nothing.
  std::vector<CostTerms> costs(5, CostTerms{9, 9, 9, 9, 9, 9, 9});
  CostAll(options, request, candidates, costs);
  ASSERT_EQ(costs.size(), candidates.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const CostTerms alone = Cost(options, request, candidates[i], PrefillFloor(candidates));
    EXPECT_EQ(costs[i].total, alone.total);
    EXPECT_EQ(costs[i].taint_factor, alone.taint_factor);
    EXPECT_EQ(costs[i].credit_decay, alone.credit_decay);
  }
}

TEST(Cost, HugeLoadsSaturate) {
  const double cost = Cost({}, Shape(64, 16), Load(0, UINT64_MAX, UINT64_MAX), 0).total;
  EXPECT_TRUE(std::isfinite(cost));
}

TEST(CostDeathTest, EmptyPromptIsTheCallersBug_S1) {
  EXPECT_DEATH(Cost({}, Shape(0, 16), Ours(), 0), "isl_tokens > 0");
}

TEST(CostOptions, DefaultsAreValid) {
  EXPECT_TRUE(CostOptions{}.Validate());
  EXPECT_DOUBLE_EQ(CostOptions{}.overlap_score_credit, 1);
  EXPECT_DOUBLE_EQ(CostOptions{}.host_cache_hit_weight, 0.75);
  EXPECT_DOUBLE_EQ(CostOptions{}.disk_cache_hit_weight, 0.25);
}

TEST(CostOptions, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    CostOptions options;
    std::string field;
  } rows[] = {
      {{.overlap_score_credit = -1}, "overlap_score_credit is -1"},
      {{.overlap_score_credit = inf}, "overlap_score_credit is inf"},
      {{.overlap_score_credit_decay = -0.5}, "overlap_score_credit_decay"},
      {{.prefill_load_scale = nan}, "prefill_load_scale is nan"},
      {{.decode_active_request_weight = inf}, "decode_active_request_weight"},
      {{.host_cache_hit_weight = 2}, "host_cache_hit_weight is 2: must be in 0..1"},
      {{.host_cache_hit_weight = nan}, "host_cache_hit_weight"},
      {{.disk_cache_hit_weight = 1.01}, "disk_cache_hit_weight"},
      {{.shared_cache_multiplier = -0.1}, "shared_cache_multiplier"},
      {{.temperature = -1}, "temperature"},
  };
  for (const auto& row : rows) {
    const auto result = row.options.Validate();
    ASSERT_FALSE(result) << row.field;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, testing::HasSubstr(row.field));
  }
}

TEST(CostOverrides, ReplaceOnlyWhatTheySet) {
  const CostOptions base{.overlap_score_credit = 2, .prefill_load_scale = 3, .temperature = 1};
  const CostOptions same = CostOverrides{}.Over(base);
  EXPECT_DOUBLE_EQ(same.overlap_score_credit, 2);
  EXPECT_DOUBLE_EQ(same.temperature, 1);
  const CostOptions changed = CostOverrides{.overlap_score_credit = 0,
                                            .prefill_load_scale = {},
                                            .shared_cache_multiplier = 0.5,
                                            .temperature = 0}
                                  .Over(base);
  EXPECT_DOUBLE_EQ(changed.overlap_score_credit, 0);
  EXPECT_DOUBLE_EQ(changed.prefill_load_scale, 3);
  EXPECT_DOUBLE_EQ(changed.shared_cache_multiplier, 0.5);
  EXPECT_DOUBLE_EQ(changed.temperature, 0);
}

}  // namespace
}  // namespace kvr::sched
