// Counts heap allocations, so that a test can pin how many an operation may make, or what an object
// weighs. Linking
// kvr::alloc_counter replaces the global operator new of the executable.
#pragma once

#include <cstdint>

namespace kvr::test {

// Calls of any operator new by this thread since it started.
std::uint64_t AllocationsOfThisThread();

// Heap that this thread took and did not give back since it started, as malloc counts it: with what
// it adds to a size. Below zero when it freed what others took.
std::int64_t HeapOfThisThread();

// EXPECT_EQ(AllocationsIn([&] { index.Match(...); }), 0u);
template <typename F>
std::uint64_t AllocationsIn(F&& f) {
  const std::uint64_t before = AllocationsOfThisThread();
  f();
  return AllocationsOfThisThread() - before;
}

}  // namespace kvr::test
