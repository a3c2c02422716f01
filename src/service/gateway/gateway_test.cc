#include "service/gateway/gateway.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "service/gateway/gateway_test_util.h"

namespace kvr::service {
namespace {

using net::testing::Eventually;
using net::testing::RawClient;
using testing::Answer;
using testing::ChatStream;
using ::testing::EndsWith;
using testing::ErrorAnswer;
using testing::FakeEngine;
using testing::GatewaySetup;
using testing::GatewayUnderTest;
using ::testing::HasSubstr;
using testing::PlainAnswer;
using testing::Post;
using testing::ReadAnswer;
using testing::Script;
using ::testing::StartsWith;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kIds = R"({"model":"m","prompt":[1,2,3,4,5,6,7,8],"stream":true})";
constexpr const char* kMessages =
    R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true})";

std::string Joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const auto& piece : pieces)
    all += piece;
  return all;
}

std::size_t CountOf(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

std::string Requests(std::string_view route, std::string_view outcome) {
  return "kvr_gateway_requests_total{route=\"" + std::string(route) + "\",outcome=\"" +
         std::string(outcome) + "\"}";
}

Answer Get(const GatewayUnderTest& gateway, std::string_view path) {
  RawClient client(gateway.port());
  EXPECT_TRUE(client.Send("GET " + std::string(path) +
                          " HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"));
  return ReadAnswer(client);
}

// An address at which nobody listens.
std::string DeadUrl() {
  net::testing::RawServer server;
  return "http://127.0.0.1:" + std::to_string(server.port());
}

TEST(Gateway, RelaysAStreamByteForByte) {
  FakeEngine engine;
  Script script = ChatStream(5);
  script.headers = {{"X-Engine", "yes"}};
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(7, engine.url());
  // White space, unusual numbers and unknown fields reach the engine as they are.
  const std::string body =
      "{ \"model\" : \"m\",\"prompt\":[1,2,3,4,5,6,7,8] ,\"stream\":true,\"x\":1.50e1 }";
  const Answer answer = gateway.Send(kCompletions, body, "X-Custom: a\r\nTE: trailers\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.body, Joined(script.pieces));
  EXPECT_EQ(answer.Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer.Header("X-Engine"), "yes");
  EXPECT_EQ(answer.Header("x-kvroute-worker"), "7");
  EXPECT_EQ(answer.Header("x-kvroute-dp-rank"), "0");
  EXPECT_EQ(answer.Header("x-kvroute-predicted-cached-tokens"), "0");
  EXPECT_EQ(answer.Header("x-kvroute-policy"), "kv");
  EXPECT_EQ(answer.Header("x-kvroute-cache-view"), "none");  // the rank has no event source
  EXPECT_EQ(answer.Header("x-kvroute-tokens"), "body");
  EXPECT_EQ(answer.Header("x-kvroute-attempts"), "1");
  EXPECT_THAT(answer.Header("X-Request-Id"), StartsWith("kvr-"));

  const net::HttpRequest seen = engine.last();
  EXPECT_EQ(seen.body, body);
  EXPECT_EQ(seen.target, kCompletions);
  EXPECT_EQ(seen.headers.Find("X-Custom"), "a");
  EXPECT_EQ(seen.headers.Find("Content-Type"), "application/json");
  EXPECT_FALSE(seen.headers.Find("TE"));
  EXPECT_FALSE(seen.headers.Find("X-data-parallel-rank"));
  EXPECT_EQ(seen.headers.Find("X-Request-Id"), answer.Header("X-Request-Id"));

  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series(Requests("completions", "ok")), 1);
  EXPECT_EQ(gateway.Series("kvr_gateway_output_tokens_total"), 5);
}

TEST(Gateway, PassesARequestIdOn) {
  FakeEngine engine;
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  const Answer answer = gateway.Send(kCompletions, kIds, "X-Request-Id: mine\r\n");
  EXPECT_EQ(answer.Header("X-Request-Id"), "mine");
  EXPECT_EQ(engine.last().headers.Find("X-Request-Id"), "mine");
}

TEST(Gateway, RelaysAPlainAnswer) {
  FakeEngine engine;
  engine.Play(PlainAnswer(8, 4));
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  const Answer answer = gateway.Send(kCompletions, R"({"model":"m","prompt":[1,2]})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.body, PlainAnswer(8, 4).pieces[0]);
  EXPECT_EQ(answer.Header("Content-Type"), "application/json");
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series("kvr_gateway_actual_cached_tokens_total"), 4);
  EXPECT_EQ(gateway.Series("kvr_gateway_prompt_tokens_total"), 8);
  EXPECT_EQ(gateway.Series("kvr_gateway_output_tokens_total"), 1);
}

TEST(Gateway, NoTokenWaitsForTheNextOne) {
  FakeEngine engine;
  Script script = ChatStream(3);
  script.gated = true;
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port());
  ASSERT_TRUE(client.Send(Post(kChat, kMessages)));
  for (std::size_t i = 0; i < script.pieces.size(); ++i) {
    engine.Release(i + 1);
    EXPECT_THAT(client.ReadUntil("\n\n"), EndsWith(script.pieces[i]));
  }
}

