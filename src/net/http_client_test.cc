#include "net/http_client.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http_server.h"
#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using testing::RawClient;
using testing::RawServer;

Task<void> Echo(HttpExchange& exchange) {
  HttpResponse response;
  response.body = exchange.request().method + " " + exchange.request().target + " [" +
                  exchange.request().body + "]";
  (void)co_await exchange.Respond(std::move(response));
}

class HttpClientTest : public ::testing::Test {
 protected:
  Result<HttpResponse> Fetch(std::uint16_t port, HttpRequest request) {
    Url url;
    url.host = "127.0.0.1";
    url.port = port;
    return testing::RunOn<Result<HttpResponse>>(
        runtime_, [&]() -> Task<Result<HttpResponse>> { return client_->Fetch(url, request); });
  }

  metrics::Registry registry_;
  IoRuntime runtime_{{.threads = 2, .thread_name = "io"}};
  std::unique_ptr<HttpClient> client_ =
      std::make_unique<HttpClient>(runtime_, HttpClient::Options{});
};

TEST_F(HttpClientTest, FetchesFromOurServer) {
  HttpServer server(runtime_, registry_, {});
  server.Route("POST", "/echo", Echo);
  ASSERT_TRUE(server.Start());
  for (int i = 0; i < 4; ++i) {
    HttpRequest request;
    request.method = "POST";
    request.target = "/echo?n=1";
    request.body = "hello";
    const auto response = Fetch(server.port(), request);
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "POST /echo?n=1 [hello]");
  }
  EXPECT_EQ(testing::Series(registry_, "kvr_net_http_connections{server=\"http\"}"), 2);
}

}  // namespace
}  // namespace kvr::net
