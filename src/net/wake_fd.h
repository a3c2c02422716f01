// Wakes a thread that waits in poll.
#pragma once

namespace kvr::net {

// A file descriptor that another thread makes readable, for loops that poll. Wake is thread-safe.
class WakeFd {
 public:
  WakeFd();  // aborts when the process has no descriptor left
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void Wake() const;
  void Clear() const;  // not readable until the next Wake

 private:
  int fd_;
};

}  // namespace kvr::net
