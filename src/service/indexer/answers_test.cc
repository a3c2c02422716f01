#include "service/indexer/answers.h"

#include <span>
#include <string>

#include <gtest/gtest.h>

#include "index/index_set.h"

namespace kvr::service {
namespace {

TEST(Answers, Row64TokensBeyond32Bits) {
  OverlapScores scores;
  scores.Reset(1);
  scores.Score(RankSlot{0}, {.rank = {WorkerId{7}, 1}, .blocks = {3, 1, 0, 2}});
  scores.Seal();
  scores.mutable_device_holders() = {1, 1, 1};
  EXPECT_EQ(QueryAnswer(scores, 1u << 31, {}, {}),
            R"({"scores":{"7":{"1":6442450944}},"frequencies":[1,1,1],"instances":{"7":)"
            R"({"longest_matched":12884901888,"gpu":6442450944,"dp":{"1":6442450944},)"
            R"("cpu":8589934592,"disk":12884901888}}})");
}

TEST(Answers, LowerTiersAloneGiveNoScore) {
  OverlapScores scores;
  scores.Reset(1);
  scores.Score(RankSlot{0}, {.rank = {WorkerId{7}, 0}, .blocks = {0, 2, 0, 0}});
  scores.Seal();
  EXPECT_EQ(QueryAnswer(scores, 4, {}, {}),
            R"({"scores":{},"frequencies":[],"instances":{"7":{"longest_matched":8,"gpu":0,)"
            R"("dp":{"0":0},"cpu":8,"disk":8}}})");
}

TEST(Answers, RanksOfHybridModelsSayWhatCanBeReused) {
  OverlapScores scores;
  scores.Reset(2);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    scores.Score(RankSlot{slot}, {{WorkerId{7}, slot}, {2, 0, 0, 0}, EngineHash{12}});
  }
  scores.Seal();
  index::IndexSet indexes(index::IndexOptions{});
  const auto partition = *indexes.GetOrCreate({"m", "default"}, 4);
  QueryAnswerOptions options;
  options.hybrid = partition->hybrid.get();
  EXPECT_EQ(QueryAnswer(scores, 4, {}, options).find("hybrid"), std::string::npos);
  const Rank rank{WorkerId{7}, 1};
  const auto sides = partition->hybrid->FindOrAdd(rank, *partition->index, 4);
  sides->Declare({1, SideRule::kWindow, 4, 4});
  EXPECT_NE(QueryAnswer(scores, 4, {}, options).find(R"("hybrid":{"7":{"1":0}})"),
            std::string::npos);
  const SideCopy copy{EngineHash{12}};
  sides->Store(1, Tier::kDevice, std::span(&copy, 1));
  EXPECT_NE(QueryAnswer(scores, 4, {}, options).find(R"("hybrid":{"7":{"1":8}})"),
            std::string::npos);
}

}  // namespace
}  // namespace kvr::service
