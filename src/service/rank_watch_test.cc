#include "service/rank_watch.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace kvr::service {
namespace {

using fleet::RankCount;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kSecond{1};

fleet::WorkerSpec Spec(std::uint64_t id, bool has_events = true) {
  fleet::WorkerSpec spec;
  spec.id = WorkerId{id};
  spec.partition = {"m", "default"};
  spec.url = "http://127.0.0.1:1";
  spec.block_size = 4;
  spec.dp_ranks = {0};
  if (has_events) spec.events[0].endpoint = "tcp://engine:5557";
  return spec;
}

class RankWatchTest : public ::testing::Test {
 protected:
  RankWatchTest() { KVR_CHECK(catalog_.Add(Spec(1)).has_value()); }

  void Set(RankState state, StateReason reason, std::string_view detail = "",
           std::uint64_t worker = 1) {
    HealthOf(worker).SetStatus({state, reason}, detail, clock_.Now());
  }
  fleet::RankHealth& HealthOf(std::uint64_t worker = 1) {
    return *catalog_.snapshot()->Find(Rank{WorkerId{worker}, 0})->health;
  }
  // "W text" or "I text", one a note.
  std::vector<std::string> Look() {
    std::vector<std::string> lines;
    for (const auto& note : watch_.Look())
      lines.push_back((note.warns ? "W " : "I ") + note.text);
    return lines;
  }

