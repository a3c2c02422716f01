#include "tokens/token_provider.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/registry.h"
#include "net/http_server.h"
#include "net/io_runtime.h"

namespace kvr::tokens {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// An engine that answers POST /tokenize with one fixed answer.
class FakeEngine {
 public:
  FakeEngine(net::IoRuntime& runtime, metrics::Registry& registry, int status, std::string answer,
             bool silent = false)
      : server_(runtime, registry, {}) {
    server_.Route("POST", "/tokenize", [this, status, answer, silent](net::HttpExchange& exchange) {
      return Answer(exchange, status, answer, silent);
    });
    EXPECT_TRUE(server_.Start());
  }
  ~FakeEngine() { server_.Stop(Millis{0}); }

  [[nodiscard]] net::Url url() const { return {"127.0.0.1", server_.port(), ""}; }
  [[nodiscard]] int asked() const { return asked_; }
  [[nodiscard]] const std::string& body() const { return body_; }

 private:
  net::Task<void> Answer(net::HttpExchange& exchange, int status, std::string answer, bool silent) {
    body_ = exchange.request().body;
    ++asked_;
    if (silent) {
      const bool slept = co_await net::Sleep(std::chrono::seconds(30));
      if (!slept) co_return;
    }
    net::HttpResponse response = net::JsonResponse(status, answer);
    const auto sent = co_await exchange.Respond(std::move(response));
    static_cast<void>(sent);
  }

  std::atomic<int> asked_{0};
  std::string body_;  // written before asked_ grows
  net::HttpServer server_;
};

class TokenProviderTest : public ::testing::Test {
 protected:
  TokenProvider& Make(const TokenProvider::Options& options) {
    provider_ = std::make_unique<TokenProvider>(client_, clock_, options);
    return *provider_;
  }

  // Keeps the request that the ids may borrow from.
  Tokens Get(openai::Api api, const std::string& body, std::vector<net::Url> engines) {
    auto request = openai::ParseRequest(api, body, {});
    EXPECT_TRUE(request) << body;
    request_ = *std::move(request);
    Tokens tokens;
    runtime_.RunBlocking([&] { return Run(body, engines, tokens); });
    return tokens;
  }

  static net::Url NobodyThere() { return {"127.0.0.1", 1, ""}; }

  net::Task<void> Run(const std::string& body, const std::vector<net::Url>& engines, Tokens& out) {
    out = co_await provider_->Get(request_, body, engines);
  }

  static constexpr const char* kText = R"({"model":"m","prompt":"hello"})";
  static constexpr const char* kAnswer = R"({"count":3,"max_model_len":100,"tokens":[5,6,7]})";

