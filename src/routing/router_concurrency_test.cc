// Decisions, bookings, events, catalog changes, sweeps and scrapes at once; TSan watches.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "routing/router_fixture.h"

namespace kvr::routing {
namespace {

// Everything a stable partition hands out comes back, and no decision is lost.
TEST(RouterConcurrency, ManyThreadsDrainToZero) {
  RouterFixture fixture;
  constexpr std::uint64_t kWorkers = 6;
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker)
    fixture.AddWorker(worker);
  constexpr int kThreads = 4;
  constexpr int kRequests = 400;
  std::atomic<int> decided{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&fixture, &decided, thread] {
        Rng rng(static_cast<std::uint64_t>(thread));
        std::vector<Decision> live;
        for (int i = 0; i < kRequests; ++i) {
          const auto prompt =
              MakePrompt(static_cast<std::uint32_t>(rng.Below(12)), 1 + rng.Below(20));
          RouteRequest request = RequestFor(prompt);
          const std::string id = std::to_string(thread) + "/" + std::to_string(i);
          request.request_id = id;
          request.expected_output_tokens = 64;
          auto decision = fixture.router.Route(request);
          ASSERT_TRUE(decision) << decision.error().message;
          ++decided;
          decision->booking.PrefillDone();
          live.push_back(*std::move(decision));
          live[rng.Below(live.size())].booking.AddOutput(rng.Below(40));
          if (live.size() > 10) {
            std::swap(live[rng.Below(live.size())], live.back());
            live.pop_back();
          }
        }
      });
    }
  }
  EXPECT_EQ(decided, kThreads * kRequests);
  for (const RankLoad& load : fixture.router.Loads(RouterFixture::ThePartition())) {
    EXPECT_EQ(load.active_requests, 0u);
    EXPECT_EQ(load.active_blocks, 0u);
    EXPECT_EQ(load.active_prefill_tokens, 0u);
  }
  std::string text;
  fixture.registry.WriteText(text);
  EXPECT_NE(text.find("kvr_routing_booked_total{model=\"m\",routing_group=\"default\"} 1600"),
            std::string::npos);
}

// A concurrent burst spreads as well as a sequential one: decision and booking are one step.
TEST(RouterConcurrency, ABurstDoesNotHerd) {
  RouterFixture fixture;
  constexpr std::uint64_t kWorkers = 8;
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker)
    fixture.AddWorker(worker);
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kEach = 8;
  std::vector<std::vector<Decision>> live(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&fixture, &mine = live[thread], thread] {
        for (std::uint32_t i = 0; i < kEach; ++i) {
          auto decision = fixture.router.Route(RequestFor(MakePrompt(100 + thread * kEach + i, 5)));
          ASSERT_TRUE(decision);
          mine.push_back(*std::move(decision));
        }
      });
    }
  }
  for (const RankLoad& load : fixture.router.Loads(RouterFixture::ThePartition()))
    EXPECT_EQ(load.active_requests, kThreads * kEach / kWorkers) << Raw(load.rank.worker);
}

TEST(RouterConcurrency, WorkersComeAndGoUnderTraffic) {
  RouterFixture fixture;
  fixture.AddWorker(0);
  std::atomic<bool> stop{false};
  std::atomic<int> decided{0};
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&fixture, &stop, &decided, thread] {
      Rng rng(static_cast<std::uint64_t>(thread));
      std::vector<Decision> live;
      while (!stop) {
        const auto prompt = MakePrompt(static_cast<std::uint32_t>(rng.Below(5)), 1 + rng.Below(10));
        auto decision = fixture.router.Route(RequestFor(prompt));
        // Only a partition that changes all the time may refuse.
        if (!decision) {
          ASSERT_EQ(decision.error().code, ErrorCode::kUnavailable) << decision.error().message;
          continue;
        }
        ++decided;
        decision->booking.AddOutput(20);
        fixture.router.ReportActual(*decision, decision->predicted_cached_tokens);
        live.push_back(*std::move(decision));
        if (live.size() > 8) live.erase(live.begin());
      }
    });
  }
  threads.emplace_back([&fixture, &stop] {
    std::string text;
    while (!stop) {
      fixture.router.Sweep();
      text.clear();
      fixture.registry.WriteText(text);
    }
  });
  const auto prompt = MakePrompt(1, 10);
  int rounds = 0;
  while (rounds < 100 || decided < 300) {
    ++rounds;
    for (std::uint64_t worker = 1; worker <= 3; ++worker) {
      fixture.AddWorker(worker);
      fixture.Store({WorkerId{worker}, 0}, prompt);
    }
    for (std::uint64_t worker = 1; worker <= 3; ++worker)
      fixture.RemoveWorker(worker);
    std::this_thread::yield();
  }
  stop = true;
  threads.clear();
  fixture.router.Sweep();
  const auto loads = fixture.router.Loads(RouterFixture::ThePartition());
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].active_requests, 0u);
  EXPECT_EQ(loads[0].active_blocks, 0u);
}

}  // namespace
}  // namespace kvr::routing
