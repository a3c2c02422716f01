#include "net/http_connection.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/check.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// After the last answer the client gets this long to take it and close; what it still sends is read
// and dropped meanwhile, because closing on unread bytes would reset the connection and may destroy
// the answer on its way.
constexpr Millis kLingerTime{2'000};
constexpr std::size_t kLingerBytesMax = 16u << 20;

// Seconds after which a client that found the server full may try again.
constexpr std::string_view kRetryAfter = "1";

// The framing of a message belongs to the server.
bool IsFramingHeader(std::string_view name) {
  return EqualsIgnoreCase(name, "Content-Length") || EqualsIgnoreCase(name, "Transfer-Encoding") ||
         EqualsIgnoreCase(name, "Connection") || EqualsIgnoreCase(name, "Keep-Alive");
}

// Appends text that must not end the line it is on.
void AppendLineText(std::string& out, std::string_view text) {
  for (const char c : text)
    out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
}

void AppendDate(std::string& out) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  fmt::format_to(std::back_inserter(out), "Date: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", utc);
}

bool HasNoBody(int status) {
  return status == 204 || status == 304;
}

}  // namespace

ServerMetrics::ServerMetrics(metrics::Registry& registry, const std::string& server)
    : connections(registry.AddGauge("kvr_net_http_connections", "Open client connections.",
                                    {{"server", server}})),
      body_bytes(registry.AddGauge("kvr_net_http_body_bytes",
                                   "Memory of the request bodies being read or held.",
                                   {{"server", server}})),
      handler_errors(registry.AddCounter(
          "kvr_net_http_handler_errors_total",
          "Requests whose handler threw, gave no answer or left a stream unfinished.",
          {{"server", server}})),
      client_gone(registry.AddCounter("kvr_net_http_client_gone_total",
                                      "Requests whose client left before the answer was complete.",
                                      {{"server", server}})),
      cap(Rejected(registry, server, "connection_cap")),
      bad_request(Rejected(registry, server, "bad_request")),
      head_too_large(Rejected(registry, server, "head_too_large")),
      body_too_large(Rejected(registry, server, "body_too_large")),
      body_budget(Rejected(registry, server, "body_budget")),
      early_bytes(Rejected(registry, server, "early_bytes")),
      head_timeout(Rejected(registry, server, "head_timeout")),
      body_timeout(Rejected(registry, server, "body_timeout")),
      write_timeout(Rejected(registry, server, "write_timeout")),
      accept_errors(registry.AddCounter("kvr_net_http_accept_errors_total",
                                        "Connections that could not be accepted.",
                                        {{"server", server}})) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i] = &registry.AddCounter("kvr_net_http_requests_total", "Answers by status class.",
                                      {{"server", server}, {"status", fmt::format("{}xx", i + 2)}});
  }
}

metrics::Counter& ServerMetrics::Rejected(metrics::Registry& registry, const std::string& server,
                                          const std::string& reason) {
  return registry.AddCounter("kvr_net_http_rejected_total",
                             "Connections and requests that the server itself refused or dropped.",
                             {{"server", server}, {"reason", reason}});
}

void ServerMetrics::CountAnswer(int status) {
  const auto last = static_cast<int>(answers.size()) - 1;
  answers[static_cast<std::size_t>(std::clamp(status / 100 - 2, 0, last))]->Add();
}

HttpConnection::HttpConnection(std::shared_ptr<ServerCore> core, asio::ip::tcp::socket socket)
    : core_(std::move(core)),
      socket_(std::move(socket)),
      in_(std::max<std::size_t>(core_->options.header_bytes_max, 16u << 10)),
      wakeup_(socket_.raw().get_executor()),
      share_(core_->bodies) {
  socket_.Configure();
  TimedSocket::ErrorCode error;
  const auto peer = socket_.raw().remote_endpoint(error);
  if (!error) {
    const std::string address = peer.address().to_string();
    remote_ = peer.address().is_v6() ? fmt::format("[{}]:{}", address, peer.port())
                                     : fmt::format("{}:{}", address, peer.port());
  }
}

