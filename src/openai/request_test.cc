#include "openai/request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Request Parse(Api api, const std::string& body) {
  auto request = ParseRequest(api, body, {});
  if (!request) {
    ADD_FAILURE() << body << ": " << request.error().message;
    return {};
  }
  return *std::move(request);
}

TEST(ParseRequest, PromptForms) {
  struct Row {
    const char* name;
    const char* prompt;
    PromptForm form;
    std::size_t prompts;
    bool empty;
    std::vector<TokenId> tokens;
  };
  const Row rows[] = {
      {"string", R"("hello")", PromptForm::kText, 1, false, {}},
      {"empty string", R"("")", PromptForm::kText, 1, true, {}},
      {"one string in an array", R"(["hello"])", PromptForm::kText, 1, false, {}},
      {"strings", R"(["", "b"])", PromptForm::kText, 2, true, {}},
      {"ids", "[1, 2, 4294967295]", PromptForm::kTokens, 1, false, {1, 2, 4294967295}},
      {"one array of ids", "[[7,8]]", PromptForm::kTokens, 1, false, {7, 8}},
      {"arrays of ids", "[[7,8],[9]]", PromptForm::kTokens, 2, false, {7, 8}},
      {"array with an empty array", "[[]]", PromptForm::kTokens, 1, true, {}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Request request =
        Parse(Api::kCompletions, std::string(R"({"model":"m","prompt":)") + row.prompt + "}");
    EXPECT_EQ(request.form, row.form);
    EXPECT_EQ(request.prompts, row.prompts);
    EXPECT_EQ(request.empty_prompt, row.empty);
    EXPECT_EQ(request.tokens, row.tokens);
  }
}

TEST(ParseRequest, ReadsEveryFieldThatRoutingNeeds) {
  const Request request =
      Parse(Api::kCompletions,
            R"({"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true},)"
            R"("max_tokens":7,"n":2,"cache_salt":"s",)"
            R"("truncate_prompt_tokens":5,"temperature":0.5,"unknown":{"a":[1,2,{"b":null}]}})");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.max_tokens, 7u);
  EXPECT_EQ(request.choices, 2u);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.truncate_prompt_tokens, 5u);
}

// A setting of vLLM for one request, which would make blocks immortal in every index. Whatever else
// is in its place is the engine's own business.
TEST(ParseRequest, RefusesTheReportModeThatRepeatsStores) {
  const auto error_of = [](std::string_view more) {
    const std::string body = R"({"model":"m","prompt":[1],)" + std::string(more) + "}";
    const auto parsed = ParseRequest(Api::kCompletions, body, {});
    return parsed ? std::string() : parsed.error().param;
  };
  EXPECT_EQ(error_of(R"("vllm_xargs":{"kv_cache_report_mode":"full"})"), "vllm_xargs");
  EXPECT_EQ(error_of(R"("extra_args":{"a":1,"kv_cache_report_mode":"full"})"), "extra_args");
  EXPECT_EQ(error_of(R"("vllm_xargs":{"kv_cache_report_mode":null,"kv_cache\u005freport_mode":1})"),
            "vllm_xargs");
  EXPECT_EQ(error_of(R"("vllm_xargs":{"kv_cache_report_mode":null})"), "");
  EXPECT_EQ(error_of(R"("vllm_xargs":{"a":"kv_cache_report_mode"},"extra_args":7)"), "");
}

TEST(ParseRequest, NullIsAbsent) {
  const Request request =
      Parse(Api::kCompletions,
            R"({"model":"m","prompt":[1],"stream":null,"max_tokens":null,"n":null,"user":null})");
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.max_tokens);
  EXPECT_EQ(request.choices, 1u);
}

TEST(ParseRequest, MaxCompletionTokensWins) {
  const Request request = Parse(
      Api::kCompletions, R"({"model":"m","prompt":[1],"max_tokens":5,"max_completion_tokens":9})");
  EXPECT_EQ(request.max_tokens, 9u);
}

TEST(ParseRequest, TruncationKeepsTheEnd) {
  const Request request =
      Parse(Api::kCompletions, R"({"model":"m","prompt":[1,2,3,4],"truncate_prompt_tokens":3})");
  EXPECT_THAT(request.tokens, ElementsAre(2u, 3u, 4u));
  const Request model_length =
      Parse(Api::kCompletions, R"({"model":"m","prompt":[1,2],"truncate_prompt_tokens":-1})");
  EXPECT_THAT(model_length.tokens, ElementsAre(1u, 2u));
}

