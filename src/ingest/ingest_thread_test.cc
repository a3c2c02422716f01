// Engines that never pause: none of them keeps a thread of the ingest from anything else.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/big_endian.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/ingest_metrics.h"
#include "ingest/source.h"
#include "ingest/test_engine.h"
#include "net/net_test_util.h"

namespace kvr::ingest {
namespace {

using fleet::RankCount;
using net::testing::Eventually;

// Always has one more message, up to the last.
class EndlessSocket final : public net::EventSocket {
 public:
  explicit EndlessSocket(std::uint64_t first,
                         std::uint64_t last = std::numeric_limits<std::uint64_t>::max())
      : next_(first), last_(last) {
    const auto batch = engine_.Flush();
    payload_.assign(batch.begin(), batch.end());
  }
  bool Receive(net::Frames& frames) override {
    frames.Clear();
    if (next_ > last_) return false;
    frames.Add();  // no topic; of a replay the delimiter
    const auto number = BigEndian(next_++);
    frames.Add().assign(number.begin(), number.end());
    frames.Add() = payload_;
    return true;
  }
  bool Send(std::span<const std::span<const std::byte>>) override { return true; }
  bool NextLinkEvent(net::LinkEvent&) override { return false; }

 private:
  TestEngine engine_{Rank{}};
  std::uint64_t next_;
  const std::uint64_t last_;
  std::vector<std::byte> payload_;
};

class EndlessPoller final : public net::EventPoller {
 public:
  EndlessPoller(std::uint64_t first, std::uint64_t last) : first_(first), last_(last) {}
  Result<std::unique_ptr<net::EventSocket>> Subscribe(const std::string&,
                                                      const std::string&) override {
    return std::unique_ptr<net::EventSocket>(std::make_unique<EndlessSocket>(first_, last_));
  }
  Result<std::unique_ptr<net::EventSocket>> Dealer(const std::string&) override {
    return std::unique_ptr<net::EventSocket>(std::make_unique<EndlessSocket>(0));
  }
  void Wait(Nanos) override {}
  void Wake() override {}

 private:
  const std::uint64_t first_;
  const std::uint64_t last_;
};

// Of live messages from the first to the last.
class EndlessTransport final : public net::EventTransport {
 public:
  explicit EndlessTransport(std::uint64_t first = 1'000'000'000'000,
                            std::uint64_t last = std::numeric_limits<std::uint64_t>::max())
      : first_(first), last_(last) {}
  std::unique_ptr<net::EventPoller> MakePoller() override {
    return std::make_unique<EndlessPoller>(first_, last_);
  }

 private:
  const std::uint64_t first_;
  const std::uint64_t last_;
};

class EndlessEvents : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

  // A turn that would not end by itself within this test.
  static Ingest::Options OneEndlessTurn() {
    Ingest::Options options;
    options.threads = 1;
    options.messages_per_turn = kAnyNumber;
    options.turn_max = std::chrono::hours(24);
    options.drain_max = Millis{0};
    options.stream.replay_messages_max = std::numeric_limits<std::uint64_t>::max();
    return options;
  }
  SourceSpec Spec(std::uint64_t worker) const {
    SourceSpec spec;
    spec.rank = {WorkerId{worker}, 0};
    spec.source.endpoint = "tcp://engine:1";
    if (GetParam()) spec.source.replay_endpoint = "tcp://engine:2";
    return spec;
  }
  std::shared_ptr<fleet::RankHealth> Follow(Ingest& ingest, std::uint64_t worker) {
    auto health = std::make_shared<fleet::RankHealth>();
    EXPECT_TRUE(ingest.Add(Spec(worker), index_, health));
    return health;
  }
  // Counted only at the end of a turn.
  static bool Counted(const fleet::RankHealth& health) {
    return health.count(RankCount::kMessages) > 0;
  }

  SystemClock clock_;
  metrics::Registry registry_;
  EndlessTransport transport_;
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> index_ =
      *indexes_.GetOrCreate({"m", "default"}, kTestBlockSize);
};

TEST_P(EndlessEvents, WhoeverAddsOrRemovesIsServedBetweenTwoMessages) {
  Ingest ingest(transport_, clock_, registry_, OneEndlessTurn());
  for (std::uint64_t worker = 1; worker < 20; ++worker)
    Follow(ingest, worker);
  for (std::uint64_t worker = 1; worker < 20; ++worker)
    EXPECT_TRUE(ingest.Remove({WorkerId{worker}, 0}));
  EXPECT_EQ(ingest.sources(), 0u);
}

TEST_P(EndlessEvents, EverySourceGetsItsTurnAlthoughTurnsAreCutShort) {
  Ingest ingest(transport_, clock_, registry_, OneEndlessTurn());
  std::vector<std::shared_ptr<fleet::RankHealth>> all;
  for (std::uint64_t worker = 1; worker <= 5; ++worker)
    all.push_back(Follow(ingest, worker));
  // Each call ends one turn, and the next source goes on.
  EXPECT_TRUE(Eventually([&] {
    ingest.Remove({WorkerId{99}, 0});
    return std::all_of(all.begin(), all.end(), [](const auto& one) { return Counted(*one); });
  }));
}

TEST_P(EndlessEvents, ATurnEndsWithItsTime) {
  Ingest::Options options = OneEndlessTurn();
  options.turn_max = Millis{1};
  Ingest ingest(transport_, clock_, registry_, options);
  const auto one = Follow(ingest, 1);
  const auto other = Follow(ingest, 2);
  EXPECT_TRUE(Eventually([&] { return Counted(*one) && Counted(*other); }));
}

TEST_P(EndlessEvents, StopWaitsForNoPause) {
  Ingest::Options options = OneEndlessTurn();
  options.drain_max = Millis{20};
  Ingest ingest(transport_, clock_, registry_, options);
  Follow(ingest, 1);
  Follow(ingest, 2);
  ingest.Stop();
  EXPECT_EQ(ingest.Add(Spec(3), index_, std::make_shared<fleet::RankHealth>()).error().code,
            ErrorCode::kCancelled);
}

// Wire P33.
TEST(IngestThread, WhatHasComeIsUsedBeforeTheEnd) {
  const SystemClock clock;
  metrics::Registry registry;
  constexpr std::uint64_t kMessages = 1'000;
  EndlessTransport transport(0, kMessages - 1);
  index::IndexSet indexes{index::IndexOptions{}};
  Ingest::Options options;
  options.threads = 1;
  options.messages_per_turn = 3;
  options.drain_max = std::chrono::hours(1);
  Ingest ingest(transport, clock, registry, options);
  std::vector<std::shared_ptr<fleet::RankHealth>> all;
  for (std::uint64_t worker = 1; worker <= 3; ++worker) {
    SourceSpec spec;
    spec.rank = {WorkerId{worker}, 0};
    spec.source.endpoint = "tcp://engine:1";
    all.push_back(std::make_shared<fleet::RankHealth>());
    ASSERT_TRUE(
        ingest.Add(spec, *indexes.GetOrCreate({"m", "default"}, kTestBlockSize), all.back()));
  }
  ingest.Stop();
  for (const auto& health : all)
    EXPECT_EQ(health->count(RankCount::kMessages), kMessages);
}

INSTANTIATE_TEST_SUITE_P(From, EndlessEvents, testing::Values(false, true),
                         [](const auto& row) { return row.param ? "Replay" : "Live"; });

}  // namespace
}  // namespace kvr::ingest
