#include "net/http_client.h"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "net/http_server.h"
#include "net/net_test_util.h"

namespace kvr::net {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::NoDescriptors;
using testing::RawClient;
using testing::RawServer;
using testing::RunOn;

using FetchResult = Result<HttpResponse>;

Url Loopback(std::uint16_t port) {
  Url url;
  url.host = "127.0.0.1";
  url.port = port;
  return url;
}

HttpRequest Get(std::string target) {
  HttpRequest request;
  request.target = std::move(target);
  return request;
}

HttpRequest Post(std::string target, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.target = std::move(target);
  request.body = std::move(body);
  return request;
}

std::string Repeat(int times, std::string_view text) {
  std::string all;
  for (int i = 0; i < times; ++i)
    all += text;
  return all;
}

class HttpClientTest : public ::testing::Test {
 protected:
  void MakeClient(const HttpClient::Options& options) {
    client_ = std::make_unique<HttpClient>(runtime_, options);
  }
  FetchResult Fetch(const Url& peer, const HttpRequest& request) {
    return RunOn<FetchResult>(runtime_, [&] { return client_->Fetch(peer, request); });
  }
  // Fetches while the calling thread plays the server.
  std::future<FetchResult> FetchBeside(const Url& peer, HttpRequest request) {
    return std::async(std::launch::async,
                      [this, peer, request = std::move(request)] { return Fetch(peer, request); });
  }

  metrics::Registry registry_;
  IoRuntime runtime_{{.threads = 1, .thread_name = "io"}};
  std::unique_ptr<HttpClient> client_ =
      std::make_unique<HttpClient>(runtime_, HttpClient::Options{});
};

TEST_F(HttpClientTest, KeepsOneConnectionToOurServer) {
  HttpServer server(runtime_, registry_, {});
  server.Route("POST", "/echo", [](HttpExchange& exchange) -> Task<void> {
    HttpResponse response;
    response.body = std::move(exchange.request().body);
    response.headers.Add("X-Remote", exchange.remote());
    (void)co_await exchange.Respond(std::move(response));
  });
  ASSERT_TRUE(server.Start());
  std::string remote;
  for (int i = 0; i < 4; ++i) {
    const auto response = Fetch(Loopback(server.port()), Post("/echo?n=1", "hello"));
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "hello");
    const std::string from(*response->headers.Find("x-remote"));
    if (i > 0) {
      EXPECT_EQ(from, remote);
    }
    remote = from;
  }
}

