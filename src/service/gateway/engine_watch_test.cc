#include "service/gateway/engine_watch.h"

#include <chrono>
#include <optional>

#include <gtest/gtest.h>

#include "base/check.h"
#include "net/io_runtime.h"

namespace kvr::service {
namespace {

using Probed = EngineWatch::Probed;

constexpr WorkerId kWorker{1};

class EngineWatchTest : public ::testing::Test {
 protected:
  EngineWatchTest() {
    Add(1);
    clock_.Advance(std::chrono::seconds(1));
  }

  void Add(std::uint64_t id) {
    fleet::WorkerSpec spec;
    spec.id = WorkerId{id};
    spec.partition = {"m", "default"};
    spec.url = "http://127.0.0.1:1";
    spec.block_size = 4;
    spec.dp_ranks = {0, 1};
    KVR_CHECK(catalog_.Add(std::move(spec)).has_value());
  }
  EngineWatch::Reach Reach() const { return watch_.ReachOf(*catalog_.snapshot()); }
  void Probe(Probed probed) {
    ASSERT_EQ(watch_.Claim(), kWorker);
    watch_.Settle(kWorker, probed);
  }

  ManualClock clock_;
  fleet::Catalog catalog_;
  net::IoRuntime runtime_{{1, "test"}};
  net::HttpClient client_{runtime_, {}};
  EngineWatch watch_{{}, catalog_, client_, clock_};
};

TEST_F(EngineWatchTest, EachEngineIsAskedAtTheStartByOneTask) {
  EXPECT_EQ(Reach().untried, 1u);
  EXPECT_EQ(watch_.Claim(), kWorker);
  EXPECT_EQ(watch_.Claim(), std::nullopt) << "it is being asked";
  watch_.Settle(kWorker, Probed::kAnswered);
  EXPECT_EQ(Reach().up, 1u);
  EXPECT_EQ(Reach().untried, 0u);
}

TEST_F(EngineWatchTest, OneThatAnswersIsAskedAgainAfterTheInterval) {
  Probe(Probed::kAnswered);
  clock_.Advance(Millis{4'999});
  EXPECT_EQ(watch_.Claim(), std::nullopt);
  clock_.Advance(Millis{1});
  Probe(Probed::kFailed);
  EXPECT_EQ(watch_.down(), 1u);
  EXPECT_TRUE(watch_.DownReason(kWorker));
  EXPECT_EQ(Reach().up, 0u);
  EXPECT_EQ(watch_.DownRanks(*catalog_.snapshot()).size(), 2u);
}

TEST_F(EngineWatchTest, OneThatIsDownIsAskedAfterDoublingPauses) {
  for (const int pause : {500, 1'000, 2'000, 4'000, 8'000, 8'000}) {
    Probe(Probed::kFailed);
    clock_.Advance(Millis{pause - 1});
    EXPECT_EQ(watch_.Claim(), std::nullopt) << pause;
    clock_.Advance(Millis{1});
  }
  Probe(Probed::kAnswered);
  EXPECT_EQ(watch_.down(), 0u);
}

TEST_F(EngineWatchTest, SilenceCountsWhenItLasts) {
  Probe(Probed::kAnswered);
  clock_.Advance(Millis{5'000});
  Probe(Probed::kSilent);
  clock_.Advance(Millis{500});
  Probe(Probed::kSilent);
  EXPECT_EQ(watch_.down(), 0u) << "it may be busy";
  clock_.Advance(Millis{500});
  Probe(Probed::kSilent);
  EXPECT_EQ(watch_.down(), 1u);
}

TEST_F(EngineWatchTest, WhatWasNotAskedSaysNothing) {
  Probe(Probed::kNotAsked);
  EXPECT_EQ(Reach().untried, 1u);
  EXPECT_EQ(watch_.Claim(), std::nullopt) << "it waits, as everybody does";
  clock_.Advance(Millis{500});
  Probe(Probed::kAnswered);
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(Millis{5'000});
    Probe(Probed::kNotAsked);
  }
  EXPECT_EQ(watch_.down(), 0u);
  EXPECT_EQ(Reach().up, 1u);
}

TEST_F(EngineWatchTest, AnAnswerEndsTheCountOfSilence) {
  for (int i = 0; i < 5; ++i) {
    Probe(Probed::kAnswered);
    clock_.Advance(Millis{5'000});
    Probe(Probed::kSilent);
    clock_.Advance(Millis{500});
  }
  EXPECT_EQ(watch_.down(), 0u);
}

TEST_F(EngineWatchTest, ALostStreamMakesItAskAtOnce) {
  Probe(Probed::kAnswered);
  EXPECT_EQ(watch_.Claim(), std::nullopt);
  watch_.ProbeSoon(kWorker);
  EXPECT_EQ(watch_.Claim(), kWorker);
  watch_.Settle(kWorker, Probed::kFailed);
  watch_.ProbeSoon(kWorker);
  EXPECT_EQ(watch_.Claim(), std::nullopt) << "its pauses stand";
}

TEST_F(EngineWatchTest, ARequestKnowsAtOnce) {
  Probe(Probed::kAnswered);
  watch_.Failed(kWorker, "no route");
  EXPECT_EQ(watch_.DownReason(kWorker), "no route");
  watch_.Answered(kWorker);
  EXPECT_EQ(watch_.DownReason(kWorker), std::nullopt);
  EXPECT_EQ(Reach().up, 1u);
}

TEST_F(EngineWatchTest, WorkersThatLeaveAreForgotten) {
  Probe(Probed::kFailed);
  Add(2);
  ASSERT_TRUE(catalog_.Remove(kWorker));
  EXPECT_EQ(watch_.Claim(), WorkerId{2});
  EXPECT_EQ(watch_.down(), 0u);
  watch_.Settle(kWorker, Probed::kFailed);
  watch_.Failed(kWorker, "no route");
  EXPECT_EQ(watch_.down(), 0u);
}

TEST_F(EngineWatchTest, TheReasonIsTheLastOne) {
  ASSERT_EQ(watch_.Claim(), kWorker);
  watch_.Settle(kWorker, Probed::kFailed, "refused");
  EXPECT_EQ(watch_.DownReason(kWorker), "refused");
  clock_.Advance(Millis{500});
  ASSERT_EQ(watch_.Claim(), kWorker);
  watch_.Settle(kWorker, Probed::kSilent, "silent");
  EXPECT_EQ(watch_.DownReason(kWorker), "silent");
}

}  // namespace
}  // namespace kvr::service
