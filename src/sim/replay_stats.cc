#include "sim/replay_stats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace kvr::sim {
namespace {

constexpr std::size_t kErrorSamplesMax = 5;

double ToMs(Nanos time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double RatioOf(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Adds the time a request was under way to the slices it touched.
void AddActive(std::vector<double>& active, double from_ms, double to_ms, double slice_ms) {
  const auto last = static_cast<double>(active.size());
  for (double slice = std::floor(from_ms / slice_ms); slice < last && slice * slice_ms < to_ms;
       ++slice) {
    const double begin = std::max(from_ms, slice * slice_ms);
    const double end = std::min(to_ms, (slice + 1) * slice_ms);
    active[static_cast<std::size_t>(slice)] += (end - begin) / slice_ms;
  }
}

double CoefficientOfVariation(std::span<const RankLoad> ranks) {
  if (ranks.empty()) return 0;
  double sum = 0;
  for (const RankLoad& rank : ranks)
    sum += static_cast<double>(rank.work_tokens);
  const double mean = sum / static_cast<double>(ranks.size());
  if (mean == 0) return 0;
  double squares = 0;
  for (const RankLoad& rank : ranks) {
    const double off = static_cast<double>(rank.work_tokens) - mean;
    squares += off * off;
  }
  return std::sqrt(squares / static_cast<double>(ranks.size())) / mean;
}

}  // namespace

double Percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = std::round(static_cast<double>(sorted.size() - 1) * percent / 100);
  return sorted[static_cast<std::size_t>(rank)];
}

Distribution Summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Distribution result;
  result.count = values.size();
  if (values.empty()) return result;
  result.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values)
    squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / static_cast<double>(values.size()));
  result.min = values.front();
  result.max = values.back();
  result.p50 = Percentile(values, 50);
  result.p75 = Percentile(values, 75);
  result.p90 = Percentile(values, 90);
  result.p95 = Percentile(values, 95);
  result.p99 = Percentile(values, 99);
  return result;
}

double ArmResult::CachedRatio() const {
  return RatioOf(actual_cached_tokens, prompt_tokens);
}
double ArmResult::PredictedRatio() const {
  return RatioOf(predicted_cached_tokens, prompt_tokens);
}

ArmResult SummarizeArm(std::string name, std::span<const RequestRecord> records, double time_scale,
                       std::span<const std::string> ranks_expected) {
  ArmResult arm;
  arm.name = std::move(name);
  arm.time_scale = time_scale;
  arm.requests = records.size();

  Nanos end{0};
  for (const RequestRecord& record : records)
    end = std::max(end, record.due + record.done);
  arm.duration_ms = ToMs(end) * time_scale;
  const double slice_ms = std::max(arm.duration_ms / kReplaySlices, 1e-6);

  std::map<std::string, RankLoad> ranks;
  const auto rank_of = [&](const std::string& rank_name) -> RankLoad& {
    RankLoad& rank = ranks[rank_name];
    if (rank.name.empty()) {
      rank.name = rank_name;
      rank.active.resize(kReplaySlices);
    }
    return rank;
  };
  for (const std::string& rank_name : ranks_expected)
    rank_of(rank_name);

  std::vector<double> send_lag;
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> e2e;
  std::vector<std::uint64_t> slice_cached(kReplaySlices);
  std::vector<std::uint64_t> slice_prompt(kReplaySlices);
  for (const RequestRecord& record : records) {
    if (!record.error.empty()) {
      ++arm.errors;
      const bool seen = std::find(arm.error_samples.begin(), arm.error_samples.end(),
                                  record.error) != arm.error_samples.end();
      if (!seen && arm.error_samples.size() < kErrorSamplesMax) {
        arm.error_samples.push_back(record.error);
      }
      continue;
    }
    const double due_ms = ToMs(record.due) * time_scale;
    const double first_ms = ToMs(record.first_token) * time_scale;
    const double done_ms = ToMs(record.done) * time_scale;
    send_lag.push_back(ToMs(record.sent) * time_scale);
    e2e.push_back(done_ms);
    const bool seen = record.first_token > Nanos{0};
    if (seen) ttft.push_back(first_ms);
    if (seen && record.output_tokens > 1) {
      tpot.push_back((done_ms - first_ms) / static_cast<double>(record.output_tokens - 1));
    }
    const std::uint64_t actual = record.actual_cached_tokens.value_or(0);
    const std::uint64_t predicted = record.predicted_cached_tokens.value_or(0);
    arm.prompt_tokens += record.prompt_tokens;
    arm.output_tokens += record.output_tokens;
    arm.actual_cached_tokens += actual;
    arm.predicted_cached_tokens += predicted;
    if (!record.actual_cached_tokens) ++arm.without_actual;
    if (!record.predicted_cached_tokens) ++arm.without_prediction;
    if (record.actual_cached_tokens && record.predicted_cached_tokens) {
      arm.prediction_error_tokens += actual > predicted ? actual - predicted : predicted - actual;
    }
    const auto slice = std::min(static_cast<std::size_t>(due_ms / slice_ms), kReplaySlices - 1);
    slice_cached[slice] += actual;
    slice_prompt[slice] += record.prompt_tokens;

    RankLoad& rank = rank_of(fmt::format("{}/{}", record.worker, record.dp_rank));
    ++rank.requests;
    rank.work_tokens += record.prompt_tokens - std::min(actual, record.prompt_tokens);
    rank.work_tokens += record.output_tokens;
    AddActive(rank.active, due_ms, due_ms + done_ms, slice_ms);
  }
  for (auto& [key, rank] : ranks)
    arm.ranks.push_back(std::move(rank));
  std::uint64_t window_cached = 0;
  std::uint64_t window_prompt = 0;
  for (std::size_t i = 0; i < kReplaySlices; ++i) {
    window_cached += slice_cached[i];
    window_prompt += slice_prompt[i];
    if (i >= kHitRatioWindow) {
      window_cached -= slice_cached[i - kHitRatioWindow];
      window_prompt -= slice_prompt[i - kHitRatioWindow];
    }
    arm.hit_ratio.push_back(RatioOf(window_cached, window_prompt));
  }
  arm.work_cv = CoefficientOfVariation(arm.ranks);
  arm.ttft_sorted_ms = ttft;
  std::sort(arm.ttft_sorted_ms.begin(), arm.ttft_sorted_ms.end());
  arm.send_lag = Summarize(std::move(send_lag));
  arm.ttft = Summarize(std::move(ttft));
  arm.tpot = Summarize(std::move(tpot));
  arm.e2e = Summarize(std::move(e2e));
  return arm;
}

}  // namespace kvr::sim
