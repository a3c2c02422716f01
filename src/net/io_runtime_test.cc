#include "net/io_runtime.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/log.h"
#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using testing::Eventually;

constexpr std::chrono::hours kForever{1};

struct Guard {
  std::atomic<int>& count;
  ~Guard() { ++count; }
};

TEST(IoRuntime, ATaskStaysOnItsThread) {
  IoRuntime runtime({.threads = 3, .thread_name = "io"});
  std::atomic<int> moved = 0;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 30; ++i) {
    runtime.Spawn([&]() -> Task<void> {
      const Guard guard{ended};
      const auto home = std::this_thread::get_id();
      for (int k = 0; k < 20; ++k) {
        co_await Sleep(Nanos{1});
        if (std::this_thread::get_id() != home) ++moved;
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return ended == 30; }));
  EXPECT_EQ(moved, 0);
}

TEST(IoRuntime, RunBlockingWaitsForTheEnd) {
  IoRuntime runtime({});
  bool done = false;
  runtime.RunBlocking([&]() -> Task<void> {
    EXPECT_TRUE(co_await Sleep(Nanos{1}));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(IoRuntime, AnEscapedExceptionEndsItsTaskOnly) {
  SetLogLevel(LogLevel::kOff);
  IoRuntime runtime({});
  runtime.RunBlocking([]() -> Task<void> {
    throw std::runtime_error("a bug");
    co_return;
  });
  bool done = false;
  runtime.RunBlocking([&]() -> Task<void> {
    done = true;
    co_return;
  });
  EXPECT_TRUE(done);
}

TEST(IoRuntime, StopCancelsWhatWaits) {
  IoRuntime runtime({.threads = 2, .thread_name = "io"});
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  for (int i = 0; i < 10; ++i) {
    runtime.Spawn([&]() -> Task<void> {
      const Guard guard{left};
      ++entered;
      while (true)
        co_await Sleep(kForever);
    });
    runtime.Spawn([&]() -> Task<void> {
      const Guard guard{left};
      Signal signal;
      ++entered;
      co_await signal.Wait();
      ADD_FAILURE() << "a cancelled wait went on";
    });
  }
  ASSERT_TRUE(Eventually([&] { return entered == 20; }));
  runtime.Stop();
  EXPECT_EQ(left, 20);
  runtime.Stop();
}

TEST(IoRuntime, AfterStopTasksAreDropped) {
  IoRuntime runtime({});
  runtime.Stop();
  bool ran = false;
  runtime.Spawn([&]() -> Task<void> {
    ran = true;
    co_return;
  });
  runtime.RunBlocking([&]() -> Task<void> {
    ran = true;
    co_return;
  });
  EXPECT_FALSE(ran);
}

TEST(IoRuntime, StopRacesWithSpawn) {
  for (int round = 0; round < 20; ++round) {
    IoRuntime runtime({.threads = 2, .thread_name = "io"});
    std::atomic<int> entered = 0;
    std::atomic<int> left = 0;
    {
      std::jthread spawner([&] {
        for (int i = 0; i < 50; ++i) {
          runtime.Spawn([&]() -> Task<void> {
            const Guard guard{left};
            ++entered;
            co_await Sleep(kForever);
          });
        }
        runtime.RunBlocking([]() -> Task<void> { co_await Sleep(kForever); });
      });
      runtime.Stop();
    }
    EXPECT_EQ(entered, left);
  }
}

TEST(Signal, WakesEveryWaiterAndKeepsNothing) {
  IoRuntime runtime({});
  runtime.RunBlocking([]() -> Task<void> {
    Signal signal;
    signal.Notify();
    EXPECT_FALSE(co_await signal.WaitFor(Nanos{1})) << "a notify without a waiter was kept";
  });
  Signal signal;
  std::atomic<int> waiting = 0;
  std::atomic<int> woken = 0;
  for (int i = 0; i < 3; ++i) {
    runtime.Spawn([&]() -> Task<void> {
      ++waiting;
      EXPECT_TRUE(co_await signal.WaitFor(kForever));
      ++woken;
    });
  }
  ASSERT_TRUE(Eventually([&] { return waiting == 3; }));
  EXPECT_EQ(woken, 0);
  runtime.Post(0, [&] { signal.Notify(); });
  EXPECT_TRUE(Eventually([&] { return woken == 3; }));
}

TEST(Signal, MayEndBeforeItsWaiter) {
  IoRuntime runtime({});
  auto signal = std::make_unique<Signal>();
  std::atomic<int> state = 0;
  runtime.Spawn([&]() -> Task<void> {
    state = 1;
    const bool notified = co_await signal->WaitFor(kForever);
    state = notified ? 2 : 3;
  });
  ASSERT_TRUE(Eventually([&] { return state == 1; }));
  runtime.Post(0, [&] { signal.reset(); });
  EXPECT_TRUE(Eventually([&] { return state == 3; }));
}

}  // namespace
}  // namespace kvr::net
