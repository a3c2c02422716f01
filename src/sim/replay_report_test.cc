#include "sim/replay_report.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/replay_stats.h"
#include "sim/svg_chart.h"

namespace kvr::sim {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

RequestRecord Answered(std::size_t index, int due_ms, int first_ms, int done_ms, std::string worker,
                       std::uint64_t cached) {
  RequestRecord record;
  record.index = index;
  record.due = milliseconds(due_ms);
  record.sent = milliseconds(3);
  record.first_token = milliseconds(first_ms);
  record.done = milliseconds(done_ms);
  record.worker = std::move(worker);
  record.prompt_tokens = 1000;
  record.output_tokens = 11;
  record.predicted_cached_tokens = cached;
  record.actual_cached_tokens = cached;
  return record;
}

TEST(ReplayStats, M30PercentileIsTheElementOfTheRoundedRank) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i)
    values.push_back(i);
  EXPECT_EQ(Percentile(values, 99), 98);
  EXPECT_EQ(Percentile({}, 50), 0);
}

TEST(ReplayStats, ADistributionHasItsSpread) {
  const Distribution d = Summarize({4, 2, 1, 3, 5});
  EXPECT_EQ(d.min, 1);
  EXPECT_EQ(d.p50, 3);
  EXPECT_EQ(d.p75, 4);
  EXPECT_EQ(d.p95, 5);
  EXPECT_EQ(d.max, 5);
  EXPECT_DOUBLE_EQ(d.std, std::sqrt(2.0));
}

TEST(ReplayStats, SumsUpAnArm) {
  const std::vector<RequestRecord> records = {Answered(0, 0, 100, 200, "1", 0),
                                              Answered(1, 50, 300, 400, "2", 512)};
  const ArmResult arm = SummarizeArm("kv", records, 10);
  EXPECT_EQ(arm.errors, 0u);
  EXPECT_DOUBLE_EQ(arm.ttft.mean, 2000);   // (100 + 300) / 2, scaled by 10
  EXPECT_DOUBLE_EQ(arm.tpot.mean, 100);    // 100 ms over 10 tokens, scaled
  EXPECT_DOUBLE_EQ(arm.send_lag.p99, 30);  // 3 ms, scaled
  EXPECT_DOUBLE_EQ(arm.duration_ms, 4500);
  EXPECT_DOUBLE_EQ(arm.CachedRatio(), 512.0 / 2000);
  ASSERT_EQ(arm.ranks.size(), 2u);
  EXPECT_EQ(arm.ranks[0].name, "1/0");
  EXPECT_EQ(arm.ranks[0].work_tokens, 1011u);
  EXPECT_EQ(arm.ranks[1].work_tokens, 499u);
  EXPECT_NEAR(arm.work_cv, 256.0 / 755.0, 1e-9);
}

TEST(ReplayStats, AnAnswerWhoseTokensWereNotSeenHasNoTimeToTheFirst) {
  std::vector<RequestRecord> records = {Answered(0, 0, 100, 200, "1", 0),
                                        Answered(1, 0, 0, 200, "1", 0)};
  const ArmResult arm = SummarizeArm("kv", records, 1);
  EXPECT_EQ(arm.ttft.count, 1u);
  EXPECT_DOUBLE_EQ(arm.ttft.mean, 100);
  EXPECT_EQ(arm.tpot.count, 1u);
  EXPECT_EQ(arm.e2e.count, 2u);
}

TEST(ReplayStats, FailedRequestsCountAsErrorsAndNowhereElse) {
  std::vector<RequestRecord> records = {Answered(0, 0, 100, 200, "1", 0)};
  records.emplace_back();
  records.back().error = "503 unavailable";
  const ArmResult arm = SummarizeArm("kv", records, 1);
  EXPECT_EQ(arm.requests, 2u);
  EXPECT_EQ(arm.errors, 1u);
  EXPECT_EQ(arm.e2e.count, 1u);
  EXPECT_THAT(arm.error_samples, ::testing::ElementsAre("503 unavailable"));
}

TEST(ReplayStats, M32AllRejectedGivesEmptyDistributions) {
  std::vector<RequestRecord> records(3);
  for (auto& record : records)
    record.error = "x";
  const ArmResult arm = SummarizeArm("kv", records, 1);
  EXPECT_EQ(arm.ttft.count, 0u);
  EXPECT_EQ(arm.CachedRatio(), 0);
  EXPECT_EQ(arm.work_cv, 0);
}