TEST_F(HttpClientTest, SendsExactlyThis) {
  RawServer server;
  Url peer = Loopback(server.port());
  peer.prefix = "/base";
  HttpRequest request = Post("/a?b=c", "body");
  request.headers.Add("X-One", "1");
  request.headers.Add("host", "evil");
  request.headers.Add("content-length", "99");
  request.headers.Add("Transfer-Encoding", "chunked");
  auto answer = FetchBeside(peer, request);
  const auto connection = server.Accept();
  EXPECT_EQ(connection->ReadUntil("\r\n\r\n"),
            "POST /base/a?b=c HTTP/1.1\r\nHost: " + peer.authority() +
                "\r\nX-One: 1\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(connection->ReadBytes(4), "body");
  connection->Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(answer.get());
}

TEST_F(HttpClientTest, ReadsEveryFraming) {
  struct Case {
    std::string name;
    std::string method;
    std::string bytes;
    int status;
    std::string body;
  };
  const std::vector<Case> cases = {
      {"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
      {"chunks", "GET",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
       "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
       200, "abcde"},
      {"until close", "GET", "HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, "until the end"},
      {"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\n\r\nold", 200, "old"},
      {"nothing until close", "GET", "HTTP/1.1 200 OK\r\n\r\n", 200, ""},
      {"no content", "GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
      {"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, ""},
      {"head", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, ""},
      {"interim", "GET",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
       200, "ok"},
      {"interims at their limit", "GET",
       Repeat(16, "HTTP/1.1 102 Processing\r\n\r\n") +
           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
       200, "ok"},
      {"last status", "GET", "HTTP/1.1 599 Odd\r\nContent-Length: 0\r\n\r\n", 599, ""},
      {"error status", "GET", "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", 503, "busy"},
  };
  for (const Case& c : cases) {
    for (const bool split : {false, true}) {
      RawServer server;
      HttpRequest request = Get("/");
      request.method = c.method;
      auto answer = FetchBeside(Loopback(server.port()), request);
      auto connection = server.Accept();
      connection->ReadUntil("\r\n\r\n");
      for (std::size_t i = 0; split && i < c.bytes.size(); ++i)
        connection->Send(std::string_view(c.bytes).substr(i, 1));
      if (!split) connection->Send(c.bytes);
      connection->Close();
      const auto response = answer.get();
      ASSERT_TRUE(response) << c.name << ": " << response.error().message;
      EXPECT_EQ(response->status, c.status) << c.name;
      EXPECT_EQ(response->body, c.body) << c.name;
    }
  }
}

// What a peer can get wrong is kUpstream, whether it ends in good order or with a reset.
TEST_F(HttpClientTest, TellsABrokenAnswerFromACompleteOne) {
  struct Case {
    std::string bytes;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"", "without an answer"},
      {"HTTP/1.1 200 O", "within its answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "within its answer"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", "within its answer"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", "within its answer"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "no valid HTTP"},
      {"220 smtp ready\r\n\r\n", "no valid HTTP"},
      {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no valid HTTP"},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n", "no valid HTTP"},
      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "status 101"},
      {"HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n", "status 0"},
      {"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n", "status 600"},
      {"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "status 999"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", "transfer coding"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "transfer coding"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
       "0\r\n\r\n",
       "transfer coding"},
      {Repeat(17, "HTTP/1.1 100 Continue\r\n\r\n"), "more than 16 interim answers"},
  };
  for (const Case& c : cases) {
    RawServer server;
    auto answer = FetchBeside(Loopback(server.port()), Get("/"));
    auto connection = server.Accept();
    connection->ReadUntil("\r\n\r\n");
    connection->Send(c.bytes);
    connection->Close();
    const auto response = answer.get();
    ASSERT_FALSE(response) << c.bytes;
    EXPECT_EQ(response.error().code, ErrorCode::kUpstream) << response.error().message;
    EXPECT_THAT(response.error().message, HasSubstr(c.why));
  }
  // A reset before the end of a body that only the close would have ended.
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send("HTTP/1.1 200 OK\r\n\r\npart");
  connection->Reset();
  EXPECT_FALSE(answer.get());
}

// A peer that always says something, but never all of the head, gains no time by it.
TEST_F(HttpClientTest, TheTimeOutRunsOverTheWholeHead) {
  HttpClient::Options options;
  options.read_timeout = Millis(100);
  MakeClient(options);
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nX: ");
  using Clock = std::chrono::steady_clock;
  auto next = Clock::now();
  // The pace keeps the head below its limit in bytes for minutes.
  EXPECT_TRUE(Eventually([&] {
    if (Clock::now() < next) return false;
    next = Clock::now() + Millis(5);
    return !connection->Send("a");
  }));
  const auto response = answer.get();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kTimeout) << response.error().message;
}

TEST_F(HttpClientTest, NoConnectionIsUnavailable) {
  std::uint16_t port = 0;
  {
    const RawServer gone;
    port = gone.port();
  }
  const auto refused = Fetch(Loopback(port), Get("/"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("cannot connect to 127.0.0.1:"));
  Url nowhere = Loopback(80);
  nowhere.host = "two..dots";
  const auto unknown = Fetch(nowhere, Get("/"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(unknown.error().message, HasSubstr("cannot look up two..dots"));
}

// The peer is there; who blames it would take it out of service.
TEST_F(HttpClientTest, NoDescriptorsAreNotThePeersDoing) {
  SetLogLevel(LogLevel::kOff);
  RawServer server;
  Url nowhere = Loopback(80);
  nowhere.host = "two..dots";
  // A sanitizer needs descriptors of its own when it meets a type for the first time.
  EXPECT_FALSE(Fetch(nowhere, Get("/")));
  for (const Url& peer : {Loopback(server.port()), nowhere}) {
    const NoDescriptors none;
    const auto failed = Fetch(peer, Get("/"));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kOverloaded) << failed.error().message;
  }
  SetLogLevel(LogLevel::kWarn);
}

TEST_F(HttpClientTest, ReadOutGivesTheConnectionBack) {
  RawServer server;
  const HttpRequest request = Get("/");
  std::atomic<int> read = 0;
  const auto open = [&](Millis limit) -> Task<bool> {
    auto stream = co_await client_->Open(Loopback(server.port()), request);
    if (!stream) co_return false;
    const auto piece = co_await (*stream)->Read();
    if (!piece || *piece != "x") co_return false;
    ++read;
    co_await (*stream)->ReadOut(limit);
    co_return true;
  };
  const auto open_beside = [&](Millis limit) {
    return std::async(std::launch::async,
                      [&, limit] { return RunOn<bool>(runtime_, [&] { return open(limit); }); });
  };
  constexpr std::string_view kOneByte =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
  auto opened = open_beside(Millis(20'000));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send(kOneByte);
  EXPECT_TRUE(Eventually([&] { return read == 1; }));
  connection->Send("4\r\nmore\r\n0\r\n\r\n");
  EXPECT_TRUE(opened.get());
  // The same connection serves the next request; this time the peer does not come to an end.
  opened = open_beside(Millis(20));
  EXPECT_THAT(connection->ReadUntil("\r\n\r\n"), HasSubstr("GET / "));
  connection->Send(kOneByte);
  EXPECT_TRUE(opened.get());
  EXPECT_TRUE(connection->AtEnd());
}

TEST_F(HttpClientTest, LooksNamesUp) {
  RawServer server;
  Url peer = Loopback(server.port());
  peer.host = "localhost";
  auto answer = FetchBeside(peer, Get("/"));
  const auto connection = server.Accept();
  EXPECT_THAT(connection->ReadUntil("\r\n\r\n"), HasSubstr("Host: localhost:"));
  connection->Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(answer.get());
}

TEST_F(HttpClientTest, ASilentPeerTimesOut) {
  HttpClient::Options options;
  options.read_timeout = Millis{30};
  MakeClient(options);
  RawServer server;
  for (const std::string_view bytes :
       {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"}) {
    auto answer = FetchBeside(Loopback(server.port()), Get("/"));
    const auto connection = server.Accept();
    connection->ReadUntil("\r\n\r\n");
    connection->Send(bytes);
    const auto response = answer.get();
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, ErrorCode::kTimeout) << response.error().message;
  }
}

TEST_F(HttpClientTest, TheWholeExchangeMayHaveALimit) {
  RawServer server;
  const Url peer = Loopback(server.port());
  const HttpRequest request = Get("/");
  const auto response =
      RunOn<FetchResult>(runtime_, [&] { return client_->FetchWithin(Millis{30}, peer, request); });
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kTimeout);
}

TEST_F(HttpClientTest, AnAnswerBeyondTheLimitIsRefused) {
  HttpClient::Options options;
  options.response_bytes_max = 4;
  MakeClient(options);
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  const auto response = answer.get();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kTooLarge);
}

TEST_F(HttpClientTest, RequestsThatWouldBreakTheWireAreRefused) {
  HttpRequest header = Get("/");
  header.headers.Add("X", "a\r\nY: b");
  for (const HttpRequest& request : {Get("no slash"), Get("/a b"), Get("/\r\nX: y"), header}) {
    const auto response = Fetch(Loopback(1), request);
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().code, ErrorCode::kInvalidArgument);
  }
}

constexpr std::string_view kEmptyOk = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

// A kept connection that the peer closed meanwhile costs one more connection and no error, whether
// the close is seen before the request or only after it.
TEST_F(HttpClientTest, AStaleConnectionIsReplacedOnce) {
  for (const bool close_before_request : {true, false}) {
    RawServer server;
    auto first = FetchBeside(Loopback(server.port()), Get("/1"));
    auto old = server.Accept();
    old->ReadUntil("\r\n\r\n");
    old->Send(kEmptyOk);
    ASSERT_TRUE(first.get());
    if (close_before_request) old->Close();
    auto second = FetchBeside(Loopback(server.port()), Post("/2", "body"));
    if (!close_before_request) {
      EXPECT_THAT(old->ReadUntil("body"), HasSubstr("POST /2"));
      old->Close();
    }
    const auto fresh = server.Accept();
    EXPECT_THAT(fresh->ReadUntil("body"), HasSubstr("POST /2"));
    fresh->Send(kEmptyOk);
    const auto response = second.get();
    EXPECT_TRUE(response) << response.error().message;
  }
}

// The peer may have done already what it was asked for.
TEST_F(HttpClientTest, ARequestThatMustNotBeSentTwiceIsNot) {
  HttpClient::Options options;
  options.send_again = false;
  HttpClient client(runtime_, options);
  RawServer server;
  const auto fetch = [&](const HttpRequest& request) {
    return std::async(std::launch::async, [&, request] {
      Result<HttpResponse> answer = Fail(ErrorCode::kCancelled, "");
      runtime_.RunBlocking([&]() -> Task<void> {
        answer = co_await client.Fetch(Loopback(server.port()), request);
      });
      return answer;
    });
  };
  auto first = fetch(Get("/1"));
  auto old = server.Accept();
  old->ReadUntil("\r\n\r\n");
  old->Send(kEmptyOk);
  ASSERT_TRUE(first.get());
  auto second = fetch(Post("/2", "body"));
  EXPECT_THAT(old->ReadUntil("body"), HasSubstr("POST /2"));
  old->Close();
  const auto response = second.get();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUpstream);
}

TEST_F(HttpClientTest, APeerThatTakesNoConnectionIsUnavailable) {
  HttpClient::Options options;
  options.connect_timeout = Millis{50};
  MakeClient(options);
  const RawServer server(0);
  const RawClient waiting(server.port());
  const Url peer = Loopback(server.port());
  const HttpRequest request = Get("/");
  const auto response = Fetch(peer, request);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUnavailable) << response.error().message;
  const auto hurried =
      RunOn<FetchResult>(runtime_, [&] { return client_->FetchWithin(Millis{20}, peer, request); });
  ASSERT_FALSE(hurried);
  EXPECT_EQ(hurried.error().code, ErrorCode::kTimeout) << hurried.error().message;
}

TEST_F(HttpClientTest, NothingIsSentTwiceOnceAByteCameBack) {
  RawServer server;
  auto first = FetchBeside(Loopback(server.port()), Get("/1"));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send(kEmptyOk);
  ASSERT_TRUE(first.get());
  auto second = FetchBeside(Loopback(server.port()), Get("/2"));
  connection->ReadUntil("\r\n\r\n");
  connection->Send("H");
  connection->Close();
  const auto response = second.get();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUpstream);
}

TEST_F(HttpClientTest, AnIdleConnectionIsClosedInTime) {
  HttpClient::Options options;
  options.idle_timeout = Millis{30};
  MakeClient(options);
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send(kEmptyOk);
  ASSERT_TRUE(answer.get());
  EXPECT_TRUE(connection->AtEnd());
}

TEST_F(HttpClientTest, ConnectionsBeyondTheIdleLimitAreClosed) {
  HttpClient::Options options;
  options.idle_connections_max = 0;
  MakeClient(options);
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send(kEmptyOk);
  ASSERT_TRUE(answer.get());
  EXPECT_TRUE(connection->AtEnd());
}

TEST_F(HttpClientTest, ADestroyedClientClosesWhatItKept) {
  RawServer server;
  auto answer = FetchBeside(Loopback(server.port()), Get("/"));
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send(kEmptyOk);
  ASSERT_TRUE(answer.get());
  client_.reset();
  EXPECT_TRUE(connection->AtEnd());
}

// Pieces come out as they arrive, and leaving in the middle closes the connection.
TEST_F(HttpClientTest, StreamsPieceByPiece) {
  RawServer server;
  struct Progress {
    std::atomic<int> pieces{0};
    std::vector<std::string> seen;
  } progress;
  std::jthread reader([&] {
    runtime_.RunBlocking([&]() -> Task<void> {
      const HttpRequest request = Get("/");
      auto stream = co_await client_->Open(Loopback(server.port()), request);
      EXPECT_EQ((*stream)->headers().Find("x-a"), "b");
      EXPECT_EQ((*stream)->content_length(), std::nullopt);
      for (int i = 0; i < 3; ++i) {
        const auto piece = co_await (*stream)->Read();
        progress.seen.emplace_back(*piece);
        ++progress.pieces;
      }
    });
  });
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send("HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n");
  connection->Send("4\r\nab");  // half a chunk is a piece too
  ASSERT_TRUE(Eventually([&] { return progress.pieces == 1; }));
  connection->Send("cd\r\n");
  ASSERT_TRUE(Eventually([&] { return progress.pieces == 2; }));
  connection->Send("1\r\ne\r\n");
  EXPECT_TRUE(connection->AtEnd());
  reader.join();
  EXPECT_THAT(progress.seen, ::testing::ElementsAre("ab", "cd", "e"));
}

TEST_F(HttpClientTest, AnErrorStaysAnError) {
  RawServer server;
  std::vector<bool> ok;
  std::jthread reader([&] {
    runtime_.RunBlocking([&]() -> Task<void> {
      const HttpRequest request = Get("/");
      auto stream = co_await client_->Open(Loopback(server.port()), request);
      for (int i = 0; i < 3; ++i) {
        const auto piece = co_await (*stream)->Read();
        ok.push_back(piece.has_value());
      }
    });
  });
  const auto connection = server.Accept();
  connection->ReadUntil("\r\n\r\n");
  connection->Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab");
  connection->Close();
  reader.join();
  EXPECT_EQ(ok, (std::vector<bool>{true, false, false}));
}

}  // namespace
}  // namespace kvr::net
