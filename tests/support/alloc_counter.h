// Counts heap allocations, so that a test can pin how many an operation may make. Linking
// kvr::alloc_counter replaces the global operator new of the executable.
#pragma once

#include <cstdint>

namespace kvr::test {

// Calls of any operator new by this thread since it started.
std::uint64_t AllocationsOfThisThread();

// EXPECT_EQ(AllocationsIn([&] { index.Match(...); }), 0u);
template <typename F>
std::uint64_t AllocationsIn(F&& f) {
  const std::uint64_t before = AllocationsOfThisThread();
  f();
  return AllocationsOfThisThread() - before;
}

}  // namespace kvr::test
