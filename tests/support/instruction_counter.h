// Counts the user-space instructions of this thread, for benchmarks. Machines without a performance
// counter, as many virtual ones are, give none: tools/instructions counts there, slowly.
#pragma once

#include <cstdint>
#include <optional>

namespace kvr::test {

// Not thread-safe; counts the thread that made it.
class InstructionCounter {
 public:
  InstructionCounter();
  ~InstructionCounter();
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;

  // Since the counter was made; none when the machine has no counter, or it is forbidden.
  [[nodiscard]] std::optional<std::uint64_t> Count() const;

 private:
  int fd_;
};

}  // namespace kvr::test
