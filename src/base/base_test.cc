#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/result.h"
#include "base/rng.h"

namespace kvr {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  KVR_TRY(const int half, Half(n));
  return Half(half);
}

TEST(Result, TryReturnsTheValueOrTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  const auto failed = Quarter(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "odd");
}

TEST(Error, EveryCodeHasANameAStatusAndAnExitCode) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_FALSE(CodeName(code).empty());
    EXPECT_GE(HttpStatus(code), 400);
    EXPECT_LT(HttpStatus(code), 600);
    EXPECT_TRUE(ExitCode(code) == 1 || ExitCode(code) == 2);
  }
  EXPECT_EQ(HttpStatus(ErrorCode::kUnprocessable), 422);
  EXPECT_EQ(ExitCode(ErrorCode::kInvalidArgument), 2);
}

TEST(CheckDeathTest, PrintsTheConditionAndAborts) {
  EXPECT_DEATH(KVR_CHECK(1 + 1 == 3), "check failed: 1 \\+ 1 == 3");
}

TEST(Hex, RoundTripsAndNamesTheBadDigit) {
  const auto bytes = FromHex("00ffA5");
  ASSERT_TRUE(bytes);
  EXPECT_EQ(ToHex(*bytes), "00ffa5");
  EXPECT_NE(FromHex("0").error().message.find("odd"), std::string::npos);
  EXPECT_NE(FromHex("00x0").error().message.find("position 2"), std::string::npos);
}

TEST(JsonWriter, SetsCommasAndEscapes) {
  std::string out;
  JsonWriter w(out);
  w.BeginObject();
  w.Field("a", 1);
  w.Key("b");
  w.BeginArray();
  w.Value(std::uint64_t{18446744073709551615u});
  w.Value(-2);
  w.Value(0.5);
  w.Null();
  w.Value(true);
  w.BeginObject();
  w.EndObject();
  w.EndArray();
  w.Field("c", std::string_view("q\"\\\n\x01\xc3\xa9"));
  w.EndObject();
  EXPECT_EQ(out,
            "{\"a\":1,\"b\":[18446744073709551615,-2,0.5,null,true,{}],"
            "\"c\":\"q\\\"\\\\\\n\\u0001\xc3\xa9\"}");
}

TEST(JsonWriter, ReplacesBytesThatAreNoUtf8) {
  for (const std::string_view bad :
       {std::string_view("\xff"), std::string_view("\xc0\x80"), std::string_view("\xed\xa0\x80"),
        std::string_view("\xe2\x82")}) {
    std::string out;
    AppendJsonString(out, bad);
    EXPECT_NE(out.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

// Longer than what is written at a time, and with numbers of every length at each place in it.
TEST(JsonWriter, ListsOfNumbersAreAsOneByOne) {
  for (const std::size_t count : {0u, 1u, 5'000u}) {
    std::vector<std::uint32_t> values;
    std::uint32_t value = 1;
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(i % 97 == 0 ? std::numeric_limits<std::uint32_t>::max() : value);
      value = value > 400'000'000 ? static_cast<std::uint32_t>(i % 7) : value * 10;
    }
    std::string one_by_one;
    JsonWriter single(one_by_one);
    single.BeginObject();
    single.Key("n");
    single.BeginArray();
    for (const std::uint32_t number : values)
      single.Value(number);
    single.EndArray();
    single.Field("after", std::int64_t{-1});
    single.EndObject();
    std::string list;
    JsonWriter whole(list);
    whole.BeginObject();
    whole.Key("n");
    whole.Numbers(values);
    whole.Field("after", std::int64_t{-1});
    whole.EndObject();
    EXPECT_EQ(list, one_by_one);
  }
}

TEST(JsonWriter, WritesNullForNumbersThatJsonCannotCarry) {
  std::string out;
  JsonWriter w(out);
  w.Value(1.0 / 0.0);
  EXPECT_EQ(out, "null");
}

TEST(BoundedQueue, RefusesWhenFullAndKeepsTheValue) {
  BoundedQueue<std::string> queue(1);
  EXPECT_TRUE(queue.TryPush("a"));
  std::string b = "b";
  EXPECT_FALSE(queue.TryPush(std::move(b)));
  EXPECT_EQ(b, "b");  // NOLINT(bugprone-use-after-move): a refused value stays
  EXPECT_EQ(queue.TryPop(), "a");
  EXPECT_EQ(queue.TryPop(), std::nullopt);
}

TEST(BoundedQueue, DrainsAfterCloseThenEnds) {
  BoundedQueue<int> queue(4);
  std::vector<int> seen;
  std::jthread reader([&] {
    while (auto value = queue.Pop())
      seen.push_back(*value);
  });
  for (int i = 0; i < 100; ++i) {
    while (!queue.TryPush(int{i}))
      std::this_thread::yield();
  }
  queue.Close();
  EXPECT_FALSE(queue.TryPush(7));
  reader.join();
  ASSERT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen.back(), 99);
}

TEST(Rng, RepeatsAndStaysInRange) {
  Rng a(7);
  Rng b(7);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(), b());
    EXPECT_LT(a.Below(10), 10u);
    b.Below(10);
    const double u = a.Uniform();
    EXPECT_GE(u, 0.0);
    EXPECT_LT(u, 1.0);
    b.Uniform();
  }
  EXPECT_EQ(a.Below(0), 0u);
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  EXPECT_EQ(clock.Now(), Nanos{0});
  clock.Advance(std::chrono::seconds(2));
  EXPECT_EQ(clock.Now(), std::chrono::seconds(2));
}

TEST(LogLimiter, CountsWhatItSwallows) {
  LogLimiter limiter(std::chrono::seconds(1));
  std::uint64_t suppressed = 0;
  EXPECT_TRUE(limiter.Pass(std::chrono::seconds(10), suppressed));
  EXPECT_EQ(suppressed, 0u);
  EXPECT_FALSE(limiter.Pass(std::chrono::seconds(10), suppressed));
  EXPECT_FALSE(limiter.Pass(std::chrono::seconds(10), suppressed));
  EXPECT_TRUE(limiter.Pass(std::chrono::seconds(11), suppressed));
  EXPECT_EQ(suppressed, 2u);
}

}  // namespace
}  // namespace kvr
