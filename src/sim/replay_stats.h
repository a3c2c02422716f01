// What a replay measured: one record a request, summed up to one result an arm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace kvr::sim {

// One request of one arm. Times are measured by the client on its own clock, from the moment the
// trace says the request arrives (open loop: waiting for the client itself counts).
struct RequestRecord {
  std::size_t index = 0;  // line of the trace
  Nanos due{0};           // since the start of the arm
  Nanos sent{0};          // after `due`: how late the client itself was
  Nanos first_token{0};   // after `due`; 0 when none came
  Nanos done{0};          // after `due`
  std::string error;      // empty: answered completely
  std::string worker;     // as the router named it
  std::uint32_t dp_rank = 0;
  std::uint64_t prompt_tokens = 0;  // the engine's count
  std::uint64_t output_tokens = 0;
  std::optional<std::uint64_t> predicted_cached_tokens;  // the router's word
  std::optional<std::uint64_t> actual_cached_tokens;     // the engine's word
};

// In milliseconds. The percentile p of n values is the element of rank round((n-1)*p/100).
struct Distribution {
  std::size_t count = 0;
  double mean = 0;
  double std = 0;  // of the population
  double min = 0;
  double p50 = 0;
  double p75 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};
Distribution Summarize(std::vector<double> values);
// Of sorted values; 0 when there are none.
double Percentile(std::span<const double> sorted, double percent);

struct RankLoad {
  std::string name;  // "worker/rank"
  std::uint64_t requests = 0;
  std::uint64_t work_tokens = 0;  // prompt tokens that had to be computed, and output tokens
  std::vector<double> active;     // mean number of requests under way in each time slice
};

// One arm: one policy over the whole trace, from cold engines.
struct ArmResult {
  std::string name;
  double time_scale = 1;  // times below are wall time multiplied by this (the engines' speed-up)
  double duration_ms = 0;
  std::size_t requests = 0;
  std::size_t errors = 0;
  std::vector<std::string> error_samples;  // a few different ones
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t predicted_cached_tokens = 0;
  std::uint64_t actual_cached_tokens = 0;
  std::size_t without_prediction = 0;  // answered requests for which the router named none
  std::size_t without_actual = 0;      // answered requests for which the engine named none
  // Sum over requests of |predicted - actual|, in tokens.
  std::uint64_t prediction_error_tokens = 0;
  Distribution send_lag;  // what of the times below is the client's own
  Distribution ttft;
  Distribution tpot;  // time per output token after the first; requests with at least two
  Distribution e2e;
  double work_cv = 0;  // standard deviation over mean of work_tokens per rank
  std::vector<RankLoad> ranks;
  std::vector<double> ttft_sorted_ms;
  // Actual cached / prompt tokens of the requests due in each slice and the kHitRatioWindow - 1
  // before.
  std::vector<double> hit_ratio;

  [[nodiscard]] double CachedRatio() const;
  [[nodiscard]] double PredictedRatio() const;
};

// Number of time slices in the series of an arm.
inline constexpr std::size_t kReplaySlices = 60;
// Slices that one point of the hit ratio looks back on: single slices hold too few requests.
inline constexpr std::size_t kHitRatioWindow = 6;

// `records` in any order. `ranks_expected` names ranks that must appear in the load even when they
// got nothing.
ArmResult SummarizeArm(std::string name, std::span<const RequestRecord> records, double time_scale,
                       std::span<const std::string> ranks_expected = {});

}  // namespace kvr::sim
