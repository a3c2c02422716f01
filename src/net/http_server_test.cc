#include "net/http_server.h"

#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using ::testing::EndsWith;
using testing::Eventually;
using testing::Gate;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;
using ::testing::StartsWith;

Task<void> Echo(HttpExchange& exchange) {
  HttpResponse response;
  response.body = exchange.request().method + " " + exchange.request().target + " [" +
                  exchange.request().body + "]";
  (void)co_await exchange.Respond(std::move(response));
}

Task<void> Sink(HttpExchange& exchange) {
  HttpResponse response;
  (void)co_await exchange.Respond(std::move(response));
}

class HttpServerTest : public ::testing::Test {
 protected:
  // Routes every test may use, then starts.
  void StartServer() {
    server_ = std::make_unique<HttpServer>(runtime_, registry_, options_);
    server_->Route("GET", "/health", Echo);
    server_->Route("POST", "/echo", Echo, 1000);
    server_->Route("POST", "/sink", Sink);
    server_->Route("GET", "/workers/{id}", Echo);
    server_->Route("DELETE", "/workers/{id}", Echo);
    for (auto& route : routes_)
      server_->Route(route.method, route.path, route.handler);
    for (auto& [path, make] : pages_)
      server_->RoutePage(path, make);
    const auto started = server_->Start();
    ASSERT_TRUE(started) << started.error().message;
  }
  void Add(std::string method, std::string path, HttpHandler handler) {
    routes_.push_back({std::move(method), std::move(path), std::move(handler)});
  }
  // Sends `bytes` on a connection of its own and returns all that comes back.
  std::string Ask(std::string_view bytes) {
    RawClient client(server_->port());
    client.Send(bytes);
    return client.ReadAnswer();
  }
  double Metric(std::string_view name, std::string_view labels = {}) {
    std::string series = std::string(name) + "{server=\"http\"";
    if (!labels.empty()) series += "," + std::string(labels);
    return testing::Series(registry_, series + "}");
  }

  struct Entry {
    std::string method;
    std::string path;
    HttpHandler handler;
  };
  metrics::Registry registry_;
  HttpServer::Options options_;
  std::vector<Entry> routes_;
  std::vector<std::pair<std::string, HttpServer::Page>> pages_;
  IoRuntime runtime_{{.threads = 1, .thread_name = "io"}};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  StartServer();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /health?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nDate: "));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nGET /health?x=1 []"));
  }
  EXPECT_EQ(Metric("kvr_net_http_requests_total", "status=\"2xx\""), 3);
  EXPECT_EQ(Metric("kvr_net_http_connections"), 1);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  StartServer();
  RawClient client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\none"
      "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n"
      "GET /workers/7 HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), EndsWith("POST /echo [one]"));
  EXPECT_THAT(client.ReadAnswer(), EndsWith("POST /echo [two]"));
  EXPECT_THAT(client.ReadAnswer(), EndsWith("GET /workers/7 []"));
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, StreamsInChunks) {
  Add("GET", "/stream", [](HttpExchange& exchange) -> Task<void> {
    HttpHeaders headers;
    headers.Add("Content-Type", "text/event-stream");
    (void)co_await exchange.BeginStream(200, headers);
    (void)co_await exchange.Write("data: 1\n\n");
    (void)co_await exchange.Write("data: 2\n\n");
    (void)co_await exchange.EndStream();
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  client.Send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, ADisconnectCancelsTheHandler) {
  struct Guard {
    std::atomic<int>& count;
    ~Guard() { ++count; }
  };
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  Add("GET", "/wait", [&](HttpExchange&) -> Task<void> {
    const Guard guard{left};
    ++entered;
    co_await Sleep(std::chrono::hours(1));
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /wait HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return entered == 1; }));
  EXPECT_EQ(left, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return left == 1; }));
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_client_gone_total") == 1; }));
  server_.reset();  // before what its handlers use
}

