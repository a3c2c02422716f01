#include "net/http_client.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "net/http_parser.h"
#include "net/io_runtime_impl.h"
#include "net/timed_socket.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using SysError = boost::system::error_code;

constexpr std::size_t kHeadBytesMax = 64u << 10;
constexpr std::size_t kBufferBytesMax = 64u << 10;
// Interim answers (1xx) before the final one.
constexpr std::size_t kInterimMax = 16;

struct Connection {
  explicit Connection(tcp::socket s) : socket(std::move(s)) {}

  TimedSocket socket;
  ReadBuffer in{kBufferBytesMax};
  TimePoint idle_since{};
};

// The kept-alive connections of one I/O thread, used by it only. Shared with streams and with the
// timer, either of which may outlive the client.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(asio::io_context& io, const HttpClient::Options& options) : options_(options), sweep_(io) {}

  // The most recently used connection to `peer` that still looks open, or null.
  std::unique_ptr<Connection> Take(const std::string& peer) {
    const auto at = idle_.find(peer);
    if (at == idle_.end()) return nullptr;
    auto& idle = at->second;
    while (!idle.empty()) {
      auto connection = std::move(idle.back());
      idle.pop_back();
      const bool fresh = Clock::now() - connection->idle_since < options_.idle_timeout;
      if (fresh && IsQuiet(*connection)) return connection;
    }
    return nullptr;
  }

  void Put(const std::string& peer, std::unique_ptr<Connection> connection) {
    if (closed_ || !connection->in.empty()) return;
    auto& idle = idle_[peer];
    if (idle.size() >= options_.idle_connections_max) return;
    connection->idle_since = Clock::now();
    idle.push_back(std::move(connection));
    if (!sweeping_) Sweep();
  }

  void Close() {
    closed_ = true;
    idle_.clear();
    sweep_.cancel();
  }

 private:
  // Neither closed nor holding bytes nobody asked for.
  static bool IsQuiet(Connection& connection) {
    SysError error;
    char byte = 0;
    connection.socket.raw().receive(asio::buffer(&byte, 1), asio::socket_base::message_peek, error);
    return error == asio::error::would_block;
  }

  // Closes what nobody used for the idle time-out, as long as there is anything.
  void Sweep() {
    sweeping_ = true;
    sweep_.expires_after(options_.idle_timeout);
    sweep_.async_wait([weak = weak_from_this()](SysError error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->sweeping_ = false;
      const TimePoint oldest = Clock::now() - self->options_.idle_timeout;
      for (auto at = self->idle_.begin(); at != self->idle_.end();) {
        std::erase_if(at->second, [&](const auto& c) { return c->idle_since <= oldest; });
        at = at->second.empty() ? self->idle_.erase(at) : std::next(at);
      }
      if (!self->idle_.empty()) self->Sweep();
    });
  }

  const HttpClient::Options options_;
  std::map<std::string, std::vector<std::unique_ptr<Connection>>> idle_;
  asio::steady_timer sweep_;
  bool sweeping_ = false;
  bool closed_ = false;
};

// A name server's answer does not tell that the question could not be asked.
bool HasDescriptor(const asio::any_io_executor& executor) {
  tcp::socket probe(executor);
  SysError error;
  probe.open(tcp::v4(), error);
  return !OutOfResources(error);
}

// Looks `host` up. The system's resolver cannot be interrupted, so its answer goes to a shared
// place, and a task that is cancelled or out of time leaves without it.
Task<Result<std::vector<tcp::endpoint>>> Resolve(const Url& peer, TimePoint deadline) {
  std::vector<tcp::endpoint> endpoints;
  SysError error;
  const auto address = asio::ip::make_address(peer.host, error);
  if (!error) {
    endpoints.emplace_back(address, peer.port);
    co_return endpoints;
  }
  struct Lookup {
    explicit Lookup(const asio::any_io_executor& executor) : resolver(executor), done(executor) {}
    tcp::resolver resolver;
    asio::steady_timer done;
    bool ended = false;
    SysError error;
    std::vector<tcp::endpoint> endpoints;
  };
  const auto lookup = std::make_shared<Lookup>(co_await asio::this_coro::executor);
  lookup->done.expires_at(deadline);
  lookup->resolver.async_resolve(
      peer.host, std::to_string(peer.port),
      [lookup](SysError failure, const tcp::resolver::results_type& results) {
        lookup->ended = true;
        lookup->error = failure;
        for (const auto& entry : results)
          lookup->endpoints.push_back(entry.endpoint());
        lookup->done.cancel();
      });
  co_await lookup->done.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!lookup->ended) {
    lookup->resolver.cancel();
    if (Clock::now() < deadline) co_return Fail(ErrorCode::kCancelled, "request cancelled");
    co_return Fail(ErrorCode::kTimeout, fmt::format("looking up {} took too long", peer.host));
  }
  if (lookup->error) {
    const bool ours =
        OutOfResources(lookup->error) || !HasDescriptor(co_await asio::this_coro::executor);
    co_return Fail(ours ? ErrorCode::kOverloaded : ErrorCode::kUnavailable,
                   fmt::format("cannot look up {}: {}", peer.host, lookup->error.message()));
  }
  co_return std::move(lookup->endpoints);
}