TEST(Gateway, RefusesWithOpenAiErrors) {
  FakeEngine engine;
  GatewaySetup setup;
  setup.gateway.body_bytes_max = 1'000;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  struct Row {
    const char* name;
    std::string request;
    int status;
    const char* code;
  };
  const std::string deep = std::string(R"({"model":"m","prompt":"x","a":)") +
                           std::string(200, '[') + std::string(200, ']') + "}";
  const Row rows[] = {
      {"1 open brace", Post(kChat, "{"), 400, "bad_json"},
      {"2 empty", Post(kChat, ""), 400, "bad_json"},
      {"4 no model", Post(kChat, R"({"messages":[{}]})"), 400, "missing_field"},
      {"5 mistyped", Post(kCompletions, R"({"model":"m","prompt":{}})"), 400, "invalid_value"},
      {"7 twice", Post(kCompletions, R"({"model":"m","model":"m","prompt":[1]})"), 400,
       "invalid_value"},
      {"8 too large", Post(kCompletions, std::string(1'001, ' ')), 413, nullptr},
      {"9 unknown route", Post("/v1/nothing", "{}"), 404, nullptr},
      {"10 wrong method", "GET /v1/completions HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n",
       405, nullptr},
      {"11 nested", Post(kCompletions, deep), 400, "bad_json"},
      {"12 bad UTF-8", Post(kCompletions, "{\"model\":\"m\",\"prompt\":\"\xC3\"}"), 400,
       "bad_json"},
      {"13 NaN", Post(kCompletions, R"({"model":"m","prompt":[1],"t":NaN})"), 400, "bad_json"},
      {"unknown model", Post(kCompletions, R"({"model":"x","prompt":[1]})"), 404,
       "model_not_found"},
      {"unknown group", Post(kCompletions, kIds, "x-kvroute-routing-group: blue\r\n"), 404,
       "model_not_found"},
      {"3 content type",
       "POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Type: text/plain\r\nConnection: "
       "close\r\nContent-Length: 2\r\n\r\n{}",
       415, "unsupported_media_type"},
  };
  for (const Row& row : rows) {
    RawClient client(gateway.port());
    ASSERT_TRUE(client.Send(row.request)) << row.name;
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status, row.status) << row.name;
    EXPECT_THAT(answer.body, StartsWith(R"({"error":{"message":")")) << row.name;
    EXPECT_THAT(answer.body, HasSubstr(R"("type":"invalid_request_error")")) << row.name;
    if (row.code != nullptr) {
      EXPECT_THAT(answer.body, HasSubstr(std::string("\"code\":\"") + row.code + "\"")) << row.name;
    }
  }
  EXPECT_THAT(gateway.Send(kCompletions, kIds, "x-kvroute-routing-group: blue\r\n").body,
              HasSubstr("the routing group `blue`"));
  EXPECT_EQ(engine.received(), 0u);
  EXPECT_TRUE(gateway.IsIdle());
  EXPECT_EQ(gateway.Series(Requests("chat", "refused")), 3);
  EXPECT_EQ(gateway.Series(Requests("completions", "refused")), 10);
}

std::string ServerRejected(std::string_view reason) {
  return "kvr_net_http_rejected_total{server=\"gateway\",reason=\"" + std::string(reason) + "\"}";
}
constexpr const char* kBodyBytes = "kvr_net_http_body_bytes{server=\"gateway\"}";

TEST(Gateway, AClientThatSendsItsBodyTooSlowly) {
  FakeEngine engine;
  GatewaySetup setup;
  setup.server.body_timeout = Millis{50};
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port());
  const std::string whole = Post(kChat, kMessages);
  ASSERT_TRUE(client.Send(whole.substr(0, whole.size() - 5)));
  const Answer answer = ReadAnswer(client);
  EXPECT_EQ(answer.status, 408);
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, StartsWith(R"({"error":{"message":"request body not complete)"));
  EXPECT_THAT(answer.body, HasSubstr(R"("type":"invalid_request_error")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("code":"timeout")"));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gateway.Series(kBodyBytes) == 0; }));
  EXPECT_TRUE(gateway.IsIdle());
  EXPECT_EQ(engine.received(), 0u);
  EXPECT_EQ(gateway.Series(ServerRejected("body_timeout")), 1);
  EXPECT_EQ(gateway.Series(Requests("chat", "refused")), 1);
  for (const char* outcome : {"ok", "client_gone"})
    EXPECT_EQ(gateway.Series(Requests("chat", outcome)), 0) << outcome;
}

TEST(Gateway, AClientThatDoesNotReadItsStream) {
  FakeEngine engine;
  Script script;  // more than all socket buffers on the way can take
  script.pieces.assign(1'024, "data: {\"pad\":\"" + std::string(64 << 10, 'x') + "\"}\n\n");
  engine.Play(script);
  GatewaySetup setup;
  setup.server.write_timeout = Millis{50};
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port(), 64 << 10);
  ASSERT_TRUE(client.Send(Post(kChat, kMessages)));
  EXPECT_TRUE(Eventually([&] { return gateway.Series(ServerRejected("write_timeout")) == 1; }));
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));      // the booking is free
  EXPECT_TRUE(Eventually([&] { return engine.active() == 0; }));  // the engine is told
  EXPECT_EQ(engine.received(), 1u);
  EXPECT_EQ(gateway.Series(Requests("chat", "client_gone")), 1);
  client.ReadToEnd();
  EXPECT_TRUE(client.was_reset());
}