// services.md §7 rows 8 to 10, 18 and what else the server itself refuses.
TEST_F(HttpServerTest, RefusesInJson) {
  options_.header_bytes_max = 2000;
  StartServer();
  const std::string long_field = "X-A: " + std::string(3000, 'a') + "\r\n";
  std::string many_fields;
  for (int i = 0; i < 300; ++i)
    many_fields += "X-" + std::to_string(i) + ": b\r\n";
  struct Case {
    std::string name;
    std::string request;
    std::string status;
    std::string body;  // part of it
  };
  const std::vector<Case> cases = {
      {"row 9", "GET /nowhere HTTP/1.1\r\n\r\n", "404 Not Found", R"("code":"not_found"})"},
      {"row 10", "PUT /workers/1 HTTP/1.1\r\n\r\n", "405 Method Not Allowed",
       R"("code":"method_not_allowed"})"},
      {"row 8", "POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "413 Payload Too Large",
       R"("error":"request body exceeds 1000 bytes","code":"too_large"})"},
      {"row 8 far beyond", "POST /echo HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
       "413 Payload Too Large", "1000 bytes"},
      {"row 8 chunked", "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n",
       "413 Payload Too Large", "1000 bytes"},
      {"long field", "GET /health HTTP/1.1\r\n" + long_field + "\r\n",
       "431 Request Header Fields Too Large", "2000 bytes"},
      {"many fields", "GET /health HTTP/1.1\r\n" + many_fields + "\r\n",
       "431 Request Header Fields Too Large", "2000 bytes"},
      {"no end of head", "GET /" + std::string(4000, 'a'), "431 Request Header Fields Too Large",
       "2000 bytes"},
      {"no HTTP", "hello there\r\n\r\n", "400 Bad Request", "malformed HTTP request"},
      {"TLS hello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
       "400 Bad Request", "malformed"},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 Bad Request", "malformed"},
      {"control in target", "GET /\x01 HTTP/1.1\r\n\r\n", "400 Bad Request", "malformed"},
      {"no colon", "GET /health HTTP/1.1\r\nbad field\r\n\r\n", "400 Bad Request", "malformed"},
      {"space in name", "GET /health HTTP/1.1\r\nA b: c\r\n\r\n", "400 Bad Request", "malformed"},
      {"bad length", "POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n", "400 Bad Request",
       "malformed"},
      {"negative length", "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400 Bad Request",
       "malformed"},
      {"two lengths", "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
       "400 Bad Request", "malformed"},
      {"length and chunks",
       "POST /echo HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "400 Bad Request", "malformed"},
      {"chunks and length",
       "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
       "400 Bad Request", "malformed"},
      {"other coding", "POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
       "501 Not Implemented", "chunked"},
      {"disguised coding", "POST /echo HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
       "501 Not Implemented", "chunked"},
      {"bad chunk", "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       "400 Bad Request", "malformed request body"},
      {"chunk without end", "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
       "400 Bad Request", "malformed request body"},
  };
  for (const Case& c : cases) {
    const std::string answer = Ask(c.request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + c.status + "\r\n")) << c.name;
    EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n")) << c.name;
    EXPECT_THAT(answer, HasSubstr("{\"error\":\"")) << c.name;
    EXPECT_THAT(answer, HasSubstr(c.body)) << c.name;
  }
  EXPECT_THAT(Ask("PUT /workers/1 HTTP/1.1\r\n\r\n"),
              HasSubstr("\r\nAllow: GET, HEAD, DELETE\r\n"));
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"head_too_large\""), 3);
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"body_too_large\""), 3);
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"bad_request\""), 15);
}

TEST_F(HttpServerTest, A404KeepsTheConnectionUnlessABodyIsOnItsWay) {
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /nowhere HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 404"));
  client.Send("POST /nowhere HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, TheErrorWriterWordsWhatTheServerFinds) {
  server_ = std::make_unique<HttpServer>(runtime_, registry_, options_);
  server_->SetErrorWriter([](int status, std::string_view code, std::string_view) {
    HttpResponse response;
    response.status = status;
    response.body = "own " + std::string(code);
    return response;
  });
  ASSERT_TRUE(server_->Start());
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\nown not_found"));
}

TEST_F(HttpServerTest, ABodyOfExactlyTheLimitPasses) {
  StartServer();
  const std::string body(1000, 'x');
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + body),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + body +
                  "\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
}

// The answer has to reach a client that goes on sending a body nobody wants.
TEST_F(HttpServerTest, ARefusalSurvivesTheRestOfTheBody) {
  StartServer();
  RawClient client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n");
  client.Send(std::string(4'000'000, 'x'));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, ReadsARequestByteByByte) {
  StartServer();
  RawClient client(server_->port());
  const std::string request =
      "\r\nPOST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
  for (const char c : request)
    client.Send(std::string_view(&c, 1));
  EXPECT_THAT(client.ReadAnswer(), EndsWith("POST /echo [abcde]"));
}