void HttpConnection::Drain() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kClosing) wakeup_.cancel();
}

void HttpConnection::Cancel() {
  cancelled_ = true;
  if (task_) task_->Cancel();
}

void HttpConnection::ReleaseBody() {
  std::string().swap(request_.body);  // an assignment would keep the memory
  share_.Release();
}

void HttpConnection::StartRead() {
  if (reading_ || ended_) return;
  if (phase_ == Phase::kHandling && in_.full()) DropEarlyBytes();
  const asio::mutable_buffer room = in_.Prepare();
  if (room.size() == 0) return;
  reading_ = true;
  socket_.raw().async_read_some(
      room, [self = shared_from_this()](TimedSocket::ErrorCode error, std::size_t bytes) {
        self->OnRead(error, bytes);
      });
}

// Only reading shows the end of the stream behind them. What follows has no beginning any more, so
// the present answer is the last one.
void HttpConnection::DropEarlyBytes() {
  if (!std::exchange(dropped_early_, true)) core_->metrics.early_bytes.Add();
  in_.Consume(in_.size());
  keep_alive_ = false;
}

void HttpConnection::OnRead(TimedSocket::ErrorCode error, std::size_t bytes) {
  reading_ = false;
  in_.Commit(bytes);
  if (error) ended_ = true;
  if (phase_ != Phase::kHandling) {
    wakeup_.cancel();
  } else if (ended_ && answer_ != Answer::kDone) {
    gone_ = true;
    Cancel();
  } else {
    StartRead();
  }
}

Task<HttpConnection::Fill> HttpConnection::FillMore(TimePoint deadline) {
  const std::size_t had = in_.size();
  while (true) {
    if (in_.size() > had) co_return Fill::kData;
    if (ended_ || in_.full()) co_return Fill::kEnd;
    if (core_->draining.load(std::memory_order_relaxed) && phase_ != Phase::kReceiving)
      co_return Fill::kEnd;
    if (Clock::now() >= deadline) co_return Fill::kTimeout;
    StartRead();
    wakeup_.expires_at(deadline);
    co_await wakeup_.async_wait(asio::as_tuple(asio::use_awaitable));
    if (cancelled_) co_return Fill::kEnd;
  }
}

Task<void> HttpConnection::Serve() {
  Next next = Next::kRequest;
  while (next == Next::kRequest) {
    next = co_await ServeOne();
    ReleaseBody();
  }
  phase_ = Phase::kClosing;
  if (next == Next::kLinger) {
    co_await Linger();
  }
  socket_.Close();
}

Task<void> HttpConnection::TurnAway() {
  phase_ = Phase::kClosing;
  const std::string message = fmt::format("the limit of {} connections is reached, retry later",
                                          core_->options.connections_max);
  HttpResponse response = core_->write_error(503, CodeName(ErrorCode::kOverloaded), message);
  response.headers.Set("Retry-After", kRetryAfter);
  (void)co_await Respond(std::move(response));
  if (!broken_) {
    co_await Linger();
  }
  socket_.Close();
}