TEST(ParseRequest, Chat) {
  struct Row {
    const char* name;
    const char* fields;
    PromptForm form;
    bool multimodal;
    bool template_extras;
  };
  const Row rows[] = {
      {"text", R"("messages":[{"role":"user","content":"hi"}])", PromptForm::kMessages, false,
       false},
      {"text parts", R"("messages":[{"role":"user","content":[{"type":"text","text":"a"}]}])",
       PromptForm::kMessages, false, false},
      {"no content", R"("messages":[{"role":"assistant","tool_calls":[]}])", PromptForm::kMessages,
       false, false},
      {"image",
       R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
       R"({"type":"image_url","image_url":{"url":"x"}}]}])",
       PromptForm::kMessages, true, false},
      {"part without a type", R"("messages":[{"role":"user","content":[{"image":"x"}]}])",
       PromptForm::kMessages, true, false},
      {"reasoning effort",
       R"("messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low")",
       PromptForm::kMessages, false, true},
      {"ready ids", R"("messages":[{"role":"user","content":"hi"}],"input_ids":[1,2])",
       PromptForm::kTokens, false, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Request request = Parse(Api::kChat, std::string(R"({"model":"m",)") + row.fields + "}");
    EXPECT_EQ(request.form, row.form);
    EXPECT_EQ(request.multimodal, row.multimodal);
    EXPECT_EQ(request.template_extras, row.template_extras);
  }
}

TEST(ParseRequest, EmbeddingsHaveNoTokens) {
  const Request request = Parse(Api::kCompletions, R"({"model":"m","prompt_embeds":"AAAA"})");
  EXPECT_EQ(request.form, PromptForm::kEmbeddings);
  EXPECT_THAT(request.tokens, IsEmpty());
}

// Rows of the HTTP table: 1 and 2 broken bodies, 4 missing, 5 mistyped, 7 twice, 11 nesting,
// 12 UTF-8, 13 literals.
TEST(ParseRequest, RefusesWithTheFieldAtFault) {
  struct Row {
    const char* name;
    Api api;
    std::string body;
    const char* param;
    const char* code;
  };
  const std::string deep = std::string(R"({"model":"m","prompt":"x","a":)") +
                           std::string(1000, '[') + std::string(1000, ']') + "}";
  const Row rows[] = {
      {"1 open brace", Api::kCompletions, "{", "", "bad_json"},
      {"2 empty", Api::kCompletions, "", "", "bad_json"},
      {"array", Api::kCompletions, "[]", "", "bad_json"},
      {"string", Api::kCompletions, R"("x")", "", "bad_json"},
      {"trailing comma", Api::kCompletions, R"({"model":"m","prompt":"x",})", "", "bad_json"},
      {"two values", Api::kCompletions, R"({"model":"m","prompt":"x"}{})", "", "bad_json"},
      {"error in a field nobody reads", Api::kCompletions,
       R"({"model":"m","prompt":"x","a":[1,01]})", "", "bad_json"},
      {"11 nested 1000 deep", Api::kCompletions, deep, "", "bad_json"},
      {"12 bad UTF-8", Api::kCompletions, "{\"model\":\"m\",\"prompt\":\"\xFF\"}", "", "bad_json"},
      {"13 NaN", Api::kCompletions, R"({"model":"m","prompt":"x","a":NaN})", "", "bad_json"},
      {"13 Infinity", Api::kCompletions, R"({"model":"m","prompt":"x","a":Infinity})", "",
       "bad_json"},
      {"4 no model", Api::kCompletions, R"({"prompt":"x"})", "model", "missing_field"},
      {"4 no prompt", Api::kCompletions, R"({"model":"m"})", "prompt", "missing_field"},
      {"4 no messages", Api::kChat, R"({"model":"m","prompt":"x"})", "messages", "missing_field"},
      {"empty model", Api::kCompletions, R"({"model":"","prompt":"x"})", "model", "invalid_value"},
      {"5 model a number", Api::kCompletions, R"({"model":3,"prompt":"x"})", "model",
       "invalid_value"},
      {"5 stream a string", Api::kCompletions, R"({"model":"m","prompt":"x","stream":"true"})",
       "stream", "invalid_value"},
      {"5 stream_options a number", Api::kCompletions,
       R"({"model":"m","prompt":"x","stream_options":1})", "stream_options", "invalid_value"},
      {"5 max_tokens a string", Api::kCompletions, R"({"model":"m","prompt":"x","max_tokens":"1"})",
       "max_tokens", "invalid_value"},
      {"max_tokens negative", Api::kCompletions, R"({"model":"m","prompt":"x","max_tokens":-1})",
       "max_tokens", "invalid_value"},
      {"max_tokens a fraction", Api::kCompletions, R"({"model":"m","prompt":"x","max_tokens":1.5})",
       "max_tokens", "invalid_value"},
      {"n zero", Api::kCompletions, R"({"model":"m","prompt":"x","n":0})", "n", "invalid_value"},
      {"prompt a number", Api::kCompletions, R"({"model":"m","prompt":3})", "prompt",
       "invalid_value"},
      {"prompt an empty array", Api::kCompletions, R"({"model":"m","prompt":[]})", "prompt",
       "invalid_value"},
      {"prompt mixed", Api::kCompletions, R"({"model":"m","prompt":[1,"a"]})", "prompt",
       "invalid_value"},
      {"prompt mixed the other way", Api::kCompletions, R"({"model":"m","prompt":["a",1]})",
       "prompt", "invalid_value"},
      {"prompt arrays mixed", Api::kCompletions, R"({"model":"m","prompt":[[1],2]})", "prompt",
       "invalid_value"},
      {"id negative", Api::kCompletions, R"({"model":"m","prompt":[-1]})", "prompt",
       "invalid_value"},
      {"id of 33 bits", Api::kCompletions, R"({"model":"m","prompt":[4294967296]})", "prompt",
       "invalid_value"},
      {"id a fraction", Api::kCompletions, R"({"model":"m","prompt":[1.0]})", "prompt",
       "invalid_value"},
      {"prompt nested thrice", Api::kCompletions, R"({"model":"m","prompt":[[[1]]]})", "prompt",
       "invalid_value"},
      {"messages empty", Api::kChat, R"({"model":"m","messages":[]})", "messages", "invalid_value"},
      {"messages an object", Api::kChat, R"({"model":"m","messages":{}})", "messages",
       "invalid_value"},
      {"messages of strings", Api::kChat, R"({"model":"m","messages":["x"]})", "messages",
       "invalid_value"},
      {"input_ids of strings", Api::kChat,
       R"({"model":"m","messages":[{"role":"user","content":"x"}],"input_ids":["x"]})", "input_ids",
       "invalid_value"},
      {"7 model twice", Api::kCompletions, R"({"model":"m","prompt":"x","model":"other"})", "model",
       "invalid_value"},
      {"7 prompt twice, once escaped", Api::kCompletions,
       R"({"model":"m","prompt":[1],"pro\u006dpt":[2]})", "prompt", "invalid_value"},
  };
  for (const Row& row : rows) {
    const auto request = ParseRequest(row.api, row.body, {});
    ASSERT_FALSE(request) << row.name;
    EXPECT_EQ(request.error().status, 400) << row.name;
    EXPECT_EQ(request.error().type, "invalid_request_error") << row.name;
    EXPECT_EQ(request.error().param, row.param) << row.name;
    EXPECT_EQ(request.error().code, row.code) << row.name << ": " << request.error().message;
  }
}

TEST(ParseRequest, StatesItsLimits) {
  RequestLimits limits;
  limits.tokens_max = 3;
  limits.prompts_max = 2;
  limits.messages_max = 1;
  limits.name_bytes_max = 4;
  struct Row {
    Api api;
    const char* body;
    const char* says;
  };
  const Row rows[] = {
      {Api::kCompletions, R"({"model":"m","prompt":[1,2,3,4]})", "more than 3 token ids"},
      {Api::kCompletions, R"({"model":"m","prompt":[[1,2],[3,4]]})", "more than 3 token ids"},
      {Api::kCompletions, R"({"model":"m","prompt":["a","b","c"]})", "more than 2 prompts"},
      {Api::kChat, R"({"model":"m","messages":[{},{}]})", "more than 1 messages"},
      {Api::kCompletions, R"({"model":"mmmmm","prompt":"x"})", "longer than 4 bytes"},
  };
  for (const Row& row : rows) {
    const auto request = ParseRequest(row.api, row.body, limits);
    ASSERT_FALSE(request) << row.body;
    EXPECT_THAT(request.error().message, HasSubstr(row.says));
  }
  EXPECT_TRUE(ParseRequest(Api::kCompletions, R"({"model":"mmmm","prompt":[1,2,3]})", limits));
}

TEST(ErrorBody, HasTheShapeOfOpenAi) {
  EXPECT_EQ(ErrorBody(BadField("prompt", "`prompt` is \"odd\"")),
            R"({"error":{"message":"`prompt` is \"odd\"","type":"invalid_request_error",)"
            R"("param":"prompt","code":"invalid_value"}})");
  EXPECT_EQ(ErrorBody(FromError({ErrorCode::kUnavailable, "nobody is there"})),
            R"({"error":{"message":"nobody is there","type":"server_error","param":null,)"
            R"("code":"unavailable"}})");
  EXPECT_EQ(FromError({ErrorCode::kOverloaded, ""}).type, "rate_limit_error");
  EXPECT_EQ(ErrorBody(FromStatus(405, "method_not_allowed", "POST only")),
            R"({"error":{"message":"POST only","type":"invalid_request_error","param":null,)"
            R"("code":"method_not_allowed"}})");
}

}  // namespace
}  // namespace kvr::openai
