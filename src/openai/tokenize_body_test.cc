#include "openai/tokenize_body.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::openai {
namespace {

using ::testing::ElementsAre;

std::optional<std::string> BodyFor(Api api, const std::string& body) {
  const auto request = ParseRequest(api, body, {});
  EXPECT_TRUE(request) << body;
  return request ? TokenizeBody(*request, body) : std::nullopt;
}

TEST(TokenizeBody, CopiesWhatShapesThePrompt) {
  struct Row {
    const char* name;
    Api api;
    const char* body;
    std::optional<std::string> want;
  };
  const Row rows[] = {
      {"text", Api::kCompletions, R"({"model":"m","prompt":"a \"b\" \u00e9","max_tokens":1})",
       R"({"model":"m","prompt":"a \"b\" \u00e9"})"},
      {"text in an array", Api::kCompletions, R"({"prompt":[ "one" , "two"],"model":"m"})",
       R"({"prompt":"one","model":"m"})"},
      {"add_special_tokens is kept", Api::kCompletions,
       R"({"model":"m","add_special_tokens" : false , "prompt":"p"})",
       R"({"model":"m","add_special_tokens":false,"prompt":"p"})"},
      {"chat", Api::kChat,
       R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"temperature":0.1})",
       R"({"model":"m","messages":[{"role":"user","content":"hi"}]})"},
      {"chat with tools and template arguments, numbers unchanged", Api::kChat,
       R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"x":1.10}],)"
       R"("chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,)"
       R"("continue_final_message":true,"seed":7})",
       R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"x":1.10}],)"
       R"("chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,)"
       R"("continue_final_message":true})"},
      {"ids need none", Api::kCompletions, R"({"model":"m","prompt":[1,2]})", std::nullopt},
      {"chat with ids needs none", Api::kChat,
       R"({"model":"m","messages":[{"role":"user","content":"x"}],"input_ids":[1]})", std::nullopt},
      {"embeddings have none", Api::kCompletions, R"({"model":"m","prompt_embeds":"abc"})",
       std::nullopt},
  };
  for (const Row& row : rows)
    EXPECT_EQ(BodyFor(row.api, row.body), row.want) << row.name;
}

TEST(ParseTokenizeAnswer, TakesIdsOnly) {
  const auto ids =
      ParseTokenizeAnswer(R"({"count":2,"max_model_len":10,"tokens":[1,4294967295]})", 10);
  ASSERT_TRUE(ids);
  EXPECT_THAT(*ids, ElementsAre(1u, 4294967295u));
  for (const char* bad :
       {"", "{", "[]", R"({"tokens":3})", R"({"tokens":[-1]})", R"({"tokens":[4294967296]})",
        R"({"tokens":[[1]]})", R"({"tokens":["1"]})", R"({"token":[1]})"}) {
    const auto answer = ParseTokenizeAnswer(bad, 10);
    ASSERT_FALSE(answer) << bad;
    EXPECT_EQ(answer.error().code, ErrorCode::kUpstream) << bad;
  }
  const auto many = ParseTokenizeAnswer(R"({"tokens":[1,2,3]})", 2);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace kvr::openai