TEST(Gateway, AStreamHoldsNoPrompt) {
  FakeEngine engine;
  Script script = ChatStream(2);
  script.gated = true;
  engine.Play(script);
  GatewaySetup setup;
  setup.server.body_bytes_max = setup.gateway.body_bytes_max = 2'000;
  setup.server.bodies_bytes_max = 2'000;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  const std::string padded = std::string(kMessages) + std::string(1'500, ' ');
  RawClient first(gateway.port());
  ASSERT_TRUE(first.Send(Post(kChat, padded)));
  engine.Release(1);
  first.ReadUntil("t0");
  EXPECT_EQ(gateway.Series(kBodyBytes), 0);
  // Until its head is there the second holds its body; a third finds no room for one.
  Script silent;
  silent.answers = false;
  silent.end = Script::End::kHang;
  engine.Play(silent);
  RawClient second(gateway.port());
  ASSERT_TRUE(second.Send(Post(kChat, padded)));
  ASSERT_TRUE(Eventually([&] { return engine.received() == 2; }));
  const Answer third = gateway.Send(kChat, padded);
  EXPECT_EQ(third.status, 503);
  EXPECT_EQ(third.Header("Retry-After"), "1");
  EXPECT_THAT(third.body, StartsWith(R"({"error":{"message":"request bodies fill)"));
  EXPECT_THAT(third.body, HasSubstr(R"("type":"server_error")"));
  EXPECT_EQ(gateway.Series(ServerRejected("body_budget")), 1);
  second.Close();
  EXPECT_TRUE(Eventually([&] { return gateway.Series(kBodyBytes) == 0; }));
}

TEST(Gateway, AnEnginesErrorPassesAsItIs) {
  FakeEngine engine;
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  for (const int status : {400, 404, 422, 500}) {
    engine.Play(ErrorAnswer(status));
    const Answer answer = gateway.Send(kCompletions, kIds);
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.body, ErrorAnswer(status).pieces[0]);
    EXPECT_EQ(answer.Header("x-kvroute-worker"), "1");
  }
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series(Requests("completions", "engine_error")), 4);
  EXPECT_EQ(engine.received(), 4u);
}

TEST(Gateway, NobodyThereIs503) {
  GatewayUnderTest gateway;
  gateway.AddWorker(1, DeadUrl());
  gateway.AddWorker(2, DeadUrl());
  const Answer answer = gateway.Send(kCompletions, kIds);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.Header("Retry-After"), "1");
  EXPECT_THAT(answer.body, HasSubstr(R"("code":"unavailable")"));
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series(Requests("completions", "no_engine")), 1);
  EXPECT_EQ(gateway.Series("kvr_gateway_retries_total{reason=\"unreachable\"}"), 1);
}

TEST(Gateway, AnEngineThatIsDownIsAvoidedUntilItAnswers) {
  auto gone = std::make_unique<FakeEngine>();
  const std::string url = gone->url();
  const std::uint16_t port = gone->port();
  gone.reset();
  GatewaySetup setup;
  setup.gateway.engine_watch = {.probe_first = Millis{5}, .probe_max = Millis{5}};
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, url);
  // No request has told it.
  EXPECT_TRUE(Eventually([&] { return gateway.Series("kvr_gateway_engines_down") == 1; }));
  EXPECT_EQ(gateway.Send(kCompletions, kIds).status, 503);
  const Answer ready = Get(gateway, "/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("no engine could be reached when it was last tried"));
  EXPECT_THAT(Get(gateway, "/workers").body, HasSubstr(R"("down":true)"));
  EXPECT_EQ(gateway.Series("kvr_gateway_engines_down"), 1);
  FakeEngine back(port);
  EXPECT_TRUE(Eventually([&] { return Get(gateway, "/ready").status == 200; }));
  EXPECT_THAT(Get(gateway, "/workers").body, HasSubstr(R"("down":false)"));
  EXPECT_EQ(gateway.Series("kvr_gateway_engines_down"), 0);
  EXPECT_EQ(gateway.Send(kCompletions, kIds).status, 200);
}

TEST(Gateway, TriesAnotherEngineBeforeTheFirstByte) {
  struct Row {
    const char* name;
    std::function<void(FakeEngine&)> fail;
    const char* reason;
  };
  const Row rows[] = {
      {"refused", [](FakeEngine& engine) { engine.StopListening(); }, "unreachable"},
      {"503", [](FakeEngine& engine) { engine.Play(ErrorAnswer(503)); }, "status"},
      {"502", [](FakeEngine& engine) { engine.Play(ErrorAnswer(502)); }, "status"},
      {"429", [](FakeEngine& engine) { engine.Play(ErrorAnswer(429)); }, "status"},
      {"500", [](FakeEngine& engine) { engine.Play(ErrorAnswer(500)); }, "status"},
      {"closes after the head",
       [](FakeEngine& engine) {
         Script script;
         script.end = Script::End::kReset;
         engine.Play(script);
       },
       "broke"},
      {"an empty answer", [](FakeEngine& engine) { engine.Play(Script{}); }, "broke"},
      {"closes before the head",
       [](FakeEngine& engine) {
         Script script;
         script.answers = false;
         script.end = Script::End::kReset;
         engine.Play(script);
       },
       "broke"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    FakeEngine bad;
    FakeEngine good;
    row.fail(bad);
    GatewaySetup setup;
    setup.router.policy = sched::PolicyKind::kRoundRobin;
    setup.watches = false;  // else it may be known before the first request
    GatewayUnderTest gateway(setup);
    gateway.AddWorker(1, bad.url());
    gateway.AddWorker(2, good.url());
    std::size_t retried = 0;
    for (int i = 0; i < 4; ++i) {
      const Answer answer = gateway.Send(
          kCompletions, R"({"model":"m","prompt":[1,2,3,4],"stream":true,"cache_salt":"s"})",
          "X-Session: s1\r\n");
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.Header("x-kvroute-worker"), "2");
      EXPECT_EQ(answer.body, Joined(ChatStream(3).pieces));
      if (answer.Header("x-kvroute-attempts") == "2") ++retried;
    }
    EXPECT_GE(retried, 1u);
    EXPECT_EQ(good.received(), 4u);
    EXPECT_EQ(good.last().headers.Find("X-Session"), "s1");
    EXPECT_THAT(good.last().body, HasSubstr("cache_salt"));
    EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
    EXPECT_EQ(
        gateway.Series(std::string("kvr_gateway_retries_total{reason=\"") + row.reason + "\"}"),
        static_cast<double>(retried));
    EXPECT_EQ(gateway.Series(Requests("completions", "ok")), 4);
  }
}