Task<HttpConnection::Next> HttpConnection::ServeOne() {
  phase_ = Phase::kIdle;
  answer_ = Answer::kNone;
  last_words_ = {};
  if (co_await AwaitRequest() != Fill::kData) co_return Next::kClose;
  phase_ = Phase::kReceiving;

  RequestParser parser(core_->options.header_bytes_max);
  Next next = co_await ReceiveHead(parser);
  if (next != Next::kRequest) co_return next;

  const HttpRoutes::Match match = core_->routes.Find(request_.method, request_.path());
  const bool has_body = !parser.is_done();
  if (match.route == nullptr) {
    // Its body is of no interest, so the connection ends rather than reading it.
    if (has_body) keep_alive_ = false;
    if (!match.path_known) {
      const std::string message = fmt::format("no route {}", request_.path());
      co_return co_await Refuse(404, ErrorCode::kNotFound, message, {});
    }
    const std::string message =
        fmt::format("{} takes {}, not {}", request_.path(), match.allow, request_.method);
    co_return co_await Refuse(405, ErrorCode::kMethodNotAllowed, message, match.allow);
  }
  if (has_body) {
    const std::size_t bytes_max = match.route->body_bytes_max != 0 ? match.route->body_bytes_max
                                                                   : core_->options.body_bytes_max;
    parser.LimitBody(bytes_max, share_);
    next = co_await ReceiveBody(parser);
    if (next != Next::kRequest) {
      if (answer_ == Answer::kDone && core_->on_refusal)
        core_->on_refusal(request_.path(), status_);
      co_return next;
    }
  }
  request_.body = std::move(parser.request().body);
  co_return co_await Dispatch(*match.route);
}

// Waits for the first byte of a request. Empty lines before it are skipped, as RFC 9112 §2.2 asks.
Task<HttpConnection::Fill> HttpConnection::AwaitRequest() {
  // A client that sends many requests at once takes turns with the others of this thread.
  if (!in_.empty()) {
    co_await asio::post(asio::use_awaitable);
  }
  const TimePoint deadline = After(core_->options.idle_timeout);
  while (true) {
    const std::string_view bytes = in_.view();
    in_.Consume(std::min(bytes.find_first_not_of("\r\n"), bytes.size()));
    if (!in_.empty()) co_return Fill::kData;
    const Fill fill = co_await FillMore(deadline);
    if (fill != Fill::kData) co_return fill;
  }
}

Task<HttpConnection::Next> HttpConnection::ReceiveHead(RequestParser& parser) {
  const TimePoint deadline = After(core_->options.header_timeout);
  keep_alive_ = false;
  head_request_ = false;
  http11_ = true;
  while (true) {
    ParseError error;
    in_.Consume(parser.Put(in_.view(), error));
    if (error == HeadTooLarge()) {
      core_->metrics.head_too_large.Add();
      const std::string message =
          fmt::format("request head exceeds {} bytes", core_->options.header_bytes_max);
      co_return co_await Refuse(431, ErrorCode::kTooLarge, message, {});
    }
    if (error) {
      core_->metrics.bad_request.Add();
      const std::string message = fmt::format("malformed HTTP request: {}", error.message());
      co_return co_await Refuse(400, ErrorCode::kInvalidArgument, message, {});
    }
    if (parser.is_header_done()) break;
    const Fill fill = co_await FillMore(deadline);
    if (fill == Fill::kEnd) co_return Next::kClose;
    if (fill == Fill::kTimeout) {
      core_->metrics.head_timeout.Add();
      const std::string message = fmt::format("request head not complete within {} ms",
                                              core_->options.header_timeout.count());
      co_return co_await Refuse(408, ErrorCode::kTimeout, message, {});
    }
  }
  request_ = std::move(parser.request());
  http11_ = parser.http11();
  head_request_ = request_.method == "HEAD";
  // A body whose end two readers could see in different places is a way to smuggle requests.
  if (!HasKnownCoding(request_.headers, parser.chunked())) {
    core_->metrics.bad_request.Add();
    co_return co_await Refuse(501, ErrorCode::kInvalidArgument,
                              "the only transfer coding taken is chunked", {});
  }
  keep_alive_ = parser.keep_alive() && (http11_ || !parser.chunked());
  co_return Next::kRequest;
}