Task<Result<std::unique_ptr<Connection>>> Connect(const Url& peer, TimePoint deadline) {
  auto endpoints = co_await Resolve(peer, deadline);
  if (!endpoints) co_return tl::make_unexpected(std::move(endpoints).error());
  SysError error = asio::error::host_not_found;
  for (const tcp::endpoint& endpoint : *endpoints) {
    auto connection = std::make_unique<Connection>(tcp::socket(co_await asio::this_coro::executor));
    error = co_await connection->socket.Connect(endpoint, deadline);
    if (!error) {
      connection->socket.Configure();
      co_return connection;
    }
    if (error == asio::error::operation_aborted)
      co_return Fail(ErrorCode::kCancelled, "request cancelled");
    if (error == asio::error::timed_out) break;
  }
  ErrorCode code = ErrorCode::kUnavailable;
  if (error == asio::error::timed_out) code = ErrorCode::kTimeout;
  if (OutOfResources(error)) code = ErrorCode::kOverloaded;
  co_return Fail(code, fmt::format("cannot connect to {}: {}", peer.authority(), error.message()));
}

// 101 is none: it ends HTTP, and nobody asked for that.
bool IsInterim(int status) {
  return status / 100 == 1 && status != 101;
}

class Stream final : public HttpStream {
 public:
  Stream(std::shared_ptr<Pool> pool, std::string peer, std::unique_ptr<Connection> connection,
         Millis read_timeout, TimePoint deadline, bool no_body)
      : pool_(std::move(pool)),
        peer_(std::move(peer)),
        connection_(std::move(connection)),
        read_timeout_(read_timeout),
        deadline_(deadline),
        no_body_(no_body) {
    parser_.emplace(kHeadBytesMax, no_body_);
  }

  // Sends the request and waits for the final head of the answer.
  Task<Result<void>> Exchange(std::string_view head, std::string_view body);
  // No byte of an answer came, and the peer is gone: a kept-alive connection that it had closed.
  [[nodiscard]] bool found_dead() const { return found_dead_; }

  int status() const override { return parser_->status(); }
  const HttpHeaders& headers() const override { return parser_->headers(); }
  std::optional<std::uint64_t> content_length() const override { return length_; }
  Task<Result<std::string_view>> Read() override;
  Task<void> ReadOut(Millis limit) override;

 private:
  Task<Result<void>> Receive(TimePoint limit);
  Task<Result<void>> ReceiveHead(TimePoint limit);
  Result<void> CheckHead();
  Result<void> Parse();
  tl::unexpected<Error> Break(ErrorCode code, std::string message);
  tl::unexpected<Error> Break(SysError error);
  void Finish();
  [[nodiscard]] TimePoint NextDeadline() const { return std::min(deadline_, After(read_timeout_)); }

  const std::shared_ptr<Pool> pool_;
  const std::string peer_;
  std::unique_ptr<Connection> connection_;  // null once the answer is complete or broke off
  const Millis read_timeout_;
  TimePoint deadline_;
  const bool no_body_;
  std::optional<ResponseParser> parser_;
  std::optional<std::uint64_t> length_;
  std::string piece_;
  std::optional<Error> error_;  // why it broke off; said again by every later Read
  bool any_byte_ = false;
  bool found_dead_ = false;
};

Task<Result<void>> Stream::Exchange(std::string_view head, std::string_view body) {
  Gather data({head, body});
  SysError error;
  if (!connection_->socket.TryWrite(data, error)) {
    error = co_await connection_->socket.Drain(data, read_timeout_);
  }
  if (error == asio::error::timed_out || error == asio::error::operation_aborted)
    co_return Break(error);
  // A peer that refuses early may have answered before it stopped reading, so look even after an
  // error.
  auto received = co_await ReceiveHead(NextDeadline());
  if (!received) co_return received;
  auto valid = CheckHead();
  if (!valid) co_return valid;
  length_ = no_body_ ? std::nullopt : parser_->declared_length();
  if (parser_->is_done()) Finish();
  co_return Result<void>();
}