  SystemClock clock_;
  metrics::Registry registry_;
  net::IoRuntime runtime_{net::IoRuntime::Options{}};
  net::HttpClient client_{runtime_, {}};
  openai::Request request_;
  std::unique_ptr<TokenProvider> provider_;
};

TEST_F(TokenProviderTest, IdsOfTheBodyNeedNobody) {
  Make({});
  const Tokens tokens = Get(openai::Api::kCompletions, R"({"model":"m","prompt":[1,2,3]})", {});
  EXPECT_THAT(tokens.ids, ElementsAre(1u, 2u, 3u));
  EXPECT_EQ(tokens.source, TokenSource::kBody);
}

TEST_F(TokenProviderTest, WhatHasNoTokensSaysWhy) {
  Make({});
  struct Row {
    openai::Api api;
    const char* body;
    NoTokens why;
  };
  const Row rows[] = {
      {openai::Api::kCompletions, R"({"model":"m","prompt":""})", NoTokens::kEmptyPrompt},
      {openai::Api::kCompletions, R"({"model":"m","prompt_embeds":"x"})", NoTokens::kEmbeddings},
      {openai::Api::kChat,
       R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       NoTokens::kMultimodal},
      {openai::Api::kCompletions, kText, NoTokens::kNoEngine},
  };
  for (const Row& row : rows) {
    const Tokens tokens = Get(row.api, row.body, {});
    EXPECT_THAT(tokens.ids, IsEmpty()) << row.body;
    EXPECT_EQ(tokens.source, TokenSource::kNone) << row.body;
    EXPECT_EQ(tokens.missing, row.why) << row.body;
  }
  Make({.ask_engines = false});
  EXPECT_EQ(Get(openai::Api::kCompletions, kText, {}).missing, NoTokens::kSwitchedOff);
}

TEST_F(TokenProviderTest, AsksOnceAndRemembers) {
  FakeEngine engine(runtime_, registry_, 200, kAnswer);
  Make({});
  const Tokens first = Get(openai::Api::kCompletions, kText, {engine.url()});
  EXPECT_THAT(first.ids, ElementsAre(5u, 6u, 7u));
  EXPECT_EQ(first.source, TokenSource::kEngine);
  EXPECT_EQ(engine.body(), kText);
  const Tokens again =
      Get(openai::Api::kCompletions,
          R"({"model":"m","prompt":"hello","max_tokens":9,"stream":true})", {engine.url()});
  EXPECT_THAT(again.ids, ElementsAre(5u, 6u, 7u));
  EXPECT_EQ(again.source, TokenSource::kCache);
  EXPECT_EQ(engine.asked(), 1);
  const Tokens truncated =
      Get(openai::Api::kCompletions, R"({"model":"m","prompt":"hello","truncate_prompt_tokens":2})",
          {engine.url()});
  EXPECT_THAT(truncated.ids, ElementsAre(6u, 7u));
}

TEST_F(TokenProviderTest, AnotherModelIsAnotherInput) {
  FakeEngine engine(runtime_, registry_, 200, kAnswer);
  Make({});
  Get(openai::Api::kCompletions, kText, {engine.url()});
  Get(openai::Api::kCompletions, R"({"model":"other","prompt":"hello"})", {engine.url()});
  EXPECT_EQ(engine.asked(), 2);
}

TEST_F(TokenProviderTest, FailuresHaveNames) {
  struct Row {
    const char* name;
    int status;
    const char* answer;
    NoTokens why;
  };
  const Row rows[] = {
      {"no JSON", 200, "oops", NoTokens::kBadAnswer},
      {"no ids", 200, R"({"tokens":["a"]})", NoTokens::kBadAnswer},
      {"not found", 404, "{}", NoTokens::kUnsupported},
      {"method", 405, "{}", NoTokens::kUnsupported},
      {"bad request", 400, "{}", NoTokens::kRefused},
      {"engine error", 500, "{}", NoTokens::kRefused},
      {"ids empty", 200, R"({"tokens":[]})", NoTokens::kEmptyPrompt},
  };
  for (const Row& row : rows) {
    FakeEngine engine(runtime_, registry_, row.status, row.answer);
    Make({.engines_asked_max = 1});
    const Tokens tokens = Get(openai::Api::kCompletions, kText, {engine.url()});
    EXPECT_EQ(tokens.missing, row.why) << row.name;
    EXPECT_THAT(tokens.ids, IsEmpty()) << row.name;
  }
}

TEST_F(TokenProviderTest, ASilentEngineCostsTheDeadlineOnce) {
  FakeEngine engine(runtime_, registry_, 200, kAnswer, true);
  Make({.deadline = Millis{300}, .failed_pause = Millis{60'000}});
  EXPECT_EQ(Get(openai::Api::kCompletions, kText, {engine.url()}).missing, NoTokens::kTimeout);
  EXPECT_EQ(engine.asked(), 1);
  // It is not asked again at once.
  EXPECT_EQ(Get(openai::Api::kCompletions, kText, {engine.url()}).missing,
            NoTokens::kTokenizerUnavailable);
  EXPECT_EQ(engine.asked(), 1);
}

TEST_F(TokenProviderTest, AnotherEngineIsAskedWhenOneIsAway) {
  FakeEngine engine(runtime_, registry_, 200, kAnswer);
  Make({.deadline = Millis{10'000}, .cache = {.bytes_max = 0}});
  for (int i = 0; i < 4; ++i) {
    const Tokens tokens = Get(openai::Api::kCompletions, kText, {NobodyThere(), engine.url()});
    EXPECT_THAT(tokens.ids, ElementsAre(5u, 6u, 7u));
  }
  EXPECT_EQ(engine.asked(), 4);
  Make({.deadline = Millis{10'000}});
  EXPECT_EQ(Get(openai::Api::kCompletions, kText, {NobodyThere()}).missing, NoTokens::kUnreachable);
}

TEST_F(TokenProviderTest, AChatIsAskedWithItsTools) {
  FakeEngine engine(runtime_, registry_, 200, kAnswer);
  Make({});
  const char* body =
      R"({"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}],)"
      R"("reasoning_effort":"low","temperature":1})";
  const Tokens tokens = Get(openai::Api::kChat, body, {engine.url()});
  EXPECT_EQ(engine.body(), R"({"model":"m","messages":[{"role":"user","content":"x"}],)"
                           R"("tools":[{"type":"function"}],"reasoning_effort":"low"})");
  EXPECT_TRUE(tokens.approximate);
}

}  // namespace
}  // namespace kvr::tokens
