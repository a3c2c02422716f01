#include "metrics/registry.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const Registry& registry) {
  std::string out;
  registry.WriteText(out);
  return out;
}

TEST(Registry, WritesCountersGaugesAndHistograms) {
  Registry registry;
  registry.AddCounter("kvr_b_total", "b", {{"reason", "x\"y"}}).Add(3);
  registry.AddGauge("kvr_a_bytes", "a").Set(-2);
  const std::vector<double> bounds = {1, 2};
  Histogram& histogram = registry.AddHistogram("kvr_c_seconds", "c", bounds);
  histogram.Observe(1);
  histogram.Observe(1.5);
  histogram.Observe(9);
  const std::string text = Text(registry);
  EXPECT_THAT(text, HasSubstr("# TYPE kvr_b_total counter\nkvr_b_total{reason=\"x\\\"y\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("kvr_a_bytes -2\n"));
  EXPECT_THAT(text, HasSubstr("kvr_c_seconds_bucket{le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("kvr_c_seconds_bucket{le=\"2\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("kvr_c_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_LT(text.find("kvr_a_bytes"), text.find("kvr_b_total"));
}

TEST(Registry, SameNameAndLabelsIsTheSameObject) {
  Registry registry;
  Counter& a = registry.AddCounter("kvr_x_total", "x", {{"k", "1"}});
  EXPECT_EQ(&a, &registry.AddCounter("kvr_x_total", "x", {{"k", "1"}}));
  EXPECT_NE(&a, &registry.AddCounter("kvr_x_total", "x", {{"k", "2"}}));
}

TEST(Registry, ACollectorsSeriesEndWithItsHandle) {
  Registry registry;
  {
    const auto handle = registry.AddCollector([](SampleSink& sink) {
      sink.AddGauge("kvr_rank_blocks", "b", {{"rank", "7"}}, 5);
    });
    EXPECT_THAT(Text(registry), HasSubstr("kvr_rank_blocks{rank=\"7\"} 5\n"));
  }
  EXPECT_THAT(Text(registry), Not(HasSubstr("kvr_rank_blocks")));
}

TEST(Registry, ACollectorMayCallTheRegistry) {
  Registry registry;
  const auto collector = registry.AddCollector([&](SampleSink& sink) {
    registry.AddCounter("kvr_scrapes_total", "Scrapes.").Add();
    sink.AddGauge("kvr_there", "There.", {}, 1);
  });
  EXPECT_THAT(Text(registry), HasSubstr("kvr_there 1"));
  EXPECT_THAT(Text(registry), HasSubstr("kvr_scrapes_total 1"));
}

// The handle's end waits for a running call, while others go on using the registry.
TEST(Registry, TheEndOfACollectorWaitsForItsCall) {
  Registry registry;
  std::atomic<bool> inside = false;
  std::atomic<bool> leave = false;
  std::atomic<bool> returned = false;
  auto collector = std::make_unique<Registry::Collector>(registry.AddCollector([&](SampleSink&) {
    inside = true;
    inside.notify_all();
    leave.wait(false);
    returned = true;
  }));
  std::jthread scrape([&] { Text(registry); });
  inside.wait(false);
  registry.AddCounter("kvr_meanwhile_total", "Not held up.").Add();
  bool returned_before_end = false;
  std::jthread end([&] {
    collector.reset();
    returned_before_end = returned;
  });
  leave = true;
  leave.notify_all();
  scrape.join();
  end.join();
  EXPECT_TRUE(returned_before_end);
  inside = false;
  Text(registry);
  EXPECT_FALSE(inside);
}

TEST(Registry, CountsFromManyThreadsAddUp) {
  Registry registry;
  Counter& counter = registry.AddCounter("kvr_n_total", "n");
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 10'000; ++k)
          counter.Add();
        Text(registry);
      });
    }
  }
  EXPECT_EQ(counter.value(), 40'000u);
}

}  // namespace
}  // namespace kvr::metrics
