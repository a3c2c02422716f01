#include "net/http_server.h"

#include <atomic>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using ::testing::EndsWith;
using testing::Eventually;
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

class HttpServerTest : public ::testing::Test {
 protected:
  // Routes every test may use, then starts.
  void StartServer() {
    server_ = std::make_unique<HttpServer>(runtime_, registry_, options_);
    server_->Route("GET", "/health", Echo);
    server_->Route("POST", "/echo", Echo, 1000);
    server_->Route("GET", "/workers/{id}", Echo);
    server_->Route("DELETE", "/workers/{id}", Echo);
    for (auto& route : routes_)
      server_->Route(route.method, route.path, route.handler);
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
  IoRuntime runtime_{{.threads = 2, .thread_name = "io"}};
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
}

}  // namespace
}  // namespace kvr::net
