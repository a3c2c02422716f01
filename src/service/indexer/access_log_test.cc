#include "service/indexer/access_log.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace kvr::service {
namespace {

class AccessLogTest : public testing::Test {
 protected:
  AccessLogTest() {
    std::string pattern = testing::TempDir() + "access-log-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    options_.path = directory_ + "/log";
  }
  ~AccessLogTest() override {
    for (const char* name : {"/log", "/old"})
      std::remove((directory_ + name).c_str());
    ::rmdir(directory_.c_str());
  }

  [[nodiscard]] std::string Content(const char* name) const {
    std::ifstream file(directory_ + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] double Series(const std::string& series) const {
    std::string text;
    registry_.WriteText(text);
    const std::size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + series.size() + 2);
  }

  std::string directory_;
  AccessLog::Options options_;
  ManualClock clock_;
  metrics::Registry registry_;
};

TEST_F(AccessLogTest, LinesHaveTheReferencesForm) {
  clock_.Advance(Millis{1'787'306'400'123});
  {
    const auto log = AccessLog::Open(options_, clock_, registry_);
    ASSERT_TRUE(log);
    (*log)->Write({"", "POST", "/query", "M", 200, std::chrono::microseconds(420)});
    (*log)->Write({"t\"1", "GET", "/health", "", 499, Nanos{0}});
  }
  EXPECT_EQ(Content("/log"),
            R"({"ts":"2026-08-21T10:00:00.123Z","trace_id":"-","method":"POST","path":"/query",)"
            R"("model":"M","status":200,"duration_ms":0.42})"
            "\n"
            R"({"ts":"2026-08-21T10:00:00.123Z","trace_id":"t\"1","method":"GET",)"
            R"("path":"/health","status":499,"duration_ms":0})"
            "\n");
  EXPECT_EQ(Series("kvr_access_log_lines_total"), 2);
}

TEST_F(AccessLogTest, Row189GoesOnInTheOldFileUntilItIsReopened) {
  {
    const auto log = AccessLog::Open(options_, clock_, registry_);
    ASSERT_TRUE(log);
    ASSERT_EQ(std::rename((directory_ + "/log").c_str(), (directory_ + "/old").c_str()), 0);
    (*log)->Write({"before", "GET", "/health", "", 200, Nanos{0}});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (Series("kvr_access_log_lines_total") < 1) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
    ASSERT_TRUE((*log)->Reopen());
    (*log)->Write({"after", "GET", "/health", "", 200, Nanos{0}});
  }
  EXPECT_NE(Content("/old").find("before"), std::string::npos);
  EXPECT_NE(Content("/log").find("after"), std::string::npos);
  EXPECT_EQ(Content("/log").find("before"), std::string::npos);
}

TEST_F(AccessLogTest, Row190WhatTheFileDoesNotTakeIsCounted) {
  options_.path = "/dev/full";
  {
    const auto log = AccessLog::Open(options_, clock_, registry_);
    ASSERT_TRUE(log);
    for (int i = 0; i < 10; ++i)
      (*log)->Write({"", "GET", "/health", "", 200, Nanos{0}});
  }
  EXPECT_EQ(Series("kvr_access_log_dropped_total{reason=\"write_failed\"}"), 10);
  EXPECT_EQ(Series("kvr_access_log_lines_total"), 0);
}

TEST_F(AccessLogTest, Row190WhatFindsTheQueueFullIsCounted) {
  options_.lines_max = 0;
  const auto log = AccessLog::Open(options_, clock_, registry_);
  ASSERT_TRUE(log);
  (*log)->Write({"", "GET", "/health", "", 200, Nanos{0}});
  EXPECT_EQ(Series("kvr_access_log_dropped_total{reason=\"queue_full\"}"), 1);
}

TEST_F(AccessLogTest, AFileThatCannotBeOpenedIsNamed) {
  options_.path = directory_ + "/missing/log";
  const auto log = AccessLog::Open(options_, clock_, registry_);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::kIo);
  EXPECT_NE(log.error().message.find(options_.path), std::string::npos);
}

TEST(IsHeaderName, Row188) {
  for (const char* good : {"x-trace-id", "X_1", "a"})
    EXPECT_TRUE(IsHeaderName(good)) << good;
  for (const char* bad : {"", "a b", "a:", "\n", "\xc3\xa4"})
    EXPECT_FALSE(IsHeaderName(bad)) << bad;
}

}  // namespace
}  // namespace kvr::service
