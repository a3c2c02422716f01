// Helpers of this module's tests: a raw client socket and a server with one line of set-up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "metrics/registry.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/io_runtime.h"

namespace kvr::net::testing {

// A blocking loopback socket that speaks bytes. Every wait gives up after 20 s, which a test sees
// as missing bytes.
class RawClient {
 public:
  struct Adopt {};

  explicit RawClient(std::uint16_t port, int receive_buffer_bytes = 0);
  RawClient(Adopt, int fd);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool Send(std::string_view bytes);  // false when the peer took no more
  // Up to the first occurrence of `mark`, which is included; what came is returned at the end of
  // the stream.
  std::string ReadUntil(std::string_view mark);
  std::string ReadBytes(std::size_t count);
  std::string ReadToEnd();
  // One answer with Content-Length: head and body.
  std::string ReadAnswer();
  // True when the peer ended the stream in good order and nothing was left to read.
  bool AtEnd();
  [[nodiscard]] bool was_reset() const { return reset_; }
  void HalfClose();
  void Close();
  // Closes with a reset.
  void Reset();

 private:
  bool Fill();  // false at the end
  std::string Take(std::size_t count);

  int fd_ = -1;
  bool reset_ = false;
  std::string in_;
};

// A listening loopback socket whose connections a test answers by hand.
class RawServer {
 public:
  // Beyond `backlog` + 1 connections that wait to be accepted, further ones get no answer at all.
  explicit RawServer(int backlog = 128);
  ~RawServer();
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // The next connection, as a client-like socket.
  std::unique_ptr<RawClient> Accept();
  // Stops accepting: connections are refused.
  void Close();

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

// Holds tasks of a one-threaded runtime until the test lets them go.
class Gate {
 public:
  explicit Gate(IoRuntime& runtime) : runtime_(runtime) {}
  Task<void> Pass();
  void Open();  // from the test's thread
  [[nodiscard]] int waiting() const { return waiting_; }

 private:
  IoRuntime& runtime_;
  Signal signal_;
  bool open_ = false;  // the I/O thread's
  std::atomic<int> waiting_ = 0;
};

// False when connections to `port` are refused.
bool CanConnect(std::uint16_t port);

// While one lives, this process can open no file and no socket.
class NoDescriptors {
 public:
  NoDescriptors();
  ~NoDescriptors();
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  std::uint64_t limit_ = 0;
};

// Yields until `condition` holds; false after 20 s.
bool Eventually(const std::function<bool()>& condition);

// The value of one series in the text of `registry`, or -1.
double Series(const metrics::Registry& registry, std::string_view series);

// Runs `task` on an I/O thread and hands its result out.
template <typename T>
T RunOn(IoRuntime& runtime, std::function<Task<T>()> task) {
  struct Holder {
    std::unique_ptr<T> value;
    std::function<Task<T>()> task;
    static Task<void> Run(Holder& holder) {
      holder.value = std::make_unique<T>(co_await holder.task());
    }
  };
  Holder holder{nullptr, std::move(task)};
  runtime.RunBlocking([&holder] { return Holder::Run(holder); });
  return std::move(*holder.value);
}

}  // namespace kvr::net::testing