TEST(Gateway, TheLastRefusalPassesWhenNobodyElseIsLeft) {
  FakeEngine a;
  FakeEngine b;
  a.Play(ErrorAnswer(503));
  b.Play(ErrorAnswer(503));
  GatewayUnderTest gateway;
  gateway.AddWorker(1, a.url());
  gateway.AddWorker(2, b.url());
  const Answer answer = gateway.Send(kCompletions, kIds);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, ErrorAnswer(503).pieces[0]);
  EXPECT_EQ(answer.Header("x-kvroute-attempts"), "2");
  EXPECT_EQ(a.received() + b.received(), 2u);
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
}

TEST(Gateway, AttemptsAreBounded) {
  std::vector<std::unique_ptr<FakeEngine>> engines;
  GatewaySetup setup;
  setup.gateway.attempts_max = 3;
  GatewayUnderTest gateway(setup);
  for (std::uint64_t id = 0; id < 6; ++id) {
    engines.push_back(std::make_unique<FakeEngine>());
    engines.back()->Play(ErrorAnswer(503));
    gateway.AddWorker(id, engines.back()->url());
  }
  EXPECT_EQ(gateway.Send(kCompletions, kIds).status, 503);
  std::size_t received = 0;
  for (const auto& engine : engines)
    received += engine->received();
  EXPECT_EQ(received, 3u);
}

TEST(Gateway, ASilentEngineIsNotReplaced) {
  FakeEngine silent;
  FakeEngine other;
  Script script;
  script.answers = false;
  script.end = Script::End::kHang;
  silent.Play(script);
  GatewaySetup setup;
  setup.client.read_timeout = Millis{200};
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, silent.url());
  const Answer answer = gateway.Send(kCompletions, kIds);
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, HasSubstr(R"("code":"timeout")"));
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle() && silent.active() == 0; }));
  EXPECT_EQ(gateway.Series(Requests("completions", "engine_timeout")), 1);
}

// Report 79: exactly one terminal event, and none when the stream had ended.
TEST(Gateway, AnEngineThatBreaksOffItsStream) {
  const Script whole = ChatStream(3);
  const std::string three = whole.pieces[0] + whole.pieces[1] + whole.pieces[2];
  struct Row {
    const char* name;
    std::vector<std::string> pieces;
    Script::End end;
    std::string begins;
    bool terminal;
    const char* outcome;
  };
  const Row rows[] = {
      {"after three chunks", {three}, Script::End::kReset, three, true, "engine_aborted"},
      {"half a line", {three, "data: {\"id\""}, Script::End::kReset, three, true, "engine_aborted"},
      {"half an event",
       {three, "data: {\"id\":\"c\"}\n"},
       Script::End::kReset,
       three + "data: {\"id\":\"c\"}\n\n\n",
       true,
       "engine_aborted"},
      {"well ended in the middle", {three}, Script::End::kWell, three, true, "engine_aborted"},
      {"after its own [DONE]", whole.pieces, Script::End::kReset, Joined(whole.pieces), false,
       "ok"},
      {"after its own error",
       {three, "data: {\"error\":{\"message\":\"boom\"}}\n\n"},
       Script::End::kReset,
       three + "data: {\"error\":{\"message\":\"boom\"}}\n\n",
       false,
       "engine_error"},
      {"a reason to stop but no [DONE]",
       {three, whole.pieces[3]},
       Script::End::kWell,
       three + whole.pieces[3],
       false,
       "ok"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    FakeEngine engine;
    FakeEngine other;
    Script script;
    script.pieces = row.pieces;
    script.end = row.end;
    engine.Play(script);
    other.Play(script);
    GatewayUnderTest gateway;
    gateway.AddWorker(1, engine.url());
    gateway.AddWorker(2, other.url());
    const Answer answer = gateway.Send(kChat, kMessages);
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_THAT(answer.body, StartsWith(row.begins));
    const std::string rest = answer.body.substr(std::min(row.begins.size(), answer.body.size()));
    if (row.terminal) {
      EXPECT_THAT(rest, StartsWith(R"(data: {"error":{"message":")"));
      EXPECT_THAT(rest, EndsWith("\n\ndata: [DONE]\n\n"));
      EXPECT_EQ(CountOf(rest, "data: "), 2u);
    } else {
      EXPECT_EQ(rest, "");
    }
    EXPECT_EQ(engine.received() + other.received(), 1u);  // never a second engine
    EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
    EXPECT_EQ(gateway.Series("kvr_gateway_upstream_aborted_total"), row.terminal ? 1 : 0);
    EXPECT_EQ(gateway.Series(Requests("chat", row.outcome)), 1);
  }
}

// An engine that goes on after its [DONE], or never ends, holds nobody up.
TEST(Gateway, TheStreamEndsAtDone) {
  const Script whole = ChatStream(3);
  for (const Script::End end : {Script::End::kWell, Script::End::kHang}) {
    FakeEngine engine;
    Script script = whole;
    script.pieces.push_back("data: {\"error\":{\"message\":\"late\"}}\n\n");
    script.end = end;
    engine.Play(script);
    GatewayUnderTest gateway;
    gateway.AddWorker(1, engine.url());
    const Answer answer = gateway.Send(kChat, kMessages);
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.body, Joined(whole.pieces));
    EXPECT_TRUE(Eventually([&] { return gateway.IsIdle() && engine.active() == 0; }));
    EXPECT_EQ(gateway.Series(Requests("chat", "ok")), 1);
    EXPECT_EQ(gateway.Series("kvr_gateway_upstream_aborted_total"), 0);
  }
}

TEST(Gateway, AStatusNoAnswerCanHaveIsABadAnswer) {
  for (const int status : {101, 600}) {
    FakeEngine engine;
    engine.Play(ErrorAnswer(status));
    GatewayUnderTest gateway;
    gateway.AddWorker(1, engine.url());
    const Answer answer = gateway.Send(kCompletions, kIds);
    EXPECT_EQ(answer.status, 502);
    EXPECT_THAT(answer.body, HasSubstr(R"("code":"upstream")"));
    EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
    EXPECT_EQ(gateway.Series(Requests("completions", "engine_failed")), 1);
  }
}

// The engine is well; it stays in service, and the next request reaches it.
TEST(Gateway, NoDescriptorsAreNotTheEnginesDoing) {
  SetLogLevel(LogLevel::kOff);
  FakeEngine engine;
  engine.Play(PlainAnswer());
  GatewaySetup setup;
  setup.client.idle_connections_max = 0;  // a kept one would need no descriptor
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port());
  ASSERT_TRUE(Eventually(
      [&] { return gateway.Series("kvr_net_http_connections{server=\"gateway\"}") == 1; }));
  {
    const net::testing::NoDescriptors none;
    ASSERT_TRUE(client.Send(Post(kCompletions, kIds)));
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr(R"("code":"out_of_resources")"));
    EXPECT_NE(answer.Header("Retry-After"), "");
  }
  EXPECT_EQ(engine.received(), 0u);
  EXPECT_EQ(gateway.Series("kvr_gateway_engines_down"), 0);
  EXPECT_EQ(gateway.Series(Requests("completions", "shed")), 1);
  EXPECT_EQ(gateway.Send(kCompletions, kIds).status, 200);
  SetLogLevel(LogLevel::kWarn);
}

