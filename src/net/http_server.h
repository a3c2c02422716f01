// An HTTP/1.1 server whose handlers are coroutines.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "metrics/registry.h"
#include "net/http.h"
#include "net/io_runtime.h"
#include "net/task.h"

namespace kvr::net {

// One request being answered. Lives on one I/O thread; valid until the handler returns.
//
// A handler answers exactly once: Respond, or BeginStream, Writes and EndStream. One that returns
// without an answer, or throws, gives 500. When the client goes away before the answer is complete
// the handler is cancelled at once (net/task.h): its pending await ends with kClientGone or
// kCancelled and its next one unwinds it, so release what was reserved in destructors.
//
// A client that closes only its sending side looks the same as one that went away, and is taken
// for that: whoever wants an answer keeps its side open.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  [[nodiscard]] virtual HttpRequest& request() = 0;
  // "address:port" of the client.
  [[nodiscard]] virtual std::string_view remote() const = 0;

  // The handler needs the request's body no more: frees it and gives back its share of
  // bodies_bytes_max, which else happens when the exchange is over. A body that was moved out of
  // the request counts until then, too.
  virtual void ReleaseBody() = 0;

  // Content-Length and Connection are set by the server.
  virtual Task<Result<void>> Respond(HttpResponse response) = 0;

  // Sends status and headers at once, then the body in pieces as they come: with Content-Length
  // when `length` is given, else chunked. Write completes when the piece was handed to the kernel,
  // which is the back-pressure of a slow client; a client that takes nothing for the write time-out
  // is dropped.
  virtual Task<Result<void>> BeginStream(int status, const HttpHeaders& headers,
                                         std::optional<std::uint64_t> length = {}) = 0;
  virtual Task<Result<void>> Write(std::string_view piece) = 0;
  virtual Task<Result<void>> EndStream() = 0;
  // What the body of a stream ends with when the server stops before the handler has ended it; then
  // follows its regular end, as far as the client takes both at once. Empty: it is cut off. The
  // text must live as long as the exchange.
  virtual void SetLastWords(std::string_view words) = 0;
  // Gives up a stream in the middle: closes the connection so that the client sees it is cut short.
  virtual void Abort() = 0;

  [[nodiscard]] virtual bool answered() const = 0;  // Respond or BeginStream was called
  // Whether the handler is cancelled because the server stops, and not because the client is gone.
  [[nodiscard]] virtual bool stopped() const = 0;
};

using HttpHandler = std::function<Task<void>(HttpExchange&)>;

class HttpServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;  // 0 picks a free one
    std::size_t header_bytes_max = 64u << 10;
    std::size_t body_bytes_max = 8u << 20;  // default of a route
    // Memory of all request bodies being read or held by a handler, never less than one body of
    // the largest route; beyond it a request gets 503. Next to it a connection keeps up to
    // header_bytes_max, at least 16 KiB, of bytes it has not parsed.
    std::size_t bodies_bytes_max = 512u << 20;
    std::size_t connections_max = 10'000;  // beyond it a connection gets 503 and is closed
    Millis header_timeout{10'000};         // from the first byte of a request to its end of headers
    Millis body_timeout{30'000};           // from there to the end of the body
    Millis idle_timeout{75'000};           // between requests of a kept-alive connection
    Millis write_timeout{30'000};          // a client that takes nothing for so long is dropped
    std::string name = "http";             // label of its metrics
  };

  // `runtime` and `registry` must outlive the server. Metrics: kvr_net_http_* by server name.
  HttpServer(IoRuntime& runtime, metrics::Registry& registry, const Options& options);
  ~HttpServer();  // Stop with no grace
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Routes are fixed before Start. `path` is exact ("/query") or has "{name}" segments; a handler
  // reads them from the request's path. Unknown path: 404. Known path, other method: 405 with
  // Allow. HEAD is answered by GET without a body. Bodies above `body_bytes_max` (0: the server's):
  // 413.
  void Route(std::string method, std::string path, HttpHandler handler,
             std::size_t body_bytes_max = 0);

  // For a handler that has something to do which takes long: runs `work` on a thread that the
  // server has beside the I/O threads, and then goes on with the handler on its own. Holds up no
  // other request but those that wait for the same thread, in turn, at most one a connection.
  // Throws what `work` threw. A handler that is cancelled does not wait for its `work`, which
  // therefore shares what it uses with the handler and borrows nothing; Stop waits for the one that
  // is under way.
  Task<void> Aside(std::function<void()> work);

  // A GET whose answer takes long to make, such as one that visits every rank: `make` runs as
  // above.
  using Page = std::function<HttpResponse(const HttpRequest&)>;
  void RoutePage(std::string path, Page make);

  // How errors that the server itself finds (404, 405, 408, 413, 431, 400, 503) are worded.
  // Default: JsonError.
  using ErrorWriter =
      std::function<HttpResponse(int status, std::string_view code, std::string_view message)>;
  void SetErrorWriter(ErrorWriter writer);

  // Told of each request of a known route that the server itself answers, because its body is
  // malformed, too large or too slow: the handler never sees it. Called on I/O threads.
  using RefusalObserver = std::function<void(std::string_view path, int status)>;
  void SetRefusalObserver(RefusalObserver observer);

  // Binds and accepts. kIo names address and reason.
  Result<void> Start();
  [[nodiscard]] std::uint16_t port() const;        // the bound one
  [[nodiscard]] std::string address_port() const;  // "127.0.0.1:8080"

  // Refuses new connections, lets requests under way finish for up to `grace`, cancels the rest.
  // Blocks; not from an I/O thread. Idempotent.
  void Stop(Millis grace);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace kvr::net
