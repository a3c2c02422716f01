// Rows T20..T24 of the active-sequence specification.
#include "load/prefill_queues.h"

#include <gtest/gtest.h>

namespace kvr::load {
namespace {

using std::chrono::seconds;
constexpr LoadSlot kRank{3};

class PrefillQueuesTest : public testing::Test {
 protected:
  std::uint64_t At(int second) const { return queues_.ActiveTokens(kRank, seconds{second}); }
  PrefillQueues queues_;
};

TEST_F(PrefillQueuesTest, EmptyIsZero) {
  EXPECT_EQ(At(0), 0u);
  EXPECT_FALSE(queues_.Contains(0));
}

TEST_F(PrefillQueuesTest, ModelledItemsFadeAtTheFrontsRate_T20) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  EXPECT_EQ(At(0), 160u);
  EXPECT_EQ(At(2), 140u);
  EXPECT_EQ(At(5), 110u);
  EXPECT_EQ(At(12), 40u);
  EXPECT_EQ(At(16), 0u);
  EXPECT_EQ(At(1000), 0u);
}

TEST_F(PrefillQueuesTest, OnlyTheFrontFadesBesideAnUnmodelledItem_T21) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, std::nullopt, seconds{0});
  EXPECT_EQ(At(5), 110u);
  EXPECT_EQ(At(10), 60u);
  EXPECT_EQ(At(100), 60u);
}

TEST_F(PrefillQueuesTest, UnmodelledFrontDoesNotFade) {
  queues_.Push(kRank, 0, 100, std::nullopt, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  EXPECT_EQ(At(100), 160u);
  queues_.Remove(kRank, 0, seconds{100});
  EXPECT_EQ(At(103), 30u);
}

TEST_F(PrefillQueuesTest, ZeroDurationFrontIsDoneAndNothingMore_T22) {
  queues_.Push(kRank, 0, 100, seconds{0}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  EXPECT_EQ(At(0), 60u);
  EXPECT_EQ(At(50), 60u);
}

TEST_F(PrefillQueuesTest, RemovingAMiddleItemKeepsTheTotalContinuous_T23) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  queues_.Push(kRank, 2, 40, seconds{4}, seconds{0});
  EXPECT_EQ(At(12), 80u);
  queues_.Remove(kRank, 1, seconds{12});
  EXPECT_EQ(At(12), 80u);
  EXPECT_EQ(At(14), 60u);
}

TEST_F(PrefillQueuesTest, RemovingAMiddleItemDoesNotReachIntoTheFuture_T23) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  EXPECT_EQ(At(2), 140u);
  queues_.Remove(kRank, 1, seconds{2});
  EXPECT_EQ(At(2), 100u);
  EXPECT_EQ(At(3), 90u);
}

TEST_F(PrefillQueuesTest, RemovingAMiddleItemBesideAnUnmodelledOneLeavesTheFrontAlone) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  queues_.Push(kRank, 2, 50, std::nullopt, seconds{0});
  EXPECT_EQ(At(5), 160u);
  queues_.Remove(kRank, 1, seconds{5});
  EXPECT_EQ(At(5), 100u);
}

TEST_F(PrefillQueuesTest, TheNextFrontStartsWhenItBecomesTheFront_T24) {
  queues_.Push(kRank, 0, 100, seconds{10}, seconds{0});
  queues_.Push(kRank, 1, 60, seconds{6}, seconds{0});
  queues_.Remove(kRank, 0, seconds{4});
  EXPECT_EQ(At(4), 60u);
  EXPECT_EQ(At(7), 30u);
}

TEST_F(PrefillQueuesTest, RemovingTheBackThenPushingKeepsOrder) {
  queues_.Push(kRank, 0, 10, std::nullopt, seconds{0});
  queues_.Push(kRank, 1, 20, std::nullopt, seconds{0});
  queues_.Remove(kRank, 1, seconds{0});
  queues_.Push(kRank, 2, 40, std::nullopt, seconds{0});
  EXPECT_EQ(At(0), 50u);
  queues_.Remove(kRank, 0, seconds{0});
  queues_.Remove(kRank, 2, seconds{0});
  EXPECT_EQ(At(0), 0u);
  EXPECT_FALSE(queues_.Contains(2));
  queues_.Push(kRank, 2, 7, std::nullopt, seconds{0});
  EXPECT_EQ(At(0), 7u);
}

}  // namespace
}  // namespace kvr::load
