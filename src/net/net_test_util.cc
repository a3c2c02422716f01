#include "net/net_test_util.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/check.h"

namespace kvr::net::testing {
namespace {

constexpr std::chrono::seconds kPatience{20};

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetPatience(int fd) {
  timeval patience{};
  patience.tv_sec = kPatience.count();
  KVR_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  KVR_CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
}

}  // namespace

RawClient::RawClient(std::uint16_t port, int receive_buffer_bytes) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  KVR_CHECK(fd_ >= 0);
  SetPatience(fd_);
  if (receive_buffer_bytes > 0) {
    KVR_CHECK(setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                         sizeof receive_buffer_bytes) == 0);
  }
  const sockaddr_in address = Loopback(port);
  // NOLINTNEXTLINE: the socket API's own cast
  KVR_CHECK(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

RawClient::RawClient(Adopt, int fd) : fd_(fd) {
  SetPatience(fd_);
}

RawClient::~RawClient() {
  Close();
}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool RawClient::Fill() {
  char buffer[65'536];
  const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
  if (n < 0 && errno == ECONNRESET) reset_ = true;
  if (n <= 0) return false;
  in_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

std::string RawClient::Take(std::size_t count) {
  std::string out = in_.substr(0, count);
  in_.erase(0, count);
  return out;
}

std::string RawClient::ReadUntil(std::string_view mark) {
  std::size_t at = in_.find(mark);
  while (at == std::string::npos && Fill())
    at = in_.find(mark);
  return Take(at == std::string::npos ? in_.size() : at + mark.size());
}

std::string RawClient::ReadBytes(std::size_t count) {
  while (in_.size() < count && Fill()) {
  }
  return Take(count);
}

std::string RawClient::ReadToEnd() {
  while (Fill()) {
  }
  return Take(in_.size());
}

std::string RawClient::ReadAnswer() {
  std::string head = ReadUntil("\r\n\r\n");
  constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = head.find(kLength);
  if (at == std::string::npos) return head;
  std::size_t length = 0;
  std::from_chars(head.data() + at + kLength.size(), head.data() + head.size(), length);
  return head + ReadBytes(length);
}

bool RawClient::AtEnd() {
  return ReadToEnd().empty() && !reset_;
}

void RawClient::HalfClose() {
  shutdown(fd_, SHUT_WR);
}

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawClient::Reset() {
  const linger now{1, 0};
  KVR_CHECK(setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
  Close();
}

RawServer::RawServer(int backlog) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  KVR_CHECK(fd_ >= 0);
  SetPatience(fd_);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  // NOLINTBEGIN: the socket API's own casts
  KVR_CHECK(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  KVR_CHECK(listen(fd_, backlog) == 0);
  KVR_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  // NOLINTEND
  port_ = ntohs(address.sin_port);
}

RawServer::~RawServer() {
  Close();
}

std::unique_ptr<RawClient> RawServer::Accept() {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  KVR_CHECK(fd >= 0);
  return std::make_unique<RawClient>(RawClient::Adopt{}, fd);
}

void RawServer::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Task<void> Gate::Pass() {
  ++waiting_;
  while (!open_) {
    co_await signal_.Wait();
  }
}

void Gate::Open() {
  runtime_.Post(0, [this] {
    open_ = true;
    signal_.Notify();
  });
}

bool CanConnect(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  KVR_CHECK(fd >= 0);
  const sockaddr_in address = Loopback(port);
  // NOLINTNEXTLINE: the socket API's own cast
  const int failed = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  close(fd);
  return failed == 0;
}

NoDescriptors::NoDescriptors() {
  rlimit limit{};
  KVR_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit_ = std::exchange(limit.rlim_cur, 0);
  KVR_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

NoDescriptors::~NoDescriptors() {
  rlimit limit{};
  KVR_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit_;
  KVR_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

double Series(const metrics::Registry& registry, std::string_view series) {
  std::string text;
  registry.WriteText(text);
  const std::size_t at = text.find("\n" + std::string(series) + " ");
  if (at == std::string::npos) return -1;
  return std::strtod(text.c_str() + at + series.size() + 2, nullptr);
}

}  // namespace kvr::net::testing
