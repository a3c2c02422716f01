#include "sim/time_model.h"

#include <limits>

#include <gtest/gtest.h>

namespace kvr::sim {
namespace {

constexpr std::uint64_t kPoolTokens = 1 << 20;

double Ms(Nanos time) {
  return static_cast<double>(time.count()) / 1e6;
}

TEST(TimeModel, PrefillFollowsThePublishedFit) {
  const TimeModel model;
  EXPECT_EQ(model.PrefillMs(0), 0);
  EXPECT_NEAR(model.PrefillMs(16), 16.74, 0.005);
  EXPECT_NEAR(model.PrefillMs(512), 24.39, 0.005);
  EXPECT_NEAR(model.PrefillMs(2'048), 49.36, 0.005);
  EXPECT_NEAR(model.PrefillMs(8'192), 169.14, 0.005);
  EXPECT_NEAR(model.PrefillMs(16'384), 378.28, 0.005);
}

TEST(TimeModel, PublishedDecodeCurve) {
  TimeModel model;
  model.decode = TimeModel::Decode::kPublishedCurve;
  EXPECT_EQ(model.DecodeMs(0, 0, kPoolTokens), 0);
  EXPECT_NEAR(model.DecodeMs(1, 0, kPoolTokens), 5.74, 0.005);
  EXPECT_NEAR(model.DecodeMs(1, kPoolTokens / 10, kPoolTokens), 10.88, 0.005);
  EXPECT_NEAR(model.DecodeMs(1, kPoolTokens / 4, kPoolTokens), 17.63, 0.01);
  EXPECT_NEAR(model.DecodeMs(1, kPoolTokens / 2, kPoolTokens), 26.31, 0.005);
  EXPECT_NEAR(model.DecodeMs(1, kPoolTokens, kPoolTokens), 34.01, 0.005);
  EXPECT_EQ(model.DecodeMs(1, 100, kPoolTokens), model.DecodeMs(64, 100, kPoolTokens));
}

TEST(TimeModel, M19_ContextBeyondThePoolIsClamped) {
  TimeModel model;
  model.decode = TimeModel::Decode::kPublishedCurve;
  EXPECT_NEAR(model.DecodeMs(1, 5 * kPoolTokens, kPoolTokens), 34.01, 0.005);
}

TEST(TimeModel, DefaultDecodeAgreesWithTheCurveForOneSmallRequest) {
  const TimeModel model;
  TimeModel curve;
  curve.decode = TimeModel::Decode::kPublishedCurve;
  EXPECT_NEAR(model.DecodeMs(1, 0, kPoolTokens), curve.DecodeMs(1, 0, kPoolTokens), 1e-9);
  EXPECT_NEAR(model.DecodeMs(1, 10'000, kPoolTokens), curve.DecodeMs(1, 10'000, kPoolTokens), 0.01);
  EXPECT_GT(model.DecodeMs(64, 10'000, kPoolTokens), model.DecodeMs(1, 10'000, kPoolTokens) + 3);
}

TEST(TimeModel, MeansAreOfIntegers) {
  const TimeModel model;
  // Contexts 10 and 13, prefixes 0 and 3: means 11 and 1, so t = 2 * 10.
  const PassLoad load{.prefills = 2, .prefill_context = 23, .prefill_prefix = 3};
  EXPECT_NEAR(Ms(model.PassTime(load, kPoolTokens)), model.PrefillMs(20), 1e-6);
}

TEST(TimeModel, M18_SpeedupDividesAndZeroMeansUnscaled) {
  const PassLoad load{
      .prefills = 1, .prefill_context = 2'048, .decodes = 1, .decode_context = 2'049};
  TimeModel model;
  const double base = Ms(model.PassTime(load, kPoolTokens));
  EXPECT_NEAR(base, model.PrefillMs(2'048) + model.DecodeMs(1, 2'049, kPoolTokens), 1e-6);
  model.speedup = 10;
  EXPECT_NEAR(Ms(model.PassTime(load, kPoolTokens)), base / 10, 1e-6);
  model.speedup = -3;
  EXPECT_NEAR(Ms(model.PassTime(load, kPoolTokens)), base, 1e-6);
  model.speedup = 0;
  model.decode_speedup = 2;
  EXPECT_NEAR(Ms(model.PassTime(load, kPoolTokens)),
              model.PrefillMs(2'048) + model.DecodeMs(1, 2'049, kPoolTokens) / 2, 1e-6);
}

TEST(TimeModel, LoadingFromTheHostTakesTime) {
  const TimeModel model;
  const PassLoad load{.host_tokens = 1'000};
  EXPECT_NEAR(Ms(model.PassTime(load, kPoolTokens)), 5, 1e-6);
}

TEST(TimeModel, RefusesCostsThatMakeNoSense) {
  TimeModel model;
  EXPECT_TRUE(model.Validate().has_value());
  model.decode_base_ms = -1;
  EXPECT_FALSE(model.Validate().has_value());
  model.decode_base_ms = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(model.Validate().has_value());
  model.decode_base_ms = 1;
  model.speedup = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(model.Validate().has_value());
}

}  // namespace
}  // namespace kvr::sim
