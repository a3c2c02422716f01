// An HTTP/1.1 client with kept-alive connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/http.h"
#include "net/io_runtime.h"
#include "net/task.h"

namespace kvr::net {

// The answer to one request as it arrives. Destroying it before the end closes the connection;
// after the end the connection goes back to the pool.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  [[nodiscard]] virtual int status() const = 0;
  [[nodiscard]] virtual const HttpHeaders& headers() const = 0;
  // The declared body length, when the peer gave one.
  [[nodiscard]] virtual std::optional<std::uint64_t> content_length() const = 0;
  // The next piece as soon as any byte of it is there, without chunk framing; empty at the end. The
  // view is valid until the next call. kUpstream when the peer broke off, kTimeout when it was
  // silent for the read time-out.
  virtual Task<Result<std::string_view>> Read() = 0;
  // Drops what is left, for at most `limit`: for a caller who has all it wants, so that a peer that
  // ends its answer about now gives the connection back.
  virtual Task<void> ReadOut(Millis limit) = 0;
};

// Tasks of any I/O thread of the runtime may use one client; each thread has its own pool.
// Arguments are used until the returned task has ended.
class HttpClient {
 public:
  struct Options {
    Millis connect_timeout{2'000};
    Millis read_timeout{600'000};  // from the request to the whole head; then longest silence
    std::size_t response_bytes_max = 64u << 20;  // Fetch
    std::size_t idle_connections_max = 1'024;    // per thread and peer
    Millis idle_timeout{30'000};
    // Whether a request goes out a second time, over a fresh connection, when a kept-alive one
    // turns out dead before any byte of the answer. The peer may have read the first one.
    bool send_again = true;
  };

  // `runtime` must outlive the client.
  HttpClient(IoRuntime& runtime, const Options& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends the request (Host, Content-Length and Connection are set here; request.target is appended
  // to peer.prefix) and waits for the head. The body of `request` is sent byte for byte. A pooled
  // connection that turns out dead before any byte of the answer is replaced once by a fresh one,
  // unless options say otherwise: kUpstream then.
  // kUnavailable: no connection, also none within connect_timeout: nothing was sent. kOverloaded:
  // none for want of descriptors, memory or ports of ours, which is logged and says nothing about
  // the peer. kTimeout: no head within the read time-out. kUpstream: no HTTP answer, or one that
  // cannot be passed on: too many interim answers, a status outside 200 to 599, a transfer coding
  // other than chunked.
  Task<Result<std::unique_ptr<HttpStream>>> Open(const Url& peer, const HttpRequest& request);

  // Open and read to the end. kTooLarge beyond response_bytes_max.
  Task<Result<HttpResponse>> Fetch(const Url& peer, const HttpRequest& request);
  // The same with its own limit on the whole exchange.
  Task<Result<HttpResponse>> FetchWithin(Millis limit, const Url& peer, const HttpRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::net
