#include "net/wake_fd.h"

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace kvr::net {

WakeFd::WakeFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  KVR_CHECK(fd_ >= 0);
}

WakeFd::~WakeFd() {
  close(fd_);
}

void WakeFd::Wake() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is at its maximum, and then it is readable already.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

void WakeFd::Clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(fd_, &count, sizeof count);
}

}  // namespace kvr::net
