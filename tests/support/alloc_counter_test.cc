#include "support/alloc_counter.h"

#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kvr::test {
namespace {

struct alignas(64) Line {
  char bytes[64];
};

// Shows the object to the outside: a compiler may leave out an allocation that nobody sees.
template <typename T>
void Show(const std::unique_ptr<T>& object) {
  [[maybe_unused]] const void* volatile seen = object.get();
}

TEST(AllocCounter, CountsEachForm) {
  EXPECT_EQ(AllocationsIn([] {}), 0u);
  EXPECT_EQ(AllocationsIn([] { Show(std::make_unique<std::vector<int>>(3)); }), 2u);
  EXPECT_EQ(AllocationsIn([] { Show(std::make_unique<Line>()); }), 1u);
  EXPECT_EQ(AllocationsIn([] { Show(std::make_unique<Line[]>(3)); }), 1u);
}

TEST(AllocCounter, WeighsWhatIsThere) {
  const std::int64_t before = HeapOfThisThread();
  auto big = std::make_unique<char[]>(100'000);
  Show(big);
  EXPECT_GE(HeapOfThisThread(), before + 100'000);
  EXPECT_LT(HeapOfThisThread(), before + 110'000);
  big.reset();
  EXPECT_EQ(HeapOfThisThread(), before);
}

TEST(AllocCounter, LeavesOutOtherThreads) {
  constexpr std::uint64_t kMany = 1'000;
  std::uint64_t theirs = 0;
  const std::uint64_t ours = AllocationsIn([&theirs] {
    std::jthread other([&theirs] {
      theirs = AllocationsIn([] {
        for (std::uint64_t i = 0; i < kMany; ++i)
          const std::vector<int> some(5);
      });
    });
    other.join();
  });
  EXPECT_EQ(theirs, kMany);
  EXPECT_LT(ours, kMany) << "starting a thread takes a few";
}

}  // namespace
}  // namespace kvr::test
