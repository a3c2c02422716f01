#include "net/http_server.h"

#include <chrono>
#include <unordered_set>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/http_connection.h"
#include "net/http_pages.h"
#include "net/io_runtime_impl.h"
#include "net/timed_socket.h"

namespace kvr::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Connections beyond the cap that may be told so at one time; more are closed without a word.
constexpr std::size_t kTurnedAwayMax = 64;
// Pause after an accept that failed for want of descriptors, which only others can give back.
constexpr Millis kAcceptPause{50};
// The accept loop runs here; connections are dealt to all threads in turn.
constexpr std::size_t kAcceptThread = 0;

std::string_view HowToListen(const boost::system::error_code& error) {
  if (error == asio::error::address_in_use) {
    return "end who holds the port or choose another one, 0 for a free one";
  }
  if (error == asio::error::access_denied) return "choose a port above 1023";
  return "give a numeric address of this machine, as 127.0.0.1, or 0.0.0.0 for all";
}

}  // namespace

// Shared by the server and its tasks, so that a task never outlives what it uses.
struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  class Visit;

  Impl(IoRuntime& io_runtime, metrics::Registry& metrics_registry, const Options& options)
      : runtime(io_runtime),
        registry(metrics_registry),
        core(std::make_shared<ServerCore>(metrics_registry, options)),
        live(io_runtime.threads()) {}

  Result<void> Bind();
  Task<void> Accept();
  void Welcome(std::size_t thread, tcp::socket socket);
  static Task<void> Run(std::shared_ptr<Visit> visit, std::size_t thread,
                        std::shared_ptr<HttpConnection> connection);
  void PostToConnections(void (HttpConnection::*action)());
  // False when something is left at `deadline`.
  bool AwaitIdle(std::chrono::steady_clock::time_point deadline) KVR_EXCLUDES(mutex);

  IoRuntime& AsideThread() KVR_EXCLUDES(mutex);
  IoRuntime* aside_if_any() KVR_EXCLUDES(mutex) {
    const Lock lock(mutex);
    return aside.get();
  }

  IoThread& Thread(std::size_t i) { return *runtime.impl().threads[i]; }

  IoRuntime& runtime;
  metrics::Registry& registry;
  const std::shared_ptr<ServerCore> core;
  std::unique_ptr<tcp::acceptor> acceptor;  // the accept thread's, once started
  std::uint16_t port = 0;
  std::vector<std::unordered_set<HttpConnection*>> live;  // by thread, each its thread's only

  Mutex mutex;
  CondVar left;
  std::size_t visits KVR_GUARDED_BY(mutex) = 0;  // the accept loop and every connection
  std::size_t connections KVR_GUARDED_BY(mutex) = 0;
  std::size_t turned_away KVR_GUARDED_BY(mutex) = 0;
  bool stopped KVR_GUARDED_BY(mutex) = false;
  std::unique_ptr<IoRuntime> aside KVR_GUARDED_BY(mutex);  // one thread, from its first use on
};

// Counts something that Stop waits for, from the decision to start it to its end, also when the
// runtime drops it in between.
class HttpServer::Impl::Visit {
 public:
  enum class Kind { kAcceptLoop, kConnection, kTurnedAway, kDropped };