TEST(Gateway, ImplausibleUsageIsCountedAndIgnored) {
  for (Script script : {PlainAnswer(8, 9), PlainAnswer(std::uint64_t{1} << 40, 0),
                        ChatStream(3, 8, 9), ChatStream(3, UINT64_MAX, UINT64_MAX)}) {
    FakeEngine engine;
    engine.Play(script);
    GatewayUnderTest gateway;
    gateway.AddWorker(1, engine.url());
    const Answer answer = gateway.Send(kChat, kMessages);
    EXPECT_EQ(answer.body, Joined(script.pieces));
    EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
    EXPECT_EQ(gateway.Series("kvr_gateway_usage_implausible_total"), 1);
    EXPECT_EQ(gateway.Series("kvr_gateway_cached_tokens_unreported_total"), 1);
    EXPECT_EQ(gateway.Series("kvr_gateway_prompt_tokens_total"), 0);
    EXPECT_EQ(gateway.Series("kvr_gateway_actual_cached_tokens_total"), 0);
  }
}

TEST(Gateway, AnEngineThatBreaksOffAPlainAnswer) {
  FakeEngine engine;
  Script script = PlainAnswer();
  script.end = Script::End::kReset;
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  const Answer cut = gateway.Send(kCompletions, R"({"model":"m","prompt":[1]})");
  EXPECT_EQ(cut.status, 200);
  EXPECT_FALSE(cut.complete);
  script.pieces.clear();
  engine.Play(script);
  const Answer none = gateway.Send(kCompletions, R"({"model":"m","prompt":[1]})");
  EXPECT_EQ(none.status, 502);
  EXPECT_THAT(none.body, HasSubstr(R"("code":"upstream")"));
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series("kvr_gateway_upstream_aborted_total"), 1);
  EXPECT_EQ(gateway.Series(Requests("completions", "engine_failed")), 1);
}

TEST(Gateway, CountsWhichRanksWereChosen) {
  FakeEngine engine;
  FakeEngine bad;
  bad.Play(ErrorAnswer(503));
  GatewaySetup setup;
  setup.router.policy = sched::PolicyKind::kRoundRobin;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  gateway.AddWorker(2, bad.url());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(gateway.Send(kCompletions, kIds).status, 200);
  const auto chosen = [&gateway](int worker) {
    return gateway.Series(
        fmt::format("kvr_gateway_selections_total{{worker=\"{}\",dp_rank=\"0\"}}", worker));
  };
  EXPECT_EQ(chosen(1), 4);
  EXPECT_EQ(chosen(2), bad.received());
  EXPECT_GT(chosen(2), 0);
}

TEST(Gateway, AClientThatLeavesFreesItsBookingAtOnce) {
  FakeEngine engine;
  Script script = ChatStream(4);
  script.gated = true;
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  {
    RawClient client(gateway.port());
    ASSERT_TRUE(client.Send(Post(kChat, kMessages)));
    engine.Release(2);
    client.ReadUntil(script.pieces[1].substr(0, 40));
    ASSERT_EQ(gateway.Loads().size(), 1u);
    EXPECT_EQ(gateway.Loads()[0].active_requests, 1u);
    client.Close();
  }
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_TRUE(Eventually([&] { return engine.active() == 0; }));  // the engine learns of it
  EXPECT_EQ(gateway.Series(Requests("chat", "client_gone")), 1);
}