Task<HttpConnection::Next> HttpConnection::ReceiveBody(RequestParser& parser) {
  const TimePoint deadline = After(core_->options.body_timeout);
  const auto too_large = [&] {
    core_->metrics.body_too_large.Add();
    return fmt::format("request body exceeds {} bytes", parser.body_limit_bytes());
  };
  if (parser.declared_length().value_or(0) > parser.body_limit_bytes()) {
    const std::string message = too_large();
    keep_alive_ = false;
    co_return co_await Refuse(413, ErrorCode::kTooLarge, message, {});
  }
  const auto expect = request_.headers.Find("Expect");
  if (expect && http11_ && EqualsIgnoreCase(*expect, "100-continue") && in_.empty()) {
    const Gather interim({"HTTP/1.1 100 Continue\r\n\r\n"});
    const auto sent = co_await Send(interim);
    if (!sent) co_return Next::kClose;
  }
  while (!parser.is_done()) {
    ParseError error;
    in_.Consume(parser.Put(in_.view(), error));
    if (error) keep_alive_ = false;
    if (error == BodyTooLarge()) {
      const std::string message = too_large();
      co_return co_await Refuse(413, ErrorCode::kTooLarge, message, {});
    }
    if (error == NoRoomForBody()) {
      core_->metrics.body_budget.Add();
      const std::string message =
          fmt::format("request bodies fill the {} bytes this server has for them, retry later",
                      core_->bodies.bytes_max());
      co_return co_await Refuse(503, ErrorCode::kOverloaded, message, {});
    }
    if (error) {
      core_->metrics.bad_request.Add();
      const std::string message = fmt::format("malformed request body: {}", error.message());
      co_return co_await Refuse(400, ErrorCode::kInvalidArgument, message, {});
    }
    if (parser.is_done()) break;
    const Fill fill = co_await FillMore(deadline);
    if (fill == Fill::kEnd && in_.full()) {  // the parser leaves only an endless chunk header
      keep_alive_ = false;
      core_->metrics.bad_request.Add();
      co_return co_await Refuse(400, ErrorCode::kInvalidArgument, "chunk header too long", {});
    }
    if (fill == Fill::kEnd) co_return Next::kClose;
    if (fill == Fill::kTimeout) {
      core_->metrics.body_timeout.Add();
      keep_alive_ = false;
      const std::string message = fmt::format("request body not complete within {} ms",
                                              core_->options.body_timeout.count());
      co_return co_await Refuse(408, ErrorCode::kTimeout, message, {});
    }
  }
  co_return Next::kRequest;
}

// Answers for the server itself.
Task<HttpConnection::Next> HttpConnection::Refuse(int status, ErrorCode code,
                                                  std::string_view message,
                                                  std::string_view allow) {
  HttpResponse response = core_->write_error(status, CodeName(code), message);
  if (!allow.empty()) response.headers.Set("Allow", allow);
  if (status == 503) response.headers.Set("Retry-After", kRetryAfter);
  (void)co_await Respond(std::move(response));
  co_return AfterHandler();
}

Task<HttpConnection::Next> HttpConnection::Dispatch(const HttpRoute& route) {
  const TimePoint start = Clock::now();
  phase_ = Phase::kHandling;
  if (ended_) gone_ = true;  // left between the last byte of the request and now
  if (!reading_) in_.Shrink();
  StartRead();
  if (!gone_) {
    co_await RunHandler(route);
  }
  phase_ = Phase::kReceiving;
  if (route.seconds != nullptr)
    route.seconds->Observe(std::chrono::duration<double>(Clock::now() - start).count());
  if (gone_) {
    core_->metrics.client_gone.Add();
    co_return Next::kClose;
  }
  if (cancelled_) {
    if (answer_ == Answer::kNone) {
      // The task is cancelled and cannot wait: what the kernel takes at once has to do.
      keep_alive_ = false;
      const HttpResponse response =
          core_->write_error(503, CodeName(ErrorCode::kCancelled), "the server is shutting down");
      ComposeHead(response.status, response.headers, response.body.size());
      Gather data({head_, head_request_ ? std::string_view() : response.body});
      TimedSocket::ErrorCode ignored;
      socket_.TryWrite(data, ignored);
      core_->metrics.CountAnswer(response.status);
    }
    SendLastWords();
    co_return Next::kClose;
  }
  if (answer_ == Answer::kNone) {
    core_->metrics.handler_errors.Add();
    co_return co_await Refuse(500, ErrorCode::kInternal, "internal error", {});
  }
  if (handler_failed_ || answer_ == Answer::kStreaming) core_->metrics.handler_errors.Add();
  co_return AfterHandler();
}