  Visit(std::shared_ptr<Impl> impl, bool connection) : impl_(std::move(impl)) {
    const Lock lock(impl_->mutex);
    ++impl_->visits;
    if (!connection) return;
    if (impl_->connections < impl_->core->options.connections_max) {
      kind_ = Kind::kConnection;
      ++impl_->connections;
    } else if (impl_->turned_away < kTurnedAwayMax) {
      kind_ = Kind::kTurnedAway;
      ++impl_->turned_away;
    } else {
      kind_ = Kind::kDropped;
    }
  }
  ~Visit() {
    {
      const Lock lock(impl_->mutex);
      --impl_->visits;
      if (kind_ == Kind::kConnection) --impl_->connections;
      if (kind_ == Kind::kTurnedAway) --impl_->turned_away;
    }
    impl_->left.NotifyAll();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  const std::shared_ptr<Impl> impl_;
  Kind kind_ = Kind::kAcceptLoop;
};

Result<void> HttpServer::Impl::Bind() {
  const Options& options = core->options;
  boost::system::error_code error;
  const auto address = asio::ip::make_address(options.address, error);
  auto made = std::make_unique<tcp::acceptor>(Thread(kAcceptThread).io());
  const tcp::endpoint endpoint(address, options.port);
  if (!error) made->open(endpoint.protocol(), error);
  if (!error) made->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) made->bind(endpoint, error);
  if (!error) made->listen(asio::socket_base::max_listen_connections, error);
  if (!error) port = made->local_endpoint(error).port();
  if (error) {
    return Fail(ErrorCode::kIo, fmt::format("cannot listen on {}:{}: {}; {}", options.address,
                                            options.port, error.message(), HowToListen(error)));
  }
  acceptor = std::move(made);
  return {};
}

Task<void> HttpServer::Impl::Accept() {
  for (std::size_t turn = 0; !core->draining.load(); ++turn) {
    const std::size_t thread = turn % runtime.threads();
    auto [error, socket] =
        co_await acceptor->async_accept(Thread(thread).io(), asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) break;
    if (!error) {
      Welcome(thread, std::move(socket));
      continue;
    }
    core->metrics.accept_errors.Add();
    std::uint64_t suppressed = 0;
    if (core->accept_log.Pass(std::chrono::steady_clock::now().time_since_epoch(), suppressed)) {
      KVR_ERROR("cannot accept connections on port {}: {} ({} more like it)", port, error.message(),
                suppressed);
    }
    if (OutOfResources(error)) {
      co_await Sleep(kAcceptPause);
    }
  }
}

void HttpServer::Impl::Welcome(std::size_t thread, tcp::socket socket) {
  auto visit = std::make_shared<Visit>(shared_from_this(), true);
  if (visit->kind() != Visit::Kind::kConnection) core->metrics.cap.Add();
  if (visit->kind() == Visit::Kind::kDropped) return;
  asio::post(Thread(thread).io(), [visit = std::move(visit), thread,
                                   socket = std::move(socket)]() mutable {
    Impl& impl = visit->impl();
    if (impl.core->draining.load()) return;
    auto connection = std::make_shared<HttpConnection>(impl.core, std::move(socket));
    connection->SetTask(impl.Thread(thread).Start(
        [visit = std::move(visit), thread, connection] { return Run(visit, thread, connection); }));
  });
}

Task<void> HttpServer::Impl::Run(std::shared_ptr<Visit> visit, std::size_t thread,
                                 std::shared_ptr<HttpConnection> connection) {
  struct Listed {
    std::unordered_set<HttpConnection*>& set;
    HttpConnection* const connection;
    metrics::Gauge& gauge;
    Listed(std::unordered_set<HttpConnection*>& s, HttpConnection* c, metrics::Gauge& g)
        : set(s), connection(c), gauge(g) {
      set.insert(connection);
      gauge.Add(1);
    }
    ~Listed() {
      set.erase(connection);
      gauge.Add(-1);
    }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;
  };
  const Listed listed(visit->impl().live[thread], connection.get(),
                      visit->impl().core->metrics.connections);
  if (visit->kind() == Visit::Kind::kTurnedAway) {
    co_await connection->TurnAway();
  } else {
    co_await connection->Serve();
  }
}

void HttpServer::Impl::PostToConnections(void (HttpConnection::*action)()) {
  for (std::size_t thread = 0; thread < live.size(); ++thread) {
    runtime.Post(thread, [impl = shared_from_this(), thread, action] {
      const auto present = impl->live[thread];  // an action may end one at once
      for (HttpConnection* connection : present) {
        if (impl->live[thread].contains(connection)) (connection->*action)();
      }
    });
  }
}