TEST(Gateway, AClientThatLeavesBeforeTheHead) {
  FakeEngine engine;
  Script script;
  script.answers = false;
  script.end = Script::End::kHang;
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port());
  ASSERT_TRUE(client.Send(Post(kChat, kMessages)));
  ASSERT_TRUE(Eventually([&] { return engine.received() == 1; }));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle() && engine.active() == 0; }));
  EXPECT_EQ(gateway.Series(Requests("chat", "client_gone")), 1);
}

TEST(Gateway, ARequestThatOurStopCutsOffIsNoClientsDoing) {
  FakeEngine streams;
  Script script = ChatStream(4);
  script.gated = true;
  streams.Play(script);
  FakeEngine silent;
  Script silence;
  silence.answers = false;
  silence.end = Script::End::kHang;
  silent.Play(silence);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, streams.url());
  RawClient reader(gateway.port());
  ASSERT_TRUE(reader.Send(Post(kChat, kMessages)));
  streams.Release(2);
  reader.ReadUntil("t1");
  gateway.AddWorker(2, silent.url());  // has no load yet, so it is next
  RawClient waiter(gateway.port());
  ASSERT_TRUE(waiter.Send(Post(kChat, kMessages)));
  ASSERT_TRUE(Eventually([&] { return silent.received() == 1; }));
  gateway.StopServer();
  // Report 79: exactly one terminal event and a regular end, also when it is us who stop.
  const std::string rest = reader.ReadToEnd();
  EXPECT_EQ(CountOf(rest, "data: {\"error\":{\"message\":\"the gateway is shutting down\""), 1u);
  EXPECT_THAT(rest, EndsWith("\n\ndata: [DONE]\n\n\r\n0\r\n\r\n"));
  EXPECT_TRUE(gateway.IsIdle());
  EXPECT_EQ(gateway.Series(Requests("chat", "shutdown")), 2);
  EXPECT_EQ(gateway.Series(Requests("chat", "client_gone")), 0);
}

TEST(Gateway, PrefillIsDoneAtTheFirstOutput) {
  FakeEngine engine;
  Script script = ChatStream(2);
  script.gated = true;
  script.pieces.insert(script.pieces.begin(),
                       "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"
                       "\n\n");
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  RawClient client(gateway.port());
  ASSERT_TRUE(client.Send(Post(kCompletions, kIds)));
  engine.Release(1);
  client.ReadUntil("\n\n");
  EXPECT_EQ(gateway.Loads()[0].active_prefill_tokens, 8u);
  engine.Release(2);
  client.ReadUntil("t0");
  EXPECT_TRUE(Eventually([&] { return gateway.Loads()[0].active_prefill_tokens == 0; }));
  EXPECT_EQ(gateway.Loads()[0].active_requests, 1u);
  engine.Release(100);
  client.ReadToEnd();
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
}

TEST(Gateway, RanksAreNamedToEnginesThatHaveSeveral) {
  FakeEngine engine;
  GatewaySetup setup;
  setup.router.policy = sched::PolicyKind::kRoundRobin;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url(), 3);
  std::multiset<std::string> ranks;
  for (int i = 0; i < 6; ++i) {
    // What a client says about ranks is not the engine's business here.
    const Answer answer = gateway.Send(kCompletions, kIds, "X-data-parallel-rank: 9\r\n");
    const net::HttpRequest seen = engine.last();
    const auto header = seen.headers.Find("X-data-parallel-rank");
    ASSERT_TRUE(header);
    EXPECT_EQ(*header, answer.Header("x-kvroute-dp-rank"));
    ranks.emplace(*header);
  }
  EXPECT_THAT(ranks, ::testing::ElementsAre("0", "0", "1", "1", "2", "2"));
}

TEST(Gateway, TheKvPolicyFollowsTheCache) {
  FakeEngine a;
  FakeEngine b;
  GatewayUnderTest gateway;
  gateway.AddWorker(1, a.url());
  gateway.AddWorker(2, b.url());
  gateway.Hold({WorkerId{2}, 0}, {1, 2, 3, 4});
  a.Play(ChatStream(2, 8, 4));
  b.Play(ChatStream(2, 8, 4));
  for (int i = 0; i < 5; ++i) {
    const Answer answer = gateway.Send(kCompletions, kIds);
    EXPECT_EQ(answer.Header("x-kvroute-worker"), "2");
    EXPECT_EQ(answer.Header("x-kvroute-predicted-cached-tokens"), "4");
    EXPECT_EQ(answer.Header("x-kvroute-cache-view"), "partial");  // rank 1 is blind
  }
  EXPECT_EQ(b.received(), 5u);
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series("kvr_gateway_predicted_cached_tokens_total"), 20);
  EXPECT_EQ(gateway.Series("kvr_gateway_actual_cached_tokens_total"), 20);
}

TEST(Gateway, PoliciesSpreadLoad) {
  for (const auto policy : {sched::PolicyKind::kRoundRobin, sched::PolicyKind::kRandom,
                            sched::PolicyKind::kLeastLoaded}) {
    FakeEngine a;
    FakeEngine b;
    GatewaySetup setup;
    setup.router.policy = policy;
    GatewayUnderTest gateway(setup);
    gateway.AddWorker(1, a.url());
    gateway.AddWorker(2, b.url());
    gateway.Hold({WorkerId{2}, 0}, {1, 2, 3, 4, 5, 6, 7, 8});
    for (int i = 0; i < 40; ++i)
      EXPECT_EQ(gateway.Send(kCompletions, kIds).Header("x-kvroute-policy"),
                sched::PolicyName(policy));
    EXPECT_EQ(a.received() + b.received(), 40u);
    EXPECT_GT(a.received(), 5u) << sched::PolicyName(policy);
    EXPECT_GT(b.received(), 5u) << sched::PolicyName(policy);
  }
}