// Until the final head is there; what comes before it gives the peer no more time.
Task<Result<void>> Stream::ReceiveHead(TimePoint limit) {
  std::size_t interim = 0;
  while (true) {
    if (!connection_->in.empty()) {
      auto parsed = Parse();
      if (!parsed) co_return parsed;
    }
    if (!parser_->is_header_done()) {
      auto received = co_await Receive(limit);
      if (!received) co_return received;
      continue;
    }
    if (!IsInterim(status())) co_return Result<void>();
    if (++interim > kInterimMax) {
      co_return Break(ErrorCode::kUpstream,
                      fmt::format("{} sent more than {} interim answers", peer_, kInterimMax));
    }
    parser_.emplace(kHeadBytesMax, no_body_);
  }
}

// What no answer to a request of ours can be.
Result<void> Stream::CheckHead() {
  if (status() < 200 || status() > 599) {
    return Break(ErrorCode::kUpstream,
                 fmt::format("{} answered with the status {}", peer_, status()));
  }
  if (!HasKnownCoding(headers(), parser_->chunked())) {
    return Break(ErrorCode::kUpstream,
                 fmt::format("{} answered in a transfer coding that was not asked for", peer_));
  }
  return {};
}

// Waits for bytes; the end of the stream completes a body that has no other end.
Task<Result<void>> Stream::Receive(TimePoint limit) {
  std::size_t bytes = 0;
  const SysError error =
      co_await connection_->socket.ReadSome(connection_->in.Prepare(), limit, bytes);
  if (!error) {
    any_byte_ = true;
    connection_->in.Commit(bytes);
    co_return Result<void>();
  }
  if (error == asio::error::eof && parser_->is_header_done() && parser_->need_eof()) {
    ParseError parse_error;
    parser_->put_eof(parse_error);
    if (!parse_error) co_return Result<void>();
  }
  co_return Break(error);
}

Result<void> Stream::Parse() {
  ParseError error;
  connection_->in.Consume(parser_->Put(connection_->in.view(), piece_, error));
  if (!error && connection_->in.full()) error = HeadTooLarge();
  if (!error) return {};
  return Break(ErrorCode::kUpstream,
               fmt::format("{} sent no valid HTTP: {}", peer_, error.message()));
}

tl::unexpected<Error> Stream::Break(ErrorCode code, std::string message) {
  connection_.reset();
  error_ = Error{code, std::move(message)};
  return tl::unexpected<Error>(*error_);
}

tl::unexpected<Error> Stream::Break(SysError error) {
  if (error == asio::error::operation_aborted)
    return Break(ErrorCode::kCancelled, "request cancelled");
  if (error == asio::error::timed_out)
    return Break(ErrorCode::kTimeout, fmt::format("{} did not answer in time", peer_));
  found_dead_ = !any_byte_;
  const std::string_view when = any_byte_ ? "within its answer" : "without an answer";
  return Break(ErrorCode::kUpstream,
               fmt::format("{} closed the connection {}: {}", peer_, when, error.message()));
}

void Stream::Finish() {
  if (parser_->keep_alive()) {
    pool_->Put(peer_, std::move(connection_));
  }
  connection_.reset();
}

Task<Result<std::string_view>> Stream::Read() {
  if (error_) co_return tl::make_unexpected(*error_);
  piece_.clear();
  while (connection_ != nullptr) {
    if (!connection_->in.empty()) {
      auto parsed = Parse();
      if (!parsed) co_return tl::make_unexpected(std::move(parsed).error());
    }
    if (parser_->is_done()) Finish();
    if (!piece_.empty() || connection_ == nullptr) break;
    auto received = co_await Receive(NextDeadline());
    if (!received) co_return tl::make_unexpected(std::move(received).error());
    if (parser_->is_done()) Finish();
  }
  co_return std::string_view(piece_);
}

Task<void> Stream::ReadOut(Millis limit) {
  deadline_ = std::min(deadline_, After(limit));
  while (Clock::now() < deadline_) {
    const auto piece = co_await Read();
    if (!piece || piece->empty()) co_return;
  }
}

// False for text that would end the line or the word it is in.
bool IsLineText(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

Result<std::string> ComposeHead(const Url& peer, const HttpRequest& request) {
  const bool valid_target =
      request.target.starts_with('/') && std::ranges::all_of(request.target, [](char c) {
        return static_cast<unsigned char>(c) > ' ' && c != '\x7f';
      });
  if (!valid_target) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("request target `{}` is no path", request.target));
  }
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", request.method, peer.prefix,
                                 request.target, peer.authority());
  for (const auto& [name, value] : request.headers.all()) {
    if (EqualsIgnoreCase(name, "Host") || EqualsIgnoreCase(name, "Content-Length") ||
        EqualsIgnoreCase(name, "Transfer-Encoding") || EqualsIgnoreCase(name, "Connection") ||
        EqualsIgnoreCase(name, "Expect")) {
      continue;
    }
    if (!IsLineText(name) || !IsLineText(value)) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("header `{}` holds a line break", name));
    }
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
      request.method == "PATCH") {
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", request.body.size());
  }
  head += "\r\n";
  return head;
}

}  // namespace

