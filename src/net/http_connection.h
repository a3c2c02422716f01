// One client connection of an HttpServer. For this module only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "metrics/registry.h"
#include "net/body_budget.h"
#include "net/http_parser.h"
#include "net/http_routes.h"
#include "net/http_server.h"
#include "net/io_runtime_impl.h"
#include "net/timed_socket.h"

namespace kvr::net {

struct ServerMetrics {
  ServerMetrics(metrics::Registry& registry, const std::string& server);

  void CountAnswer(int status);
  static metrics::Counter& Rejected(metrics::Registry& registry, const std::string& server,
                                    const std::string& reason);

  std::array<metrics::Counter*, 4> answers;  // 2xx to 5xx
  metrics::Gauge& connections;
  metrics::Gauge& body_bytes;
  metrics::Counter& handler_errors;
  metrics::Counter& client_gone;
  metrics::Counter& cap;
  metrics::Counter& bad_request;
  metrics::Counter& head_too_large;
  metrics::Counter& body_too_large;
  metrics::Counter& body_budget;
  metrics::Counter& early_bytes;
  metrics::Counter& head_timeout;
  metrics::Counter& body_timeout;
  metrics::Counter& write_timeout;
  metrics::Counter& accept_errors;
};

// What all connections of a server share. Fixed once it has started, but for
// `draining` and what is taken from `bodies`.
struct ServerCore {
  ServerCore(metrics::Registry& registry, const HttpServer::Options& server_options)
      : options(server_options),
        metrics(registry, server_options.name),
        bodies(server_options.bodies_bytes_max, metrics.body_bytes) {
    bodies.MakeRoomFor(server_options.body_bytes_max);
  }

  const HttpServer::Options options;
  HttpRoutes routes;
  HttpServer::ErrorWriter write_error;
  HttpServer::RefusalObserver on_refusal;
  ServerMetrics metrics;
  BodyBudget bodies;
  LogLimiter error_log{std::chrono::seconds(1)};
  LogLimiter accept_log{std::chrono::seconds(10)};
  std::atomic<bool> draining{false};
};

// Lives on one I/O thread, kept alive by the task that runs Serve.
//
// Bytes are always received by one asynchronous read into `in_`, whoever needs them. While a
// handler runs the same read goes on: bytes that come early belong to the next request and stay in
// the buffer, and the end of the stream is how a client that went away is noticed. Early bytes that
// the buffer has no room for are dropped, and the connection ends with the answer under way: the
// client has to send again what was not answered.
class HttpConnection final : public HttpExchange,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<ServerCore> core, boost::asio::ip::tcp::socket socket);

  // Answers requests until the connection ends.
  Task<void> Serve();
  // Says 503 in place of Serve and ends the connection.
  Task<void> TurnAway();
  void SetTask(std::shared_ptr<RootTask> task) { task_ = std::move(task); }
  // Ends the connection now if it is between requests, else after the present one.
  void Drain();
  // Cancels a running handler and ends the connection.
  void Cancel();

  HttpRequest& request() override { return request_; }
  std::string_view remote() const override { return remote_; }
  void ReleaseBody() override;
  Task<Result<void>> Respond(HttpResponse response) override;
  Task<Result<void>> BeginStream(int status, const HttpHeaders& headers,
                                 std::optional<std::uint64_t> length) override;
  Task<Result<void>> Write(std::string_view piece) override;
  Task<Result<void>> EndStream() override;
  void SetLastWords(std::string_view words) override { last_words_ = words; }
  void Abort() override;
  bool answered() const override { return answer_ != Answer::kNone; }
  bool stopped() const override { return cancelled_ && !gone_; }

 private:
  enum class Phase : std::uint8_t { kIdle, kReceiving, kHandling, kClosing };
  enum class Answer : std::uint8_t { kNone, kStreaming, kDone };
  enum class Framing : std::uint8_t { kNoBody, kLength, kChunked, kUntilClose };
  enum class Fill : std::uint8_t { kData, kEnd, kTimeout };
  // What follows a request.
  enum class Next : std::uint8_t { kRequest, kLinger, kClose };

  // Receiving.
  void StartRead();
  void DropEarlyBytes();
  void OnRead(TimedSocket::ErrorCode error, std::size_t bytes);
  Task<Fill> FillMore(TimePoint deadline);

  // One request.
  Task<Next> ServeOne();
  Task<Fill> AwaitRequest();
  Task<Next> ReceiveHead(RequestParser& parser);
  Task<Next> ReceiveBody(RequestParser& parser);
  Task<Next> Refuse(int status, ErrorCode code, std::string_view message, std::string_view allow);
  Task<Next> Dispatch(const HttpRoute& route);
  Task<void> RunHandler(const HttpRoute& route);
  Next AfterHandler();
  Task<void> Linger();

  // Sending.
  void ComposeHead(int status, const HttpHeaders& headers, std::optional<std::uint64_t> length);
  Task<Result<void>> Send(Gather data);
  void SendLastWords();
  Result<void> AfterWrite(TimedSocket::ErrorCode error);
  Task<Result<void>> Failed(ErrorCode code, std::string_view message);

  const std::shared_ptr<ServerCore> core_;
  TimedSocket socket_;
  std::string remote_;
  std::shared_ptr<RootTask> task_;

  ReadBuffer in_;
  bool reading_ = false;
  bool ended_ = false;                // the client sends no more
  bool dropped_early_ = false;        // the connection ends with the present answer
  boost::asio::steady_timer wakeup_;  // cancelled when something came in

  Phase phase_ = Phase::kIdle;
  bool gone_ = false;
  bool cancelled_ = false;
  bool handler_failed_ = false;

  HttpRequest request_;
  BodyShare share_;  // of its body
  bool http11_ = true;
  bool head_request_ = false;
  bool keep_alive_ = false;

  Answer answer_ = Answer::kNone;
  Framing framing_ = Framing::kNoBody;
  int status_ = 0;
  std::uint64_t length_left_ = 0;
  bool sending_ = false;  // a part of something may have gone out
  std::string_view last_words_;
  bool broken_ = false;  // the connection cannot carry another answer
  std::string head_;     // reused
  std::array<char, 24> chunk_head_{};
};

}  // namespace kvr::net