TEST_F(HttpServerTest, TakesEveryFormOfTarget) {
  StartServer();
  EXPECT_THAT(Ask("GET http://any.host:1/health?q HTTP/1.1\r\n\r\n"),
              EndsWith("\r\n\r\nGET /health?q []"));
  EXPECT_THAT(Ask("GET /workers/a%2Fb HTTP/1.1\r\n\r\n"), EndsWith("GET /workers/a%2Fb []"));
  EXPECT_THAT(Ask("OPTIONS * HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
}

// Row 18.
TEST_F(HttpServerTest, HeadIsAnsweredByGetWithoutABody) {
  StartServer();
  RawClient client(server_->port());
  client.Send("HEAD /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 15\r\n"));
  EXPECT_THAT(client.ReadAnswer(), EndsWith("\r\n\r\nGET /health []"));
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  Add("GET", "/stream", [](HttpExchange& exchange) -> Task<void> {
    const HttpHeaders headers;
    (void)co_await exchange.BeginStream(200, headers);
    (void)co_await exchange.Write("one ");
    (void)co_await exchange.Write("two");
    (void)co_await exchange.EndStream();
  });
  StartServer();
  {
    RawClient client(server_->port());
    client.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(client.ReadAnswer(), HasSubstr("Connection: keep-alive\r\n"));
    client.Send("GET /health HTTP/1.0\r\n\r\n");
    EXPECT_THAT(client.ReadAnswer(), HasSubstr("Connection: close\r\n"));
    EXPECT_TRUE(client.AtEnd());
  }
  RawClient client(server_->port());
  client.Send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), Not(HasSubstr("Transfer-Encoding")));
  EXPECT_EQ(client.ReadToEnd(), "one two");
}

TEST_F(HttpServerTest, ContinuesWhenAsked) {
  StartServer();
  RawClient client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_THAT(client.ReadAnswer(), EndsWith("[hi]"));
  // What is refused anyway is not asked for.
  client.Send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 413"));
}

// Row 14.
TEST_F(HttpServerTest, ASlowHeadGets408) {
  options_.header_timeout = Millis{30};
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /health HTTP/1.1\r\nX-Slow");
  const std::string answer = client.ReadAnswer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
  EXPECT_THAT(answer, HasSubstr("within 30 ms"));
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"head_timeout\""), 1);
}

TEST_F(HttpServerTest, ASlowBodyGets408) {
  options_.body_timeout = Millis{30};
  StartServer();
  RawClient client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"body_timeout\""), 1);
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedWithoutAWord) {
  options_.idle_timeout = Millis{30};
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(client.AtEnd());
}

// Row 15.
TEST_F(HttpServerTest, BeyondTheCapAConnectionIsToldSo) {
  options_.connections_max = 2;
  StartServer();
  RawClient first(server_->port());
  first.Send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(first.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  auto second = std::make_unique<RawClient>(server_->port());
  second->Send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(second->ReadAnswer(), StartsWith("HTTP/1.1 200"));
  {
    RawClient third(server_->port());
    third.Send("GET /health HTTP/1.1\r\n\r\n");
    const std::string answer = third.ReadAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(answer, HasSubstr(R"("code":"overloaded")"));
    EXPECT_TRUE(third.AtEnd());
  }
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"connection_cap\""), 1);
  second.reset();
  EXPECT_TRUE(
      Eventually([&] { return Ask("GET /health HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"); }));
}

std::string PostOf(std::string_view path, std::size_t bytes) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nContent-Length: " + std::to_string(bytes) +
         "\r\n\r\n" + std::string(bytes, 'b');
}