Task<void> HttpConnection::RunHandler(const HttpRoute& route) {
  handler_failed_ = false;
  std::string reason;
  try {
    co_await route.handler(*this);
  } catch (const std::exception& error) {
    reason = error.what();
    handler_failed_ = true;
  } catch (...) {
    reason = "unknown exception";
    handler_failed_ = true;
  }
  std::uint64_t suppressed = 0;
  if (handler_failed_ && !cancelled_ &&
      core_->error_log.Pass(Clock::now().time_since_epoch(), suppressed)) {
    KVR_ERROR("handler of {} {} failed: {} ({} more like it)", route.method, route.path, reason,
              suppressed);
  }
}

HttpConnection::Next HttpConnection::AfterHandler() {
  if (answer_ == Answer::kStreaming) Abort();  // the client must not take it for complete
  if (broken_) return Next::kClose;
  return keep_alive_ ? Next::kRequest : Next::kLinger;
}

Task<void> HttpConnection::Linger() {
  TimedSocket::ErrorCode error;
  socket_.raw().shutdown(asio::socket_base::shutdown_send, error);
  const TimePoint deadline = After(kLingerTime);
  std::size_t dropped = 0;
  while (!error && dropped < kLingerBytesMax) {
    dropped += in_.size();
    in_.Consume(in_.size());
    if (co_await FillMore(deadline) != Fill::kData) break;
  }
}

void HttpConnection::ComposeHead(int status, const HttpHeaders& headers,
                                 std::optional<std::uint64_t> length) {
  if (core_->draining.load(std::memory_order_relaxed)) keep_alive_ = false;
  if (HasNoBody(status)) {
    framing_ = Framing::kNoBody;
  } else if (length) {
    framing_ = Framing::kLength;
    length_left_ = *length;
  } else {
    framing_ = http11_ ? Framing::kChunked : Framing::kUntilClose;
  }
  if (framing_ == Framing::kUntilClose) keep_alive_ = false;
  status_ = status;

  const auto reason = boost::beast::http::obsolete_reason(
      static_cast<boost::beast::http::status>(static_cast<unsigned>(status)));
  head_.clear();
  fmt::format_to(std::back_inserter(head_), "HTTP/1.1 {} ", status);
  head_.append(reason.data(), reason.size());
  head_ += "\r\n";
  for (const auto& [name, value] : headers.all()) {
    if (IsFramingHeader(name)) continue;
    AppendLineText(head_, name);
    head_ += ": ";
    AppendLineText(head_, value);
    head_ += "\r\n";
  }
  if (!headers.Find("Date")) AppendDate(head_);
  if (framing_ == Framing::kLength)
    fmt::format_to(std::back_inserter(head_), "Content-Length: {}\r\n", *length);
  if (framing_ == Framing::kChunked) head_ += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_) {
    head_ += "Connection: close\r\n";
  } else if (!http11_) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
  if (head_request_) framing_ = Framing::kNoBody;
}

Task<Result<void>> HttpConnection::Respond(HttpResponse response) {
  KVR_CHECK(answer_ == Answer::kNone);
  ComposeHead(response.status, response.headers, response.body.size());
  answer_ = Answer::kDone;
  core_->metrics.CountAnswer(response.status);
  const bool body = framing_ != Framing::kNoBody;
  const Gather data({head_, body ? std::string_view(response.body) : std::string_view()});
  co_return co_await Send(data);
}