// Report 85: each form of prompt is routed by its tokens, or says that it is not.
TEST(Gateway, EveryFormOfPromptIsRoutedByTokensOrSaysWhyNot) {
  FakeEngine a;
  FakeEngine b;
  a.SetTokens({1, 2, 3, 4, 5});
  b.SetTokens({1, 2, 3, 4, 5});
  GatewayUnderTest gateway;
  gateway.AddWorker(1, a.url());
  gateway.AddWorker(2, b.url());
  gateway.Hold({WorkerId{2}, 0}, {1, 2, 3, 4});
  struct Row {
    const char* path;
    const char* body;
    const char* tokens;  // x-kvroute-tokens
  };
  const Row rows[] = {
      {kCompletions, R"({"model":"m","prompt":"text"})", "engine"},
      {kCompletions, R"({"model":"m","prompt":"text"})", "cache"},
      {kCompletions, R"({"model":"m","prompt":["text"]})", "cache"},
      {kCompletions, R"({"model":"m","prompt":[1,2,3,4,5]})", "body"},
      {kCompletions, R"({"model":"m","prompt":[[1,2,3,4,5]]})", "body"},
      {kChat, R"({"model":"m","messages":[{"role":"user","content":"text"}]})", "engine"},
      {kChat,
       R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]})",
       "engine"},
      {kChat, R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "none; reason=multimodal"},
      {kCompletions, R"({"model":"m","prompt":""})", "none; reason=empty_prompt"},
  };
  for (const Row& row : rows) {
    const Answer answer = gateway.Send(row.path, row.body);
    EXPECT_EQ(answer.status, 200) << row.body;
    EXPECT_EQ(answer.Header("x-kvroute-tokens"), row.tokens) << row.body;
    if (std::string_view(row.tokens).starts_with("none")) {
      EXPECT_EQ(answer.Header("x-kvroute-cache-view"), "no_tokens") << row.body;
      EXPECT_EQ(answer.Header("x-kvroute-predicted-cached-tokens"), "0") << row.body;
    } else {
      EXPECT_EQ(answer.Header("x-kvroute-worker"), "2") << row.body;
      EXPECT_EQ(answer.Header("x-kvroute-predicted-cached-tokens"), "4") << row.body;
    }
  }
  EXPECT_EQ(gateway.Series("kvr_gateway_requests_without_tokens_total{route=\"chat\",reason="
                           "\"multimodal\"}"),
            1);
  EXPECT_EQ(gateway.Series("kvr_gateway_requests_without_tokens_total{route=\"completions\","
                           "reason=\"empty_prompt\"}"),
            1);
  EXPECT_EQ(gateway.Series("kvr_tokens_cache_entries"), 3);
}

TEST(Gateway, AnEngineWithoutTokenizeDoesNotStopARequest) {
  FakeEngine engine;
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  const Answer answer = gateway.Send(kChat, kMessages);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Header("x-kvroute-tokens"), "none; reason=unsupported");
  EXPECT_EQ(answer.Header("x-kvroute-cache-view"), "no_tokens");
  EXPECT_EQ(gateway.Series("kvr_gateway_requests_without_tokens_total{route=\"chat\",reason="
                           "\"unsupported\"}"),
            1);
}

TEST(Gateway, AnAdapterIsServedByTheEnginesOfItsModel) {
  FakeEngine engine;
  GatewaySetup setup;
  setup.gateway.adapters = {{"sql", "m"}, {"lost", "gone"}};
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  gateway.Hold({WorkerId{1}, 0}, {1, 2, 3, 4});
  const Answer answer =
      gateway.Send(kCompletions, R"({"model":"sql","prompt":[1,2,3,4,5],"stream":true})");
  EXPECT_EQ(answer.status, 200);
  // The base model's blocks are not the adapter's.
  EXPECT_EQ(answer.Header("x-kvroute-predicted-cached-tokens"), "0");
  EXPECT_THAT(engine.last().body, HasSubstr("\"sql\""));
  EXPECT_EQ(gateway.Send(kCompletions, R"({"model":"lost","prompt":[1]})").status, 404);

  RawClient client(gateway.port());
  ASSERT_TRUE(client.Send("GET /v1/models HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"));
  const Answer models = ReadAnswer(client);
  EXPECT_THAT(models.body, HasSubstr(R"("id":"m")"));
  EXPECT_THAT(models.body, HasSubstr(R"("id":"sql")"));
  EXPECT_THAT(models.body, HasSubstr(R"("parent":"m")"));
  EXPECT_EQ(CountOf(models.body, "\"object\":\"model\""), 2u);
}

// Row 195.
TEST(Gateway, TooManyInFlightAre429) {
  FakeEngine engine;
  Script script = ChatStream(1);
  script.gated = true;
  engine.Play(script);
  GatewaySetup setup;
  setup.gateway.in_flight_max = 2;
  GatewayUnderTest gateway(setup);
  gateway.AddWorker(1, engine.url());
  RawClient a(gateway.port());
  RawClient b(gateway.port());
  ASSERT_TRUE(a.Send(Post(kChat, kMessages)));
  ASSERT_TRUE(b.Send(Post(kChat, kMessages)));
  ASSERT_TRUE(Eventually([&] { return engine.active() == 2; }));
  const Answer refused = gateway.Send(kChat, kMessages);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_error"));
  engine.Release(100);
  EXPECT_TRUE(ReadAnswer(a).complete);
  EXPECT_TRUE(ReadAnswer(b).complete);
  EXPECT_EQ(gateway.Series(Requests("chat", "shed")), 1);
  EXPECT_EQ(gateway.Send(kChat, kMessages).status, 200);
}

