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
  scores.Score(RankSlot{2}, {.rank = {}, .blocks = {3, 1, 0, 0}});
  scores.Seal();
  EXPECT_EQ(scores.at(RankSlot{2}).depth(), 4u);
  EXPECT_EQ(scores.at(RankSlot{0}).depth(), 0u);
  EXPECT_EQ(scores.at(RankSlot{99}).depth(), 0u);
  scores.Reset(4);
  EXPECT_TRUE(scores.scored().empty());
  EXPECT_EQ(scores.at(RankSlot{2}).depth(), 0u);
  scores.Reset(100);
  scores.Score(RankSlot{2}, {.rank = {WorkerId{7}, 1}, .blocks = {1, 0, 0, 0}});
  scores.Seal();
  EXPECT_EQ(scores.at(RankSlot{2}).depth(), 1u);
  EXPECT_EQ(scores.at(RankSlot{2}).rank, (Rank{WorkerId{7}, 1}));
}

TEST(OverlapScores, KeepsTheDeepest) {
  OverlapScores scores;
  scores.Reset(130);
  scores.endings().push_back({.word = 0, .slots = 0b1110, .blocks = {2, 0, 0, 0}});
  scores.endings().push_back({.word = 2, .slots = 0b11, .blocks = {3, 0, 2, 0}});
  scores.endings().push_back({.word = 1, .slots = 0b1, .blocks = {1, 0, 0, 0}});
  scores.KeepDeepest(4);
  scores.Seal();
  scores.NameRanks(1, [](RankSlot slot) { return Rank{WorkerId{Raw(slot)}, 0}; });
  EXPECT_EQ(scores.scored().size(), 4u);
  EXPECT_EQ(scores.at(RankSlot{128}).depth(), 5u);
  EXPECT_EQ(scores.at(RankSlot{129}).depth(), 5u);
  EXPECT_EQ(scores.at(RankSlot{64}).depth(), 0u);
  std::size_t second = 0;
  for (const RankSlot slot : scores.scored())
    second += scores.at(slot).depth() == 2 ? 1u : 0u;
  EXPECT_EQ(second, 2u);
  std::size_t read = 0;
  scores.ForEach([&](RankSlot slot, const Rank& rank, const auto& blocks, EngineHash last) {
    const RankOverlap overlap = scores.at(slot);
    EXPECT_EQ(rank, overlap.rank);
    EXPECT_EQ(blocks, overlap.blocks);
    EXPECT_EQ(last, overlap.last);
    ++read;
  });
  EXPECT_EQ(read, 4u);
}

// Whoever asks two indexes with one object pays for the ranks that they score, not for those that
// they know.
TEST(OverlapScores, NamesOnlyWhatIsScoredAndOnlyOnce) {
  OverlapScores scores;
  const auto ask = [&scores](std::uint64_t key, std::uint64_t slots, std::size_t known = 4'096) {
    scores.Reset(known);
    scores.endings().push_back({.word = 1, .slots = slots, .blocks = {2, 0, 0, 0}});
    scores.Seal();
    std::size_t named = 0;
    scores.NameRanks(key, [&](RankSlot slot) {
      ++named;
      return Rank{WorkerId{key * 1'000 + Raw(slot)}, 0};
    });
    for (const RankSlot slot : scores.scored())
      EXPECT_EQ(Raw(scores.at(slot).rank.worker), key * 1'000 + Raw(slot));
    return named;
  };
  EXPECT_EQ(ask(1, 0b1), 1u);
  EXPECT_EQ(ask(1, 0b111), 2u);
  EXPECT_EQ(ask(1, 0b101, 128), 0u);
  EXPECT_EQ(ask(2, 0b11), 2u);  // the slots of another index
  EXPECT_EQ(ask(1, 0b111), 3u);
  scores.Score(RankSlot{65}, {.rank = {WorkerId{9}, 0}, .blocks = {1, 0, 0, 0}});
  EXPECT_EQ(ask(1, 0b111), 3u);  // named by others meanwhile
}

TEST(SlotSet, GoesThroughTheSlotsInOrder) {
  const std::uint64_t words[] = {0, 0b101, 0, std::uint64_t{1} << 63};
  const SlotSet slots(words);
  std::vector<std::uint32_t> seen;
  for (const RankSlot slot : slots)
    seen.push_back(Raw(slot));
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{64, 66, 255}));
  EXPECT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots.front(), RankSlot{64});
  EXPECT_TRUE(slots.Has(RankSlot{255}));
  EXPECT_FALSE(slots.Has(RankSlot{65}));
  EXPECT_FALSE(slots.Has(RankSlot{1'000}));
  EXPECT_TRUE(SlotSet({}).empty());
  EXPECT_TRUE(SlotSet(std::span(words).first(1)).empty());
}

TEST(RankState, EveryReasonHasAName) {
  for (int i = 0; i <= static_cast<int>(StateReason::kReplayMismatch); ++i) {
    EXPECT_FALSE(StateReasonName(static_cast<StateReason>(i)).empty());
  }
}

}  // namespace
}  // namespace kvr