Task<Result<void>> HttpConnection::BeginStream(int status, const HttpHeaders& headers,
                                               std::optional<std::uint64_t> length) {
  KVR_CHECK(answer_ == Answer::kNone);
  ComposeHead(status, headers, length);
  answer_ = Answer::kStreaming;
  core_->metrics.CountAnswer(status);
  return Send(Gather({head_}));
}

Task<Result<void>> HttpConnection::Write(std::string_view piece) {
  KVR_CHECK(answer_ == Answer::kStreaming || broken_);
  if (broken_ || piece.empty() || framing_ == Framing::kNoBody) return Send(Gather({}));
  if (framing_ == Framing::kUntilClose) return Send(Gather({piece}));
  if (framing_ == Framing::kLength) {
    if (piece.size() > length_left_) {
      Abort();
      return Failed(ErrorCode::kInternal, "more body than the announced Content-Length");
    }
    length_left_ -= piece.size();
    return Send(Gather({piece}));
  }
  char* const end = std::to_chars(chunk_head_.data(), chunk_head_.data() + chunk_head_.size() - 2,
                                  piece.size(), 16)
                        .ptr;
  end[0] = '\r';
  end[1] = '\n';
  const std::string_view size(chunk_head_.data(),
                              static_cast<std::size_t>(end + 2 - chunk_head_.data()));
  return Send(Gather({size, piece, "\r\n"}));
}

Task<Result<void>> HttpConnection::EndStream() {
  KVR_CHECK(answer_ == Answer::kStreaming || broken_);
  if (!broken_ && framing_ == Framing::kLength && length_left_ > 0) {
    Abort();
    return Failed(ErrorCode::kInternal, "less body than the announced Content-Length");
  }
  answer_ = Answer::kDone;
  return Send(framing_ == Framing::kChunked ? Gather({"0\r\n\r\n"}) : Gather({}));
}

void HttpConnection::Abort() {
  phase_ = Phase::kClosing;  // the end of our own read is no sign of the client
  broken_ = true;
  answer_ = Answer::kDone;
  if (framing_ == Framing::kUntilClose) {
    socket_.Reset();  // a plain close would look like the end of the body
  } else {
    socket_.Close();
  }
}

Task<Result<void>> HttpConnection::Send(Gather data) {
  TimedSocket::ErrorCode error;
  sending_ = true;  // and stays so where the task is unwound below
  if (broken_) {
    error = asio::error::broken_pipe;
  } else if (!socket_.TryWrite(data, error)) {
    error = co_await socket_.Drain(data, core_->options.write_timeout);
  }
  sending_ = false;
  co_return AfterWrite(error);
}

// The task is cancelled and cannot wait: what the kernel takes at once has to do.
void HttpConnection::SendLastWords() {
  const bool whole = answer_ == Answer::kStreaming && !sending_ && !broken_;
  if (!whole || framing_ != Framing::kChunked || last_words_.empty()) return;
  const std::string size = fmt::format("{:x}\r\n", last_words_.size());
  Gather data({size, last_words_, "\r\n0\r\n\r\n"});
  TimedSocket::ErrorCode ignored;
  socket_.TryWrite(data, ignored);
}

Result<void> HttpConnection::AfterWrite(TimedSocket::ErrorCode error) {
  if (!error) return {};
  broken_ = true;
  if (stopped()) return Fail(ErrorCode::kCancelled, "the server is shutting down");
  gone_ = true;
  if (error == asio::error::timed_out) {
    core_->metrics.write_timeout.Add();
    socket_.Reset();  // a plain close would wait for what the client does not take
    return Fail(ErrorCode::kTimeout, fmt::format("client {} took nothing for {} ms", remote_,
                                                 core_->options.write_timeout.count()));
  }
  return Fail(ErrorCode::kClientGone, fmt::format("client {} closed the connection", remote_));
}

Task<Result<void>> HttpConnection::Failed(ErrorCode code, std::string_view message) {
  co_return Fail(code, std::string(message));
}

}  // namespace kvr::net