IoRuntime& HttpServer::Impl::AsideThread() {
  const Lock lock(mutex);
  if (!aside)
    aside = std::make_unique<IoRuntime>(IoRuntime::Options{1, core->options.name + "-aside"});
  return *aside;
}

bool HttpServer::Impl::AwaitIdle(std::chrono::steady_clock::time_point deadline) {
  const Lock lock(mutex);
  while (visits > 0) {
    if (!left.WaitUntil(mutex, deadline)) return visits == 0;
  }
  return true;
}

HttpServer::HttpServer(IoRuntime& runtime, metrics::Registry& registry, const Options& options)
    : impl_(std::make_shared<Impl>(runtime, registry, options)) {
  SetErrorWriter([](int status, std::string_view code, std::string_view message) {
    return JsonError(status, code, message);
  });
}

HttpServer::~HttpServer() {
  Stop(Millis{0});
}

void HttpServer::Route(std::string method, std::string path, HttpHandler handler,
                       std::size_t body_bytes_max) {
  KVR_CHECK(impl_->acceptor == nullptr);
  static const std::vector<double> bounds = metrics::ExponentialBounds(0.0001, 2.5, 16);
  HttpRoute route;
  route.seconds = &impl_->registry.AddHistogram(
      "kvr_net_http_request_seconds", "Time from the end of a request to the end of its handler.",
      bounds, {{"server", impl_->core->options.name}, {"route", method + ' ' + path}});
  route.method = std::move(method);
  route.path = std::move(path);
  route.handler = std::move(handler);
  route.body_bytes_max = body_bytes_max;
  impl_->core->bodies.MakeRoomFor(body_bytes_max);
  impl_->core->routes.Add(std::move(route));
}

void HttpServer::RoutePage(std::string path, Page make) {
  Route("GET", std::move(path), [this, make = std::move(make)](HttpExchange& exchange) {
    return AnswerPage(*this, make, exchange);
  });
}

Task<void> HttpServer::Aside(std::function<void()> work) {
  return RunAside(impl_->runtime, impl_->AsideThread(), std::move(work));
}

void HttpServer::SetErrorWriter(ErrorWriter writer) {
  KVR_CHECK(impl_->acceptor == nullptr);
  impl_->core->write_error = std::move(writer);
}

void HttpServer::SetRefusalObserver(RefusalObserver observer) {
  KVR_CHECK(impl_->acceptor == nullptr);
  impl_->core->on_refusal = std::move(observer);
}

Result<void> HttpServer::Start() {
  KVR_CHECK(impl_->acceptor == nullptr);
  KVR_TRY_VOID(impl_->Bind());
  auto visit = std::make_shared<Impl::Visit>(impl_, false);
  impl_->runtime.SpawnOn(kAcceptThread,
                         [visit = std::move(visit)] { return visit->impl().Accept(); });
  return {};
}

std::uint16_t HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::address_port() const {
  const std::string& address = impl_->core->options.address;
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, impl_->port)
                                                : fmt::format("[{}]:{}", address, impl_->port);
}

void HttpServer::Stop(Millis grace) {
  {
    const Lock lock(impl_->mutex);
    if (std::exchange(impl_->stopped, true)) return;
  }
  const auto now = std::chrono::steady_clock::now();
  impl_->core->draining.store(true);
  impl_->runtime.Post(kAcceptThread, [impl = impl_] {
    boost::system::error_code ignored;
    if (impl->acceptor) impl->acceptor->close(ignored);
  });
  impl_->PostToConnections(&HttpConnection::Drain);
  if (!impl_->AwaitIdle(now + grace)) {
    impl_->PostToConnections(&HttpConnection::Cancel);
    impl_->AwaitIdle(std::chrono::steady_clock::time_point::max());
  }
  if (IoRuntime* const aside = impl_->aside_if_any()) aside->Stop();
}

}  // namespace kvr::net
