#include "base/epoch.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kvr {
namespace {

TEST(Epoch, HoldsBackWhatAReaderMaySee) {
  Epoch epoch;
  EXPECT_TRUE(epoch.HasPassed(epoch.Advance()));
  auto early = std::make_unique<Epoch::Reader>(epoch);
  const std::uint64_t number = epoch.Advance();
  EXPECT_FALSE(epoch.HasPassed(number));
  {
    const Epoch::Reader late(epoch);
    early.reset();
    EXPECT_TRUE(epoch.HasPassed(number)) << "a later reader does not count";
    EXPECT_FALSE(epoch.HasPassed(epoch.Advance()));
  }
  epoch.Wait();
}

TEST(Epoch, OneThreadMayBeInsideTwice) {
  Epoch epoch;
  const Epoch::Reader one(epoch);
  { const Epoch::Reader two(epoch); }
  EXPECT_FALSE(epoch.HasPassed(epoch.Advance()));
}

// Under a sanitizer a read after the free is reported.
TEST(Epoch, ReadersBesideAWriter) {
  Epoch epoch;
  std::atomic<const int*> current{new int(0)};
  std::atomic<bool> done{false};
  std::atomic<int> backwards{0};
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&] {
        int last = 0;
        while (!done) {
          const Epoch::Reader reader(epoch);
          const int seen = *current.load(std::memory_order_seq_cst);
          if (seen < last) ++backwards;
          last = seen;
        }
      });
    }
    for (int i = 1; i <= 2'000; ++i) {
      const int* const old = current.exchange(new int(i), std::memory_order_seq_cst);
      epoch.Wait();
      delete old;
    }
    done = true;
  }
  EXPECT_EQ(backwards, 0);
  delete current.load();
}

}  // namespace
}  // namespace kvr