TEST(Gateway, TellsAboutItsFleet) {
  FakeEngine engine;
  GatewaySetup setup;
  setup.gateway.require_exact = true;
  GatewayUnderTest gateway(setup);
  const auto get = [&](std::string_view path) { return Get(gateway, path); };
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/health?x=1").status, 200);
  const Answer empty = get("/ready");
  EXPECT_EQ(empty.status, 503);
  EXPECT_THAT(empty.body, HasSubstr("no worker is configured"));
  gateway.AddWorker(1, engine.url(), 2);
  EXPECT_THAT(get("/ready").body, HasSubstr("no rank is exact"));
  gateway.Hold({WorkerId{1}, 0}, {1, 2, 3, 4});
  EXPECT_TRUE(Eventually([&] { return get("/ready").status == 200; }));
  const Answer workers = get("/workers");
  EXPECT_THAT(workers.body,
              HasSubstr(R"("dp_rank":0,"state":"exact","reason":"none","detail":"")"));
  // The rank has no source of its own, as one that shares another rank's stream.
  EXPECT_THAT(workers.body, HasSubstr(R"("blocks":{"device":1,)"));
  EXPECT_THAT(workers.body, HasSubstr(R"("dp_rank":1,"state":"blind","reason":"no_event_source")"));
  EXPECT_THAT(workers.body, HasSubstr(R"("block_size":4)"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("kvr_gateway_requests_in_flight 0"));
}

TEST(Gateway, TwoHundredStreamsAtOnceAreNotHeldUp) {
  constexpr std::size_t kStreams = 200;
  FakeEngine engine;
  Script script = ChatStream(4);
  script.gated = true;
  engine.Play(script);
  GatewayUnderTest gateway;
  gateway.AddWorker(1, engine.url());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port()));
    ASSERT_TRUE(clients.back()->Send(Post(kCompletions, kIds)));
  }
  ASSERT_TRUE(Eventually([&] { return engine.active() == kStreams; }));
  EXPECT_EQ(gateway.Loads()[0].active_requests, kStreams);
  for (std::size_t piece = 0; piece < script.pieces.size(); ++piece) {
    engine.Release(piece + 1);
    for (auto& client : clients)
      ASSERT_THAT(client->ReadUntil("\n\n"), EndsWith(script.pieces[piece]));
  }
  for (auto& client : clients)
    EXPECT_THAT(client->ReadToEnd(), EndsWith("0\r\n\r\n"));
  EXPECT_TRUE(Eventually([&] { return gateway.IsIdle(); }));
  EXPECT_EQ(gateway.Series(Requests("completions", "ok")), kStreams);
}

// Report 64: released exactly once in every exit.
TEST(Gateway, NothingLeaksHoweverARequestEnds) {
  constexpr std::size_t kEach = 40;
  FakeEngine a;
  FakeEngine b;
  GatewaySetup setup;
  GatewayUnderTest patient(setup);
  setup.client.read_timeout = Millis{100};
  GatewayUnderTest hasty(setup);
  for (GatewayUnderTest* gateway : {&patient, &hasty}) {
    gateway->AddWorker(1, a.url());
    gateway->AddWorker(2, b.url());
  }
  Script closes;
  closes.answers = false;
  closes.end = Script::End::kReset;
  Script dies = ChatStream(3);
  dies.pieces.resize(3);
  dies.end = Script::End::kReset;
  Script silent = closes;
  silent.end = Script::End::kHang;
  Script hangs = dies;
  hangs.end = Script::End::kHang;
  struct Row {
    GatewayUnderTest& gateway;
    Script script;
    int status;
    const char* outcome;
    bool client_leaves;
  };
  const Row rows[] = {
      {patient, ChatStream(3), 200, "ok", false},
      {patient, closes, 502, "engine_failed", false},
      {patient, dies, 200, "engine_aborted", false},
      {patient, ErrorAnswer(500), 500, "engine_error", false},
      {hasty, silent, 504, "engine_timeout", false},
      {patient, hangs, 200, "client_gone", true},
      {patient, silent, 0, "client_gone", true},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.outcome);
    a.Play(row.script);
    b.Play(row.script);
    const double before = row.gateway.Series(Requests("completions", row.outcome));
    const std::size_t received = a.received() + b.received();
    std::vector<std::unique_ptr<RawClient>> clients;
    for (std::size_t i = 0; i < kEach; ++i) {
      clients.push_back(std::make_unique<RawClient>(row.gateway.port()));
      ASSERT_TRUE(clients.back()->Send(Post(kCompletions, kIds)));
    }
    if (row.client_leaves) {
      ASSERT_TRUE(Eventually([&] { return a.received() + b.received() == received + kEach; }));
    }
    for (auto& client : clients) {
      if (!row.client_leaves) {
        EXPECT_EQ(ReadAnswer(*client).status, row.status);
      } else if (row.status != 0) {
        client->ReadUntil("t1");
      }
      client->Close();
    }
    ASSERT_TRUE(Eventually([&] { return row.gateway.IsIdle(); }));
    EXPECT_EQ(row.gateway.Series(Requests("completions", row.outcome)) - before, kEach);
    EXPECT_TRUE(Eventually([&] { return a.active() + b.active() == 0; }));
  }
}

}  // namespace
}  // namespace kvr::service
