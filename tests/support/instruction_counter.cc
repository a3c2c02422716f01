#include "support/instruction_counter.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kvr::test {

InstructionCounter::InstructionCounter() {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof attributes;
  attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}

InstructionCounter::~InstructionCounter() {
  if (fd_ >= 0) close(fd_);
}

std::optional<std::uint64_t> InstructionCounter::Count() const {
  std::uint64_t count = 0;
  if (fd_ < 0 || read(fd_, &count, sizeof count) != sizeof count) return std::nullopt;
  return count;
}

}  // namespace kvr::test