struct HttpClient::Impl {
  Impl(IoRuntime& io_runtime, const Options& client_options)
      : runtime(io_runtime), options(client_options) {
    for (std::size_t i = 0; i < runtime.threads(); ++i)
      pools.push_back(std::make_shared<Pool>(runtime.impl().threads[i]->io(), options));
  }

  Task<Result<std::unique_ptr<HttpStream>>> Open(const Url& peer, const HttpRequest& request,
                                                 TimePoint deadline);
  Task<Result<HttpResponse>> Fetch(const Url& peer, const HttpRequest& request, TimePoint deadline);

  void WarnOutOfResources(const Error& error);

  IoRuntime& runtime;
  const Options options;
  std::vector<std::shared_ptr<Pool>> pools;  // by thread
  LogLimiter resource_log{std::chrono::seconds(10)};
};

void HttpClient::Impl::WarnOutOfResources(const Error& error) {
  std::uint64_t suppressed = 0;
  if (!resource_log.Pass(Clock::now().time_since_epoch(), suppressed)) return;
  KVR_WARN("{}; raise the limit of open files, or allow fewer connections ({} more like it)",
           error.message, suppressed);
}

Task<Result<std::unique_ptr<HttpStream>>> HttpClient::Impl::Open(const Url& peer,
                                                                 const HttpRequest& request,
                                                                 TimePoint deadline) {
  const auto& pool = pools[runtime.impl().IndexOf(co_await asio::this_coro::executor)];
  const auto head = ComposeHead(peer, request);
  if (!head) co_return tl::make_unexpected(head.error());
  const std::string authority = peer.authority();
  std::unique_ptr<Connection> connection = pool->Take(authority);
  while (true) {
    const bool reused = connection != nullptr;
    if (!reused) {
      const TimePoint limit = std::min(deadline, After(options.connect_timeout));
      auto made = co_await Connect(peer, limit);
      if (!made) {
        Error error = std::move(made).error();
        // The caller has time left, so it is the peer that cannot be reached.
        if (error.code == ErrorCode::kTimeout && limit < deadline) {
          error.code = ErrorCode::kUnavailable;
        }
        if (error.code == ErrorCode::kOverloaded) WarnOutOfResources(error);
        co_return tl::unexpected<Error>(std::move(error));
      }
      connection = *std::move(made);
    }
    auto stream =
        std::make_unique<Stream>(pool, authority, std::move(connection), options.read_timeout,
                                 deadline, request.method == "HEAD");
    auto answered = co_await stream->Exchange(*head, request.body);
    if (answered) co_return std::unique_ptr<HttpStream>(std::move(stream));
    if (!reused || !stream->found_dead() || !options.send_again)
      co_return tl::make_unexpected(std::move(answered).error());
    connection = nullptr;
  }
}

Task<Result<HttpResponse>> HttpClient::Impl::Fetch(const Url& peer, const HttpRequest& request,
                                                   TimePoint deadline) {
  auto opened = co_await Open(peer, request, deadline);
  if (!opened) co_return tl::make_unexpected(std::move(opened).error());
  HttpStream& stream = **opened;
  HttpResponse response;
  response.status = stream.status();
  response.headers = stream.headers();
  while (true) {
    const auto piece = co_await stream.Read();
    if (!piece) co_return tl::make_unexpected(piece.error());
    if (piece->empty()) co_return response;
    if (piece->size() > options.response_bytes_max - response.body.size()) {
      co_return Fail(ErrorCode::kTooLarge,
                     fmt::format("answer of {} exceeds {} bytes", peer.authority(),
                                 options.response_bytes_max));
    }
    response.body += *piece;
  }
}

HttpClient::HttpClient(IoRuntime& runtime, const Options& options)
    : impl_(std::make_unique<Impl>(runtime, options)) {}

HttpClient::~HttpClient() {
  // Each pool belongs to its thread. After the runtime has stopped nobody else uses it.
  for (std::size_t i = 0; i < impl_->pools.size(); ++i)
    impl_->runtime.Post(i, [pool = std::move(impl_->pools[i])] { pool->Close(); });
}

Task<Result<std::unique_ptr<HttpStream>>> HttpClient::Open(const Url& peer,
                                                           const HttpRequest& request) {
  return impl_->Open(peer, request, TimePoint::max());
}

Task<Result<HttpResponse>> HttpClient::Fetch(const Url& peer, const HttpRequest& request) {
  return impl_->Fetch(peer, request, TimePoint::max());
}

Task<Result<HttpResponse>> HttpClient::FetchWithin(Millis limit, const Url& peer,
                                                   const HttpRequest& request) {
  return impl_->Fetch(peer, request, After(limit));
}

}  // namespace kvr::net
