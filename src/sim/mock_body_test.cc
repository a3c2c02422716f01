#include "sim/mock_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openai/usage.h"

namespace kvr::sim {
namespace {

using openai::Api;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WordTokenizer kTokenizer(1'000);

TEST(ParseGenerate, TakesIdsTextAndChat) {
  const auto ids =
      ParseGenerate(Api::kCompletions,
                    R"({"model":"m","prompt":[5,6],"max_tokens":7,"stream":true})", kTokenizer);
  ASSERT_TRUE(ids.has_value()) << ids.error().message;
  EXPECT_EQ(ids->model, "m");
  EXPECT_THAT(ids->prompt, ElementsAre(5u, 6u));
  EXPECT_EQ(ids->max_tokens, 7u);
  EXPECT_TRUE(ids->stream);
  EXPECT_FALSE(ids->include_usage);

  for (const char* body :
       {R"({"model":"m","prompt":"w5 w6"})", R"({"model":"m","prompt":["w5 w6"]})",
        R"({"model":"m","prompt":[[5,6]]})"}) {
    const auto text = ParseGenerate(Api::kCompletions, body, kTokenizer);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_THAT(text->prompt, ElementsAre(5u, 6u));
    EXPECT_FALSE(text->max_tokens.has_value());
  }

  const auto chat = ParseGenerate(Api::kChat,
                                  R"({"model":"m","messages":[{"role":"user","content":"w1"},)"
                                  R"({"role":"user","content":[{"type":"text","text":"w2"}]}],)"
                                  R"("stream_options":{"include_usage":true},"stream":true})",
                                  kTokenizer);
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_EQ(chat->prompt,
            kTokenizer.Encode("<|user|> w1 <|end|> <|user|> w2 <|end|> <|assistant|>"));
  EXPECT_TRUE(chat->include_usage);
}

struct Refusal {
  const char* name;
  Api api;
  const char* body;
  const char* param;
};

class ParseGenerateRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ParseGenerateRefuses, WhatItCannotAnswerTruly) {
  const auto request = ParseGenerate(GetParam().api, GetParam().body, kTokenizer);
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().param, GetParam().param);
}

INSTANTIATE_TEST_SUITE_P(
    Bodies, ParseGenerateRefuses,
    ::testing::Values(
        Refusal{"json", Api::kCompletions, "{", ""},
        Refusal{"batch", Api::kCompletions, R"({"model":"m","prompt":["a","b"]})", "prompt"},
        Refusal{"choices", Api::kCompletions, R"({"model":"m","prompt":"a","n":2})", "n"},
        Refusal{"salt", Api::kCompletions, R"({"model":"m","prompt":"a","cache_salt":"s"})",
                "cache_salt"},
        Refusal{"embeddings", Api::kCompletions, R"({"model":"m","prompt_embeds":"AA"})",
                "prompt_embeds"},
        Refusal{"image", Api::kChat,
                R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url",)"
                R"("image_url":{"url":"u"}}]}]})",
                "messages"}),
    [](const auto& instance) { return instance.param.name; });

TEST(ParseTokenize, BothFormsOfVllm) {
  const auto text = ParseTokenize(R"({"model":"m","prompt":"w1 w2"})", kTokenizer);
  ASSERT_TRUE(text.has_value());
  EXPECT_THAT(*text, ElementsAre(1u, 2u));
  const char* chat =
      R"({"messages":[{"role":"user","content":"w1"}],"add_generation_prompt":false})";
  const auto messages = ParseTokenize(chat, kTokenizer);
  ASSERT_TRUE(messages.has_value());
  EXPECT_EQ(*messages, kTokenizer.Encode("<|user|> w1 <|end|> "));
  EXPECT_FALSE(ParseTokenize(R"({"text":"w1"})", kTokenizer).has_value());
  EXPECT_FALSE(ParseTokenize("[]", kTokenizer).has_value());
}

TEST(ParseGenerate, HonoursAddGenerationPrompt) {
  constexpr std::string_view kBody =
      R"({"model":"m","messages":[{"role":"user","content":"w1"}],"add_generation_prompt":false})";
  const auto served = ParseGenerate(Api::kChat, kBody, kTokenizer);
  const auto tokens = ParseTokenize(kBody, kTokenizer);
  ASSERT_TRUE(served && tokens);
  EXPECT_EQ(served->prompt, *tokens);
}

TEST(ParseGenerate, ACompletionsPromptIsNotMessages) {
  const auto served = ParseGenerate(
      Api::kCompletions,
      R"({"model":"m","prompt":"w1","messages":[{"role":"user","content":"w2"}]})", kTokenizer);
  ASSERT_TRUE(served);
  EXPECT_EQ(served->prompt, std::vector<TokenId>{1});
}

TEST(ParseTokenize, ChatGivesWhatServingUses) {
  const std::string body = R"({"model":"m","messages":[{"role":"system","content":"a b"},)"
                           R"({"role":"user","content":null}]})";
  const auto served = ParseGenerate(Api::kChat, body, kTokenizer);
  const auto tokens = ParseTokenize(body, kTokenizer);
  ASSERT_TRUE(served.has_value() && tokens.has_value());
  EXPECT_EQ(served->prompt, *tokens);
}

TEST(ParseDetokenize, NeedsIds) {
  const auto tokens = ParseDetokenize(R"({"tokens":[1,4294967295]})");
  ASSERT_TRUE(tokens.has_value());
  EXPECT_THAT(*tokens, ElementsAre(1u, 4'294'967'295u));
  EXPECT_FALSE(ParseDetokenize(R"({"tokens":[-1]})").has_value());
  EXPECT_FALSE(ParseDetokenize(R"({"tokens":[4294967296]})").has_value());
  EXPECT_FALSE(ParseDetokenize(R"({"prompt":"a"})").has_value());
}

TEST(AnswerWriter, StreamsACompletion) {
  AnswerWriter writer(Api::kCompletions, "cmpl-1", "m\"x", 9);
  std::string out;
  const std::vector<TokenId> tokens = {1, 2};
  writer.AppendTokens(out, tokens, true);
  const std::string head =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":9,"model":"m\"x","choices":[)";
  EXPECT_EQ(out, head + R"({"index":0,"text":" w1","logprobs":null,"finish_reason":null}]})" +
                     "\n\n" + head +
                     R"({"index":0,"text":" w2","logprobs":null,"finish_reason":"length"}]})" +
                     "\n\n");
  out.clear();
  writer.AppendUsage(out, {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 2});
  EXPECT_EQ(out, head +
                     R"(],"usage":{"prompt_tokens":10,"total_tokens":12,"completion_tokens":2,)" +
                     R"("prompt_tokens_details":{"cached_tokens":4}}})" + "\n\n");
}

TEST(AnswerWriter, StreamsAChatWithTheRoleOnce) {
  AnswerWriter writer(Api::kChat, "c", "m", 9);
  std::string out;
  const std::vector<TokenId> tokens = {1, 2};
  writer.AppendTokens(out, tokens, false);
  EXPECT_THAT(out, HasSubstr(R"("delta":{"role":"assistant","content":" w1"})"));
  EXPECT_THAT(out, HasSubstr(R"("delta":{"content":" w2"})"));
  EXPECT_THAT(out, HasSubstr(R"("object":"chat.completion.chunk")"));
}

TEST(AnswerWriter, M14_NothingGeneratedIsOneEventThatFinishes) {
  AnswerWriter writer(Api::kCompletions, "c", "m", 9);
  std::string out;
  writer.AppendTokens(out, {}, true);
  EXPECT_THAT(out, HasSubstr(R"("text":"","logprobs":null,"finish_reason":"length")"));
}

TEST(AnswerWriter, WholeAnswersCarryTheirUsage) {
  const GenerateUsage usage{.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 2};
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    const AnswerWriter writer(api, "c", "m", 9);
    const std::string whole = writer.Whole(" w1 w2", usage);
    const auto read = openai::UsageOfAnswer(whole);
    ASSERT_TRUE(read.has_value()) << whole;
    EXPECT_EQ(read->prompt_tokens, 10u);
    EXPECT_EQ(read->cached_tokens, 4u);
    EXPECT_EQ(read->completion_tokens, 2u);
    EXPECT_THAT(whole,
                HasSubstr(api == Api::kChat ? R"("message":{"role":"assistant","content":" w1 w2"})"
                                            : R"("text":" w1 w2")"));
  }
}

}  // namespace
}  // namespace kvr::sim