  ManualClock clock_;
  fleet::Catalog catalog_;
  std::vector<WorkerId> lost_;
  RankWatch watch_{
      {.notes_max = 3}, catalog_, clock_, [this](WorkerId worker) { lost_.push_back(worker); }};
};

TEST_F(RankWatchTest, TellsEachTransitionOnce) {
  Set(RankState::kBlind, StateReason::kConnecting);
  EXPECT_THAT(Look(), ::testing::IsEmpty());
  Set(RankState::kWarming, StateReason::kReplaying);
  EXPECT_THAT(Look(), ::testing::IsEmpty()) << "it passes";
  Set(RankState::kExact, StateReason::kNone);
  EXPECT_THAT(Look(), ::testing::ElementsAre("I worker 1 rank 0: blind (connecting) -> exact; "
                                             "events from tcp://engine:5557"));
  EXPECT_THAT(Look(), ::testing::IsEmpty());
  HealthOf().Count(RankCount::kDisconnects);
  Set(RankState::kWarming, StateReason::kDisconnected, "the event stream is lost");
  EXPECT_THAT(Look(), ::testing::ElementsAre(
                          "W worker 1 rank 0: exact -> warming (disconnected), lost streams: 1: "
                          "the event stream is lost; events from tcp://engine:5557"));
  EXPECT_THAT(lost_, ::testing::ElementsAre(WorkerId{1}));
  HealthOf().Count(RankCount::kRestarts);
  Set(RankState::kExact, StateReason::kNone);
  EXPECT_THAT(Look(),
              ::testing::ElementsAre(HasSubstr(
                  "I worker 1 rank 0: warming (disconnected) -> exact, engine restarts: 1")));
  EXPECT_THAT(Look(), ::testing::IsEmpty());
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(RankWatchTest, WhatCameAndWentBetweenTwoLooksIsTold) {
  Set(RankState::kExact, StateReason::kNone);
  EXPECT_EQ(Look().size(), 1u);
  HealthOf().Count(RankCount::kDisconnects);
  HealthOf().Count(RankCount::kRestarts);
  EXPECT_THAT(Look(), ::testing::ElementsAre(HasSubstr(
                          "W worker 1 rank 0: exact again, lost streams: 1, engine restarts: 1")));
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(RankWatchTest, ARankThatFlapsWarnsOncePerPause) {
  Set(RankState::kExact, StateReason::kNone);
  std::size_t lines = Look().size();
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(kSecond);
    HealthOf().Count(RankCount::kDisconnects);
    const bool up = i % 2 == 1;
    Set(up ? RankState::kExact : RankState::kWarming,
        up ? StateReason::kNone : StateReason::kDisconnected);
    lines += Look().size();
  }
  EXPECT_EQ(lines, 1u + 2 * 2u) << "two pauses, each with one loss and one return";
  EXPECT_EQ(lost_.size(), 20u) << "the engine is asked every time";
}

TEST_F(RankWatchTest, DegradedIsAWarningWithItsReason) {
  Set(RankState::kDegraded, StateReason::kGapUnrepaired, "3 messages from 7 on are lost");
  EXPECT_THAT(Look(), ::testing::ElementsAre(HasSubstr(
                          "W worker 1 rank 0: blind (connecting) -> degraded (gap_unrepaired): 3 "
                          "messages from 7 on are lost")));
}

TEST_F(RankWatchTest, AnEndpointThatNeverConnectsIsWarnedOfOnce) {
  Set(RankState::kBlind, StateReason::kConnecting);
  EXPECT_THAT(Look(), ::testing::IsEmpty());
  clock_.Advance(10 * kSecond);
  EXPECT_THAT(Look(), ::testing::ElementsAre(
                          HasSubstr("W worker 1 rank 0: no connection to its event stream "
                                    "tcp://engine:5557 yet, 10 s after the start")));
  clock_.Advance(100 * kSecond);
  EXPECT_THAT(Look(), ::testing::IsEmpty());
}

TEST_F(RankWatchTest, WhyAnEndpointDoesNotConnectIsToldWhereItIsKnown) {
  Set(RankState::kBlind, StateReason::kConnecting, "a guess");
  HealthOf().SetFeedNote("cannot connect to engine:8000: Connection refused");
  EXPECT_THAT(Look(), ::testing::IsEmpty());
  clock_.Advance(10 * kSecond);
  EXPECT_THAT(Look(), ::testing::ElementsAre(
                          HasSubstr("10 s after the start; cannot connect to engine:8000")));
  HealthOf().SetFeedNote("POST /kv_cache_events is answered with the status 401");
  Set(RankState::kBlind, StateReason::kRefused, "a guess");
  EXPECT_THAT(Look(), ::testing::ElementsAre(HasSubstr(
                          "blind (connecting) -> blind (refused): POST /kv_cache_events is "
                          "answered with the status 401")));
}

TEST_F(RankWatchTest, ManyAtOnceAreToldByFurtherLooks) {
  for (std::uint64_t id = 2; id <= 5; ++id)
    ASSERT_TRUE(catalog_.Add(Spec(id)).has_value());
  for (std::uint64_t id = 1; id <= 5; ++id)
    Set(RankState::kExact, StateReason::kNone, "", id);
  EXPECT_EQ(Look().size(), 3u);
  EXPECT_EQ(Look().size(), 2u);
  EXPECT_EQ(Look().size(), 0u);
}

TEST_F(RankWatchTest, ARankWithoutEventsIsNobodysTrouble) {
  ASSERT_TRUE(catalog_.Add(Spec(2, false)).has_value());
  ASSERT_TRUE(catalog_.Remove(WorkerId{1}));
  clock_.Advance(100 * kSecond);
  EXPECT_THAT(Look(), ::testing::IsEmpty());
}

TEST_F(RankWatchTest, ARankThatIsRegisteredAnewBeginsAnew) {
  Set(RankState::kExact, StateReason::kNone);
  EXPECT_EQ(Look().size(), 1u);
  ASSERT_TRUE(catalog_.Remove(WorkerId{1}));
  ASSERT_TRUE(catalog_.Add(Spec(1)).has_value());
  Set(RankState::kExact, StateReason::kNone);
  EXPECT_THAT(Look(), ::testing::ElementsAre(HasSubstr("I worker 1 rank 0: blind")));
}

}  // namespace
}  // namespace kvr::service
