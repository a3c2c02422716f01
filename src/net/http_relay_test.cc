// A relay as the gateway builds it: client → relay server → HttpClient → upstream server.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using testing::Eventually;
using testing::RawClient;
using testing::RawServer;

class HttpRelayTest : public ::testing::Test {
 protected:
  struct Guard {
    std::atomic<int>& count;
    explicit Guard(std::atomic<int>& c) : count(c) { ++count; }
    ~Guard() { --count; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
  };

  void StartRelay(std::uint16_t upstream) {
    upstream_.host = "127.0.0.1";
    upstream_.port = upstream;
    relay_.Route("GET", "/{id}", [this](HttpExchange& exchange) { return Relay(exchange); });
    ASSERT_TRUE(relay_.Start());
  }

  Task<void> Relay(HttpExchange& exchange) {
    const Guard guard(running_);
    auto opened = co_await client_.Open(upstream_, exchange.request());
    if (!opened) {
      HttpResponse error = JsonError(opened.error());
      (void)co_await exchange.Respond(std::move(error));
      co_return;
    }
    HttpStream& stream = **opened;
    auto sent = co_await exchange.BeginStream(stream.status(), stream.headers());
    while (sent) {
      const auto piece = co_await stream.Read();
      if (!piece) {
        exchange.Abort();
        co_return;
      }
      if (piece->empty()) break;
      sent = co_await exchange.Write(*piece);
    }
    if (sent) (void)co_await exchange.EndStream();
  }

  metrics::Registry registry_;
  IoRuntime runtime_{{.threads = 1, .thread_name = "io"}};
  HttpClient client_{runtime_, {}};
  Url upstream_;
  std::atomic<int> running_ = 0;
  HttpServer relay_{runtime_, registry_, {.name = "relay"}};
};

// The upstream produces a piece only after the last one has come out at the far end, so a stream in
// which any part held a piece back would never end.
TEST_F(HttpRelayTest, NoPieceWaitsForTheNextIn200Streams) {
  constexpr std::size_t kStreams = 200;
  constexpr int kPieces = 20;
  struct StreamState {
    Signal arrived;
    int received = 0;
    bool intact = true;
  };
  std::vector<StreamState> states(kStreams);  // the I/O thread's
  std::atomic<std::size_t> finished = 0;
  const auto text = [](std::size_t id, int k) { return fmt::format("data: {}/{}\n\n", id, k); };

  HttpServer upstream(runtime_, registry_, {.name = "upstream"});
  upstream.Route("GET", "/{id}", [&](HttpExchange& exchange) -> Task<void> {
    const std::size_t id = std::stoul(exchange.request().target.substr(1));
    const HttpHeaders headers;
    (void)co_await exchange.BeginStream(200, headers);
    for (int k = 0; k < kPieces; ++k) {
      while (states[id].received < k)
        co_await states[id].arrived.Wait();
      const std::string piece = text(id, k);
      const auto sent = co_await exchange.Write(piece);
      if (!sent) co_return;
    }
    (void)co_await exchange.EndStream();
  });
  ASSERT_TRUE(upstream.Start());
  StartRelay(upstream.port());

  Url relay = upstream_;
  relay.port = relay_.port();
  for (std::size_t id = 0; id < kStreams; ++id) {
    runtime_.Spawn([&, id]() -> Task<void> {
      StreamState& state = states[id];
      HttpRequest request;
      request.target = "/" + std::to_string(id);
      auto stream = co_await client_.Open(relay, request);
      while (stream) {
        const auto piece = co_await (*stream)->Read();
        if (!piece || piece->empty()) break;
        state.intact &= *piece == text(id, state.received);
        ++state.received;
        state.arrived.Notify();
      }
      ++finished;
    });
  }
  ASSERT_TRUE(Eventually([&] { return finished == kStreams; }));
  runtime_.RunBlocking([&]() -> Task<void> {
    for (const StreamState& state : states) {
      EXPECT_EQ(state.received, kPieces);
      EXPECT_TRUE(state.intact);
    }
    co_return;
  });
  upstream.Stop(Millis{0});
  relay_.Stop(Millis{0});
}

TEST_F(HttpRelayTest, AClientThatLeavesEndsTheUpstreamRequest) {
  RawServer upstream;
  StartRelay(upstream.port());
  for (const bool before_head : {true, false}) {
    RawClient client(relay_.port());
    client.Send("GET /1 HTTP/1.1\r\n\r\n");
    const auto engine = upstream.Accept();
    engine->ReadUntil("\r\n\r\n");
    if (!before_head) {
      engine->Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
      client.ReadUntil("1\r\na\r\n");
    }
    client.Close();
    EXPECT_EQ(engine->ReadToEnd(), "");  // the relay closed the upstream connection
    EXPECT_TRUE(Eventually([&] { return running_ == 0; }));
  }
  relay_.Stop(Millis{0});
}

TEST_F(HttpRelayTest, AnUpstreamThatBreaksOffIsNoCleanEnd) {
  RawServer upstream;
  StartRelay(upstream.port());
  RawClient client(relay_.port());
  client.Send("GET /1 HTTP/1.1\r\n\r\n");
  const auto engine = upstream.Accept();
  engine->ReadUntil("\r\n\r\n");
  engine->Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
  client.ReadUntil("1\r\na\r\n");
  engine->Reset();
  EXPECT_EQ(client.ReadToEnd(), "");
  relay_.Stop(Millis{0});
}

// A slow client must not make the relay hoard what a fast upstream sends.
TEST_F(HttpRelayTest, ASlowClientHoldsTheUpstreamBack) {
  constexpr std::size_t kPiece = 64u << 10;
  constexpr std::size_t kTotal = 128u << 20;
  constexpr std::size_t kSocketsHold = 64u << 20;  // of two connections
  std::atomic<std::size_t> produced = 0;
  HttpServer upstream(runtime_, registry_, {.name = "upstream"});
  upstream.Route("GET", "/{id}", [&](HttpExchange& exchange) -> Task<void> {
    const HttpHeaders headers;
    const std::string piece(kPiece, 'x');
    auto sent = co_await exchange.BeginStream(200, headers, kTotal);
    while (sent && produced < kTotal) {
      sent = co_await exchange.Write(piece);
      produced += kPiece;
    }
    if (sent) (void)co_await exchange.EndStream();
  });
  ASSERT_TRUE(upstream.Start());
  StartRelay(upstream.port());
  RawClient client(relay_.port(), 64 << 10);
  client.Send("GET /1 HTTP/1.0\r\n\r\n");
  client.ReadUntil("\r\n\r\n");
  for (std::size_t read = 0; read < kTotal; read += kPiece) {
    ASSERT_LE(produced.load(), read + kSocketsHold);
    ASSERT_EQ(client.ReadBytes(kPiece).size(), kPiece);
  }
  EXPECT_EQ(client.ReadToEnd(), "");
  relay_.Stop(Millis{0});
  upstream.Stop(Millis{0});
}

}  // namespace
}  // namespace kvr::net