TEST(ReplayStats, M15OneTokenGivesNoInterTokenSample) {
  std::vector<RequestRecord> records = {Answered(0, 0, 100, 100, "1", 0)};
  records[0].output_tokens = 1;
  const ArmResult arm = SummarizeArm("kv", records, 1);
  EXPECT_EQ(arm.tpot.count, 0u);
  EXPECT_DOUBLE_EQ(arm.ttft.mean, arm.e2e.mean);
}

TEST(ReplayStats, AnIdleRankCountsInTheSpread) {
  const std::vector<RequestRecord> records = {Answered(0, 0, 100, 200, "1", 0)};
  const std::vector<std::string> expected = {"1/0", "2/0"};
  EXPECT_DOUBLE_EQ(SummarizeArm("kv", records, 1, expected).work_cv, 1);
}

TEST(ReplayStats, HitRatioLooksBackOnAFewSlices) {
  // 60 ms in 60 slices; everything is due at the start, half of it cached.
  const std::vector<RequestRecord> records = {Answered(0, 0, 1, 60, "1", 500)};
  const ArmResult arm = SummarizeArm("kv", records, 1);
  EXPECT_DOUBLE_EQ(arm.hit_ratio[0], 0.5);
  EXPECT_DOUBLE_EQ(arm.hit_ratio[kHitRatioWindow - 1], 0.5);
  EXPECT_DOUBLE_EQ(arm.hit_ratio[kHitRatioWindow], 0);
}

TEST(ReplayStats, ActiveRequestsAreSpreadOverTheSlicesTheyTouch) {
  const std::vector<RequestRecord> records = {Answered(0, 0, 10, 600, "1", 0)};
  const ArmResult arm = SummarizeArm("kv", records, 1);
  for (const double active : arm.ranks[0].active)
    EXPECT_NEAR(active, 1, 1e-9);
}

ReplayReport TwoArms() {
  ReplayReport report;
  report.title = "a <title>";
  report.setup = {{"trace", "t & u"}};
  report.infinite_cache_ratio = 0.5;
  const std::vector<RequestRecord> records = {Answered(0, 0, 100, 200, "1", 256),
                                              Answered(1, 50, 300, 400, "2", 512)};
  report.arms = {SummarizeArm("kv", records, 1), SummarizeArm("round_robin", records, 1)};
  return report;
}

TEST(ReplayReport, TableHasARowPerArmAndTheBound) {
  const std::string table = ToTable(TwoArms());
  EXPECT_THAT(table, HasSubstr("kv "));
  EXPECT_THAT(table, HasSubstr("round_robin"));
  EXPECT_THAT(table, HasSubstr("38.40 %"));
  for (const char* head : {"TTFT mean", "TPOT mean", "E2E mean", "sent late"}) {
    EXPECT_THAT(table, HasSubstr(head));
  }
  EXPECT_THAT(table, HasSubstr("spared 50.00 %"));
}

TEST(ReplayReport, WritesASelfContainedPage) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "kvr_report_test" / "nested";
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(WriteReport(TwoArms(), directory));
  std::ifstream file(directory / "report.html");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("a &lt;title&gt;"));
  EXPECT_THAT(page.str(), HasSubstr("t &amp; u"));
  EXPECT_THAT(page.str(), HasSubstr("</svg>"));
  EXPECT_THAT(page.str(), Not(HasSubstr("<script")));
  EXPECT_THAT(page.str(), Not(HasSubstr("src=")));
  for (const char* name : {"ttft.svg", "hit_ratio.svg", "load.svg", "report.json", "table.txt"}) {
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
  }
  std::filesystem::remove_all(directory.parent_path());
}

TEST(ReplayReport, SaysWhichFileItCouldNotWrite) {
  const auto failed = WriteReport(TwoArms(), "/proc/none/here");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("/proc/none/here"));
}

TEST(SvgChart, DrawsEmptyAndConstantSeries) {
  LineChart chart;
  chart.series = {{"none", {}, false}, {"one", {{5, 0}}, true}};
  EXPECT_THAT(ToSvg(chart), HasSubstr("</svg>"));
  EXPECT_THAT(ToSvg(chart), Not(HasSubstr("nan")));
  EXPECT_THAT(ToSvg(chart), Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace kvr::sim