TEST_F(HttpServerTest, BeyondTheBodyBudgetARequestIsToldSo) {
  options_.body_bytes_max = 1'000;
  options_.bodies_bytes_max = 1'500;
  Gate gate(runtime_);
  Add("POST", "/wait", [&](HttpExchange& exchange) -> Task<void> {
    co_await gate.Pass();
    co_await Echo(exchange);
  });
  StartServer();
  const auto held = [&] { return Metric("kvr_net_http_body_bytes"); };
  RawClient holder(server_->port());
  holder.Send(PostOf("/wait", 1'000));
  ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  EXPECT_EQ(held(), 1'000);

  for (const std::string& request :
       {PostOf("/echo", 600), "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n258\r\n" +
                                  std::string(600, 'b') + "\r\n0\r\n\r\n"}) {
    RawClient client(server_->port());
    client.Send(request);
    const std::string answer = client.ReadAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(answer, HasSubstr("\r\nRetry-After: 1\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
    EXPECT_THAT(answer, HasSubstr("fill the 1500 bytes"));
    EXPECT_TRUE(client.AtEnd());
  }
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"body_budget\""), 2);
  EXPECT_THAT(Ask(PostOf("/echo", 400)), StartsWith("HTTP/1.1 200 OK"));  // what is left serves
  EXPECT_THAT(Ask("GET /health HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));

  gate.Open();
  EXPECT_THAT(holder.ReadAnswer(), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_TRUE(Eventually([&] { return held() == 0; }));  // though its connection stays open
  EXPECT_THAT(Ask(PostOf("/echo", 1'000)), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_TRUE(Eventually([&] { return held() == 0; }));
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, ABodyCountsAsFarAsItHasCome) {
  options_.body_bytes_max = 1u << 20;
  options_.bodies_bytes_max = 1u << 20;
  StartServer();
  const auto held = [&] { return Metric("kvr_net_http_body_bytes"); };
  RawClient client(server_->port());
  client.Send("POST /big HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");  // unknown: never read
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 404 "));
  EXPECT_EQ(held(), 0);
  {
    RawClient leaves(server_->port());
    leaves.Send("POST /sink HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(100, 'b'));
    ASSERT_TRUE(Eventually([&] { return held() > 0; }));
    EXPECT_LE(held(), 64 << 10);
  }
  EXPECT_TRUE(Eventually([&] { return held() == 0; }));
  EXPECT_THAT(Ask(PostOf("/sink", 1u << 20)), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_TRUE(Eventually([&] { return held() == 0; }));
}

TEST_F(HttpServerTest, AHandlerMayReleaseItsBodyEarly) {
  Gate gate(runtime_);
  Add("POST", "/wait", [&](HttpExchange& exchange) -> Task<void> {
    exchange.ReleaseBody();
    co_await gate.Pass();
    co_await Echo(exchange);
  });
  StartServer();
  RawClient client(server_->port());
  client.Send(PostOf("/wait", 1'000));
  ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  EXPECT_EQ(Metric("kvr_net_http_body_bytes"), 0);
  gate.Open();
  EXPECT_THAT(client.ReadAnswer(), EndsWith("POST /wait []"));
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, TheBodyBudgetHasRoomForTheLargestBody) {
  options_.body_bytes_max = 1'000;
  options_.bodies_bytes_max = 1;
  StartServer();
  EXPECT_THAT(Ask(PostOf("/echo", 1'000)), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, APageHoldsUpNobody) {
  std::atomic<int> entered = 0;
  std::atomic<bool> go = false;
  pages_.emplace_back("/page", [&](const HttpRequest& request) {
    ++entered;
    go.wait(false);
    HttpResponse response;
    response.body = "page " + request.target;
    return response;
  });
  pages_.emplace_back("/bad",
                      [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("bad"); });
  StartServer();
  RawClient waits(server_->port());
  waits.Send("GET /page?a=1 HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return entered == 1; }));
  {
    RawClient leaves(server_->port());
    leaves.Send("GET /page HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 2; }));
  }
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 1; }));
  EXPECT_THAT(Ask("GET /health HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  go = true;
  go.notify_all();
  EXPECT_THAT(waits.ReadAnswer(), EndsWith("\r\n\r\npage /page?a=1"));
  waits.Send("GET /bad HTTP/1.1\r\n\r\n");
  EXPECT_THAT(waits.ReadAnswer(), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(Ask("HEAD /page HTTP/1.1\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK"));
  server_.reset();  // before what its pages use
}

TEST_F(HttpServerTest, WorkAsideHoldsUpNobodyAndOutlivesItsHandler) {
  std::atomic<int> entered = 0;
  std::atomic<bool> go = false;
  Add("POST", "/slow", [&](HttpExchange& exchange) -> Task<void> {
    const auto answer = std::make_shared<HttpResponse>();
    const std::thread::id mine = std::this_thread::get_id();
    for (int i = 0; i < 3; ++i) {
      std::function<void()> work = [answer, mine, &entered, &go] {
        EXPECT_NE(std::this_thread::get_id(), mine);
        ++entered;
        go.wait(false);
        answer->body += 'x';
      };
      co_await server_->Aside(std::move(work));
      EXPECT_EQ(std::this_thread::get_id(), mine);
    }
    (void)co_await exchange.Respond(std::move(*answer));
  });
  Add("GET", "/throws", [&](HttpExchange&) -> Task<void> {
    std::function<void()> work = [] { throw std::runtime_error("bad"); };
    co_await server_->Aside(std::move(work));
  });
  StartServer();
  RawClient leaves(server_->port());
  leaves.Send("POST /slow HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return entered == 1; }));
  RawClient waits(server_->port());
  waits.Send("POST /slow HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 2; }));
  leaves.Close();
  ASSERT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 1; }));
  EXPECT_THAT(Ask("GET /health HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(entered, 1);
  go = true;
  go.notify_all();
  EXPECT_THAT(waits.ReadAnswer(), EndsWith("\r\n\r\nxxx"));
  EXPECT_EQ(entered, 4);  // the handler that was cancelled did not go on
  EXPECT_THAT(Ask("GET /throws HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  server_.reset();  // before what its handlers use
}

// A page under way is made to its end; its client is cut off at once.
TEST_F(HttpServerTest, StopWaitsForThePageThatIsMade) {
  std::atomic<bool> entered = false;
  std::atomic<bool> go = false;
  pages_.emplace_back("/page", [&](const HttpRequest&) {
    entered = true;
    go.wait(false);
    return HttpResponse();
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /page HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return entered.load(); }));
  std::jthread stop([&] { server_->Stop(Millis{0}); });
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 503 "));
  go = true;
  go.notify_all();
  stop.join();
  server_.reset();  // before what its pages use
}

TEST_F(HttpServerTest, AnEarlyRequestWaitsForTheRunningOne) {
  Gate gate(runtime_);
  Add("GET", "/gate", [&](HttpExchange& exchange) -> Task<void> {
    co_await gate.Pass();
    co_await Echo(exchange);
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /gate HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  client.Send("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nea");
  client.Send("rly");
  gate.Open();
  EXPECT_THAT(client.ReadAnswer(), EndsWith("GET /gate []"));
  EXPECT_THAT(client.ReadAnswer(), EndsWith("POST /echo [early]"));
  server_.reset();  // before what its handlers use
}

// More than the buffer holds is dropped, and the answer under way is the last one.
TEST_F(HttpServerTest, TooManyEarlyBytesEndTheConnectionAfterTheAnswer) {
  Gate gate(runtime_);
  Add("GET", "/gate", [&](HttpExchange& exchange) -> Task<void> {
    co_await gate.Pass();
    co_await Echo(exchange);
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /gate HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  std::string early;
  while (early.size() < 4 * HttpServer::Options{}.header_bytes_max)
    early += "GET /echo HTTP/1.1\r\n\r\n";
  ASSERT_TRUE(client.Send(early));
  ASSERT_TRUE(Eventually(
      [&] { return Metric("kvr_net_http_rejected_total", "reason=\"early_bytes\"") == 1; }));
  gate.Open();
  const std::string answer = client.ReadAnswer();
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("GET /gate []"));
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"early_bytes\""), 1);
  server_.reset();  // before what its handlers use
}

// A handler is cancelled by a disconnect whatever it waits for, and whatever came before the end.
TEST_F(HttpServerTest, ADisconnectEndsEveryWait) {
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  struct Guard {
    std::atomic<int>& count;
    ~Guard() { ++count; }
  };
  Add("GET", "/sleep", [&](HttpExchange&) -> Task<void> {
    const Guard guard{left};
    ++entered;
    EXPECT_FALSE(co_await Sleep(std::chrono::hours(1)));
    co_await Sleep(std::chrono::hours(1));
    ADD_FAILURE() << "a cancelled task went on waiting";
  });
  Add("GET", "/signal", [&](HttpExchange&) -> Task<void> {
    const Guard guard{left};
    Signal signal;
    ++entered;
    co_await signal.Wait();
    ADD_FAILURE() << "a cancelled task went on";
  });
  Add("GET", "/write", [&](HttpExchange& exchange) -> Task<void> {
    const Guard guard{left};
    ++entered;
    const HttpHeaders headers;
    const std::string piece(1u << 20, 'x');
    auto sent = co_await exchange.BeginStream(200, headers);
    while (sent)
      sent = co_await exchange.Write(piece);
    EXPECT_EQ(sent.error().code, ErrorCode::kClientGone);
  });
  enum class Leave {
    kClose,
    kReset,
    kHalfClose,
    kCloseAfterEarlyRequest,
    kCloseAfterEarlyFlood,
  };
  const std::string flood(4 * HttpServer::Options{}.header_bytes_max, 'x');
  StartServer();
  int expected = 0;
  for (const char* path : {"/sleep", "/signal", "/write"}) {
    for (const Leave leave : {Leave::kClose, Leave::kReset, Leave::kHalfClose,
                              Leave::kCloseAfterEarlyRequest, Leave::kCloseAfterEarlyFlood}) {
      ++expected;
      RawClient client(server_->port());
      client.Send("GET " + std::string(path) + " HTTP/1.1\r\n\r\n");
      ASSERT_TRUE(Eventually([&] { return entered == expected; }));
      if (leave == Leave::kCloseAfterEarlyRequest) client.Send("GET /health HTTP/1.1\r\n\r\n");
      if (leave == Leave::kCloseAfterEarlyFlood) client.Send(flood);
      if (leave == Leave::kReset) {
        client.Reset();
      } else if (leave == Leave::kHalfClose) {
        client.HalfClose();
      } else {
        client.Close();
      }
      ASSERT_TRUE(Eventually([&] { return left == expected; })) << path;
    }
  }
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_client_gone_total") == expected; }));
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 0; }));
  EXPECT_EQ(Metric("kvr_net_http_handler_errors_total"), 0);
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, AClientThatLeavesAfterItsAnswerCancelsNothing) {
  Gate gate(runtime_);
  std::atomic<bool> finished = false;
  Add("GET", "/after", [&](HttpExchange& exchange) -> Task<void> {
    co_await Echo(exchange);
    co_await gate.Pass();
    finished = true;
  });
  StartServer();
  {
    RawClient client(server_->port());
    client.Send("GET /after HTTP/1.1\r\n\r\n");
    EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
    ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  }
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return finished.load(); }));
  EXPECT_EQ(Metric("kvr_net_http_client_gone_total"), 0);
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, AHandlerThatFailsGives500) {
  SetLogLevel(LogLevel::kOff);
  Add("GET", "/throw", [](HttpExchange&) -> Task<void> {
    throw std::runtime_error("a bug");
    co_return;
  });
  Add("GET", "/throw-odd", [](HttpExchange&) -> Task<void> {
    throw 7;  // NOLINT: what a handler must not do
    co_return;
  });
  Add("GET", "/silent", [](HttpExchange&) -> Task<void> { co_return; });
  StartServer();
  RawClient client(server_->port());
  for (const char* path : {"/throw", "/throw-odd", "/silent"}) {
    client.Send("GET " + std::string(path) + " HTTP/1.1\r\n\r\n");
    const std::string answer = client.ReadAnswer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 Internal Server Error\r\n")) << path;
    EXPECT_THAT(answer, HasSubstr(R"("code":"internal")")) << path;
  }
  EXPECT_EQ(Metric("kvr_net_http_handler_errors_total"), 3);
  EXPECT_EQ(Metric("kvr_net_http_requests_total", "status=\"5xx\""), 3);
  SetLogLevel(LogLevel::kWarn);
}

// A stream that ends early must not look complete.
TEST_F(HttpServerTest, AnUnfinishedStreamIsCutShort) {
  SetLogLevel(LogLevel::kOff);
  enum class How { kReturn, kThrow, kAbort, kTooLong, kTooShort };
  struct Case {
    std::string path;
    How how;
    std::optional<std::uint64_t> length;
  };
  const std::vector<Case> cases = {
      {"/return", How::kReturn, {}}, {"/throw", How::kThrow, {}},   {"/abort", How::kAbort, {}},
      {"/long", How::kTooLong, 2},   {"/short", How::kTooShort, 9},
  };
  for (const Case& c : cases) {
    Add("GET", c.path, [how = c.how, length = c.length](HttpExchange& exchange) -> Task<void> {
      const HttpHeaders headers;
      (void)co_await exchange.BeginStream(200, headers, length);
      const auto sent = co_await exchange.Write("abc");
      EXPECT_EQ(sent.has_value(), how != How::kTooLong);
      if (how == How::kThrow) throw std::runtime_error("a bug");
      if (how == How::kAbort) exchange.Abort();
      if (how == How::kTooLong || how == How::kTooShort) {
        const auto ended = co_await exchange.EndStream();
        EXPECT_FALSE(ended);
      }
    });
  }
  StartServer();
  for (const Case& c : cases) {
    RawClient client(server_->port());
    client.Send("GET " + c.path + " HTTP/1.1\r\n\r\n");
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200")) << c.path;
    const std::string body = client.ReadToEnd();
    EXPECT_EQ(body, c.how == How::kTooLong ? "" : c.length ? "abc" : "3\r\nabc\r\n") << c.path;
    if (c.length) continue;
    // Where only the end of the connection ends the body, a reset tells them apart.
    RawClient old(server_->port());
    old.Send("GET " + c.path + " HTTP/1.0\r\n\r\n");
    old.ReadToEnd();
    EXPECT_TRUE(old.was_reset()) << c.path;
  }
  SetLogLevel(LogLevel::kWarn);
}

TEST_F(HttpServerTest, StreamsAFixedLength) {
  Add("GET", "/fixed", [](HttpExchange& exchange) -> Task<void> {
    const HttpHeaders headers;
    (void)co_await exchange.BeginStream(200, headers, 6);
    (void)co_await exchange.Write("abc");
    (void)co_await exchange.Write("");
    (void)co_await exchange.Write("def");
    (void)co_await exchange.EndStream();
  });
  Add("GET", "/none", [](HttpExchange& exchange) -> Task<void> {
    HttpResponse response;
    response.status = 204;
    (void)co_await exchange.Respond(std::move(response));
  });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /fixed HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), EndsWith("Content-Length: 6\r\n\r\nabcdef"));
  client.Send("GET /none HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), Not(HasSubstr("Content-Length")));
  client.Send("HEAD /fixed HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Content-Length: 6\r\n"));
  client.Send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), EndsWith("\r\n\r\nGET /health []"));
}

TEST_F(HttpServerTest, HeaderValuesCannotAddLines) {
  Add("GET", "/inject", [](HttpExchange& exchange) -> Task<void> {
    HttpResponse response;
    response.headers.Add("X-Model", "a\r\nX-Evil: 1\r\n\r\nbody");
    (void)co_await exchange.Respond(std::move(response));
  });
  StartServer();
  EXPECT_THAT(Ask("GET /inject HTTP/1.1\r\n\r\n"), HasSubstr("X-Model: a  X-Evil: 1    body\r\n"));
}

// Write is the back-pressure: the handler is never further ahead than the sockets can hold.
TEST_F(HttpServerTest, ASlowReaderHoldsTheHandlerBack) {
  constexpr std::size_t kPiece = 64u << 10;
  constexpr std::size_t kTotal = 96u << 20;
  constexpr std::size_t kSocketsHold = 32u << 20;
  std::atomic<std::size_t> written = 0;
  Add("GET", "/big", [&](HttpExchange& exchange) -> Task<void> {
    const HttpHeaders headers;
    const std::string piece(kPiece, 'x');
    (void)co_await exchange.BeginStream(200, headers, kTotal);
    while (written < kTotal) {
      if (!co_await exchange.Write(piece)) co_return;
      written += kPiece;
    }
    (void)co_await exchange.EndStream();
  });
  StartServer();
  RawClient client(server_->port(), 64 << 10);
  client.Send("GET /big HTTP/1.1\r\n\r\n");
  client.ReadUntil("\r\n\r\n");
  for (std::size_t read = 0; read < kTotal; read += kPiece) {
    ASSERT_LE(written.load(), read + kSocketsHold);
    ASSERT_EQ(client.ReadBytes(kPiece).size(), kPiece);
  }
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsDropped) {
  options_.write_timeout = Millis{50};
  std::atomic<bool> timed_out = false;
  Add("GET", "/big", [&](HttpExchange& exchange) -> Task<void> {
    const HttpHeaders headers;
    const std::string piece(1u << 20, 'x');
    auto sent = co_await exchange.BeginStream(200, headers);
    while (sent)
      sent = co_await exchange.Write(piece);
    timed_out = sent.error().code == ErrorCode::kTimeout;
  });
  StartServer();
  RawClient client(server_->port(), 64 << 10);
  client.Send("GET /big HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(Eventually([&] { return timed_out.load(); }));
  client.ReadToEnd();
  EXPECT_TRUE(client.was_reset());
  EXPECT_EQ(Metric("kvr_net_http_rejected_total", "reason=\"write_timeout\""), 1);
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") == 0; }));
  server_.reset();  // before what its handlers use
}

// Rows 186 and 187, as far as they are the server's: drain, then end.
TEST_F(HttpServerTest, StopLetsRunningRequestsFinish) {
  Gate gate(runtime_);
  Add("GET", "/gate", [&](HttpExchange& exchange) -> Task<void> {
    co_await gate.Pass();
    co_await Echo(exchange);
  });
  StartServer();
  RawClient idle(server_->port());
  idle.Send("GET /health HTTP/1.1\r\n\r\n");
  idle.ReadAnswer();
  RawClient running(server_->port());
  running.Send("GET /gate HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return gate.waiting() == 1; }));
  std::jthread stopper([&] { server_->Stop(std::chrono::seconds(20)); });
  EXPECT_TRUE(idle.AtEnd());
  gate.Open();
  EXPECT_THAT(running.ReadAnswer(), EndsWith("Connection: close\r\n\r\nGET /gate []"));
  EXPECT_TRUE(running.AtEnd());
  running.Close();
  stopper.join();
  EXPECT_EQ(Metric("kvr_net_http_connections"), 0);
  EXPECT_FALSE(testing::CanConnect(server_->port()));
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, StopCancelsWhatOutlivesTheGrace) {
  std::atomic<int> entered = 0;
  std::atomic<int> left = 0;
  struct Guard {
    std::atomic<int>& count;
    ~Guard() { ++count; }
  };
  Add("GET", "/forever", [&](HttpExchange&) -> Task<void> {
    const Guard guard{left};
    ++entered;
    while (true)
      co_await Sleep(std::chrono::hours(1));
  });
  Add("GET", "/stream", [&](HttpExchange& exchange) -> Task<void> {
    const Guard guard{left};
    const HttpHeaders headers;
    (void)co_await exchange.BeginStream(200, headers);
    ++entered;
    co_await Sleep(std::chrono::hours(1));
    const auto sent = co_await exchange.Write("x");
    ADD_FAILURE() << "a cancelled task went on";
  });
  StartServer();
  RawClient waiting(server_->port());
  waiting.Send("GET /forever HTTP/1.1\r\n\r\n");
  RawClient streaming(server_->port());
  streaming.Send("GET /stream HTTP/1.1\r\n\r\n");
  RawClient half(server_->port());
  half.Send("GET /he");
  ASSERT_TRUE(Eventually([&] { return entered == 2; }));
  server_->Stop(Millis{10});
  EXPECT_EQ(left, 2);
  EXPECT_THAT(waiting.ReadAnswer(), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  streaming.ReadUntil("\r\n\r\n");
  EXPECT_EQ(streaming.ReadToEnd(), "");  // no last chunk: cut short
  EXPECT_EQ(half.ReadToEnd(), "");
  server_->Stop(Millis{10});
  server_.reset();  // before what its handlers use
}

TEST_F(HttpServerTest, TheRuntimeMayStopFirst) {
  Add("GET", "/forever",
      [](HttpExchange&) -> Task<void> { co_await Sleep(std::chrono::hours(1)); });
  StartServer();
  RawClient client(server_->port());
  client.Send("GET /forever HTTP/1.1\r\n\r\n");
  runtime_.Stop();
  server_->Stop(Millis{0});
  client.ReadToEnd();
}

TEST_F(HttpServerTest, AnAddressInUseIsNamed) {
  StartServer();
  HttpServer::Options options;
  options.port = server_->port();
  HttpServer second(runtime_, registry_, options);
  const auto started = second.Start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kIo);
  EXPECT_THAT(started.error().message, HasSubstr("cannot listen on 127.0.0.1:"));
  options.address = "no address";
  EXPECT_FALSE(HttpServer(runtime_, registry_, options).Start());
}

// Mutated requests from a fixed seed: whatever comes, the server answers or closes and lives on.
TEST_F(HttpServerTest, SurvivesGarbage) {
  options_.header_timeout = Millis{20};
  options_.body_timeout = Millis{20};
  StartServer();
  const std::string seed_request =
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\nGET /workers/1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    std::string bytes = seed_request;
    for (std::uint64_t edits = random() % 6; edits > 0; --edits) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          bytes.erase(at, 1 + random() % 8);
          break;
        default:
          bytes.insert(at, seed_request.substr(random() % seed_request.size(), 20));
      }
      if (bytes.empty()) bytes = "x";
    }
    RawClient client(server_->port());
    client.Send(bytes);
    if (round % 3 == 0) client.HalfClose();
    if (round % 7 == 0) client.Reset();
    if (round % 3 == 0 && round % 7 != 0) client.ReadToEnd();
  }
  EXPECT_THAT(Ask("GET /health HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(Eventually([&] { return Metric("kvr_net_http_connections") <= 1; }));
}

}  // namespace
}  // namespace kvr::net
