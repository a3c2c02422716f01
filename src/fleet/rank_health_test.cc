#include "fleet/rank_health.h"

#include <string>

#include <gtest/gtest.h>

namespace kvr::fleet {
namespace {

TEST(RankHealth, IsBlindUntilToldOtherwise) {
  const RankHealth health;
  EXPECT_EQ(health.status().state, RankState::kBlind);
  EXPECT_EQ(health.status().reason, StateReason::kNoEventSource);
  EXPECT_EQ(health.detail(), "no `events` endpoint is given for it");
  EXPECT_FALSE(health.watermark());
  EXPECT_FALSE(health.connected());
}

TEST(RankHealth, StateReasonAndDetailChangeTogether) {
  RankHealth health;
  health.SetStatus({RankState::kDegraded, StateReason::kHistoryGone}, "asked 3, got 7", Nanos{5});
  EXPECT_EQ(health.status().state, RankState::kDegraded);
  EXPECT_EQ(health.status().reason, StateReason::kHistoryGone);
  EXPECT_EQ(health.detail(), "asked 3, got 7");
  EXPECT_EQ(health.changed_at(), Nanos{5});
  health.SetStatus({RankState::kDegraded, StateReason::kHistoryGone}, "asked 3, got 7", Nanos{9});
  EXPECT_EQ(health.changed_at(), Nanos{5}) << "nothing changed";
}

TEST(RankHealth, DetailIsBounded) {
  RankHealth health;
  health.SetStatus({RankState::kExact, StateReason::kNone}, std::string(10'000, 'x'), Nanos{1});
  EXPECT_EQ(health.detail().size(), RankHealth::kDetailBytesMax);
}

TEST(RankHealth, TheTransportsNoteExplainsWhatIsNotExact) {
  RankHealth health;
  health.SetFeedNote("status 404");
  const auto detail = [&](RankState state, StateReason reason) {
    health.SetStatus({state, reason}, "said", Nanos{1});
    return health.detail();
  };
  EXPECT_EQ(detail(RankState::kBlind, StateReason::kConnecting), "status 404");
  EXPECT_EQ(detail(RankState::kBlind, StateReason::kRefused), "status 404");
  EXPECT_EQ(detail(RankState::kDegraded, StateReason::kGapUnrepaired), "said; status 404");
  EXPECT_EQ(detail(RankState::kExact, StateReason::kNone), "said");
  EXPECT_EQ(health.feed_note(), "status 404");
  health.SetFeedNote("");
  EXPECT_EQ(detail(RankState::kBlind, StateReason::kConnecting), "said");
}

TEST(RankHealth, WatermarkHoldsEveryValue) {
  RankHealth health;
  health.SetWatermark(0);
  EXPECT_EQ(health.watermark(), 0u);
  health.SetWatermark(~std::uint64_t{0});
  EXPECT_EQ(health.watermark(), ~std::uint64_t{0});
  health.SetWatermark(std::nullopt);
  EXPECT_FALSE(health.watermark());
}

TEST(RankHealth, CountsByName) {
  RankHealth health;
  health.Count(RankCount::kGaps);
  health.Count(RankCount::kMissedMessages, 1000);
  EXPECT_EQ(health.count(RankCount::kGaps), 1u);
  EXPECT_EQ(health.count(RankCount::kMissedMessages), 1000u);
  EXPECT_EQ(kRankCountNames[static_cast<std::size_t>(RankCount::kDisconnects)], "disconnects");
}

}  // namespace
}  // namespace kvr::fleet
