#include "openai/usage.h"

#include <cstdint>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace kvr::openai {
namespace {

TEST(UsageOfAnswer, ReadsWhatEnginesSend) {
  struct Row {
    const char* name;
    const char* body;
    std::optional<Usage> want;
  };
  const Row rows[] = {
      {"full",
       R"({"id":"x","choices":[],"usage":{"prompt_tokens":32,"completion_tokens":5,)"
       R"("total_tokens":37,"prompt_tokens_details":{"cached_tokens":16}}})",
       Usage{32, 5, 16}},
      {"no details", R"({"usage":{"prompt_tokens":3,"completion_tokens":1}})",
       Usage{3, 1, std::nullopt}},
      {"null details",
       R"({"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":null}})",
       Usage{3, 1, std::nullopt}},
      {"cached zero is a report",
       R"({"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}})",
       Usage{3, 0, 0}},
      {"null usage", R"({"usage":null})", std::nullopt},
      {"mistyped", R"({"usage":{"prompt_tokens":"3"}})", std::nullopt},
      {"negative", R"({"usage":{"prompt_tokens":-3}})", std::nullopt},
      {"none", R"({"choices":[]})", std::nullopt},
      {"array", R"([1])", std::nullopt},
      {"cut off", R"({"usage":{"prompt_tokens":3)", std::nullopt},
      {"empty", "", std::nullopt},
  };
  for (const Row& row : rows)
    EXPECT_EQ(UsageOfAnswer(row.body), row.want) << row.name;
}

TEST(IsPlausible, BoundsEveryCount) {
  EXPECT_TRUE(IsPlausible({0, 0, std::nullopt}));
  EXPECT_TRUE(IsPlausible({kUsageTokensMax, kUsageTokensMax, kUsageTokensMax}));
  EXPECT_FALSE(IsPlausible({kUsageTokensMax + 1, 0, std::nullopt}));
  EXPECT_FALSE(IsPlausible({8, UINT64_MAX, std::nullopt}));
  EXPECT_FALSE(IsPlausible({8, 1, 9}));
}

}  // namespace
}  // namespace kvr::openai
