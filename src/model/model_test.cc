#include <cstdint>

#include <gtest/gtest.h>

#include "model/ids.h"
#include "model/overlap.h"
#include "model/rank_state.h"
#include "model/tier.h"

namespace kvr {
namespace {

TEST(Tier, NamesRoundTrip) {
  for (std::size_t i = 0; i < kTierCount; ++i) {
    const auto tier = static_cast<Tier>(i);
    EXPECT_EQ(TierFromName(TierName(tier)), tier);
  }
  EXPECT_EQ(TierFromName("gpu"), std::nullopt);
}

TEST(Rank, IsOrderedByWorkerThenRank) {
  const Rank a{WorkerId{1}, 9};
  const Rank b{WorkerId{2}, 0};
  EXPECT_LT(a, b);
  EXPECT_LT((Rank{WorkerId{1}, 0}), a);
  EXPECT_NE(std::hash<Rank>{}(a), std::hash<Rank>{}(b));
}

TEST(OverlapScores, ResetForgetsTheAnswerAndKeepsTheRoom) {
  OverlapScores scores;
  scores.Reset(4);
  scores.Score(RankSlot{2}, {}).blocks = {3, 1, 0, 0};
  EXPECT_EQ(scores.at(RankSlot{2}).depth(), 4u);
  EXPECT_EQ(scores.at(RankSlot{0}).depth(), 0u);
  EXPECT_EQ(scores.at(RankSlot{99}).depth(), 0u);
  scores.Reset(4);
  EXPECT_TRUE(scores.scored().empty());
  EXPECT_EQ(scores.at(RankSlot{2}).depth(), 0u);
  scores.Reset(100);
  EXPECT_EQ(scores.Score(RankSlot{2}, {WorkerId{7}, 1}).depth(), 0u);
  EXPECT_EQ(scores.at(RankSlot{2}).rank, (Rank{WorkerId{7}, 1}));
}

TEST(RankState, EveryReasonHasAName) {
  for (int i = 0; i <= static_cast<int>(StateReason::kReplayMismatch); ++i) {
    EXPECT_FALSE(StateReasonName(static_cast<StateReason>(i)).empty());
  }
}

}  // namespace
}  // namespace kvr
