#include "cmd/server_main.h"

#include <csignal>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace kvr::cmd {
namespace {

TEST(StopSignalsDeathTest, WaitReturnsTheSignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          StopSignals signals;
          ::raise(signal);
          std::exit(signals.Wait() == signal ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST(StopSignalsDeathTest, ASecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        ::raise(SIGTERM);
        signals.Wait();
        ::raise(SIGINT);
        std::exit(0);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "second signal");
}

TEST(StopSignalsDeathTest, ASignalBeforeAnythingRunsGivesTheExitCode) {
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const int code : {0, 1}) {
      EXPECT_EXIT(
          {
            EndOnSignals(code);
            ::raise(signal);
            std::exit(7);
          },
          ::testing::ExitedWithCode(code), "");
    }
  }
}

TEST(StopSignalsDeathTest, AnIgnoredSignalIsTakenBack) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        StopSignals signals;
        ::raise(SIGINT);
        std::exit(signals.Wait() == SIGINT ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StopSignalsDeathTest, ThreadsDoNotTakeTheSignalAway) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::thread other([] { ::kill(::getpid(), SIGTERM); });
        const int signal = signals.Wait();
        other.join();
        std::exit(signal == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kvr::cmd
