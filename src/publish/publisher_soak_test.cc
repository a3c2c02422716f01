// A publisher beside engines whose caches are full, for hours in a minute: it must not grow.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/rng.h"
#include "publish/rank_publisher.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u;

// A queue that is full now and then.
struct Lossy final : Outlet {
  bool Send(std::uint64_t, std::span<const std::byte>) override { return ++messages % 97 != 0; }
  std::uint64_t messages = 0;
};

// One source of the rank's events: chains that begin at the root, of which those used longest ago
// go, tails first. Two sources draw from the same contents, each with names of its own.
class Source {
 public:
  static constexpr std::size_t kCapacity = 4'096;

  Source(RankPublisher& publisher, std::size_t number) : publisher_(publisher), number_(number) {}

  void Turn(Rng& rng) {
    const std::size_t blocks = 1 + rng.Below(24);
    Chain chain{.content = rng.Below(100'000), .names = {}};
    std::vector<PlacedBlock> placed;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::uint64_t content = chain.content << 8 | i;
      chain.names.push_back(EngineHash{(++next_ << 1 | number_) * kFactor});
      placed.push_back({chain.names.back(), BlockHash{content * kFactor}});
    }
    Mutation store;
    store.event.blocks = placed;
    store.event.tier = rng.Below(4) == 0 ? Tier::kHostPinned : Tier::kDevice;
    store.event.eligible = rng.Below(2) == 0;
    store.event.session_id = rng.Below(8) == 0 ? "a session" : "";
    chain.tier = store.event.tier;
    publisher_.Apply(number_, store);
    held_ += blocks;
    chains_.push_back(std::move(chain));
    for (; held_ > kCapacity; chains_.pop_front())
      Drop(chains_.front());
    publisher_.EndList(number_);
  }

  void Restart() {
    Mutation clear;
    clear.event.kind = PlacementKind::kCleared;
    publisher_.Apply(number_, clear);
    publisher_.EndList(number_);
    chains_.clear();
    held_ = 0;
  }

 private:
  struct Chain {
    std::uint64_t content = 0;
    Tier tier = Tier::kDevice;
    std::vector<EngineHash> names;
  };

  void Drop(Chain& chain) {
    std::reverse(chain.names.begin(), chain.names.end());
    Mutation removal;
    removal.event.kind = PlacementKind::kRemoved;
    removal.event.tier = chain.tier;
    removal.event.removed = chain.names;
    publisher_.Apply(number_, removal);
    held_ -= chain.names.size();
  }

  RankPublisher& publisher_;
  const std::size_t number_;
  std::deque<Chain> chains_;  // oldest first
  std::size_t held_ = 0;
  std::uint64_t next_ = 0;
};

// KVR_TEST_STORES: how many, in place of 500,000. 3'600'000 are two hours of 500 a second.
std::uint64_t Stores() {
  const char* text = std::getenv("KVR_TEST_STORES");
  return text ? std::strtoull(text, nullptr, 10) : 500'000;
}

class PublisherSoak : public testing::TestWithParam<std::size_t> {};  // sources

TEST_P(PublisherSoak, DoesNotGrow) {
  constexpr std::uint64_t kSamples = 50;
  ManualClock clock;
  Lossy outlet;
  RankPublisher::Options options;
  options.sources = GetParam();
  options.coalescer.timeout = Millis{10};
  RankPublisher publisher(options, clock, outlet);
  std::vector<Source> sources;
  for (std::size_t source = 0; source < GetParam(); ++source)
    sources.emplace_back(publisher, source);
  Rng rng(1);
  // A router that reads its snapshot while others come.
  std::optional<RankPublisher::SnapshotAnswer> reading;
  std::int64_t heap_early = 0;
  std::int64_t heap_late = 0;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    for (std::uint64_t i = 0; i < Stores() / kSamples; ++i) {
      Source& source = sources[rng.Below(sources.size())];
      source.Turn(rng);
      if (rng.Below(50'000) == 0) source.Restart();
      clock.Advance(Millis{2});
      publisher.OnTick();
      if (rng.Below(2'000) == 0) {
        auto answer = publisher.TakeSnapshot();
        ASSERT_TRUE(answer) << answer.error().message;
        reading = *std::move(answer);
      }
      if (rng.Below(1'000) == 0) {
        const std::uint64_t last = publisher.stats().last_event_id;
        ASSERT_GT(publisher.Query(last - std::min<std::uint64_t>(last, 100), {}).range.count, 0u);
      }
    }
    EXPECT_LE(publisher.stats().blocks, GetParam() * Source::kCapacity);
    EXPECT_LE(publisher.stats().ring_events, options.ring.events_max);
    const std::int64_t heap = test::HeapOfThisThread();
    // The first tenth fills it.
    if (sample < kSamples / 10) {
      heap_early = std::max(heap_early, heap);
    } else {
      EXPECT_LT(heap, heap_early + heap_early / 10) << "sample " << sample;
      heap_late = std::max(heap_late, heap);
    }
  }
  RecordProperty("early_heap", std::to_string(heap_early));
  RecordProperty("late_heap", std::to_string(heap_late));
  EXPECT_GT(publisher.stats().snapshots_built, 0u);
  EXPECT_GT(publisher.stats().dropped_messages, 0u);
  reading.reset();
  for (Source& source : sources)
    source.Restart();
  EXPECT_EQ(publisher.stats().blocks, 0u);
}

INSTANTIATE_TEST_SUITE_P(Sources, PublisherSoak, testing::Values(1, 2),
                         [](const auto& sources) { return std::to_string(sources.param); });

}  // namespace
}  // namespace kvr::publish
