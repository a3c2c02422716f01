// A mutex for work in slices.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/mutex.h"

namespace kvr::index {

// Who holds it for long can let others in between: a plain unlock and lock rarely does, because who
// waits has to wake up first.
class KVR_TSA(capability("mutex")) FairMutex {
 public:
  // The analysis sees this mutex, not the one within.
  void lock() KVR_TSA(acquire_capability()) KVR_NO_ANALYSIS {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void unlock() KVR_TSA(release_capability()) KVR_NO_ANALYSIS { mutex_.unlock(); }

  // Unlocks and locks again. If anybody waits, one of them gets in before.
  void LetIn() KVR_REQUIRES(this) KVR_NO_ANALYSIS {
    const std::uint32_t turn = turns_.load(std::memory_order_relaxed);
    mutex_.unlock();
    while (waiting_.load(std::memory_order_relaxed) > 0 &&
           turns_.load(std::memory_order_relaxed) == turn)
      std::this_thread::yield();
    lock();
  }
  // The same for who waits for something else than the mutex, and gives up the processor for it.
  void Rest() KVR_REQUIRES(this) KVR_NO_ANALYSIS {
    LetIn();
    mutex_.unlock();
    std::this_thread::yield();
    lock();
  }

 private:
  Mutex mutex_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint32_t> turns_{0};  // waits that ended; written under the mutex
};

// Holds a FairMutex for a scope.
class KVR_TSA(scoped_lockable) FairLock {
 public:
  explicit FairLock(FairMutex& mutex) KVR_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~FairLock() KVR_TSA(release_capability()) { mutex_.unlock(); }
  FairLock(const FairLock&) = delete;
  FairLock& operator=(const FairLock&) = delete;

 private:
  FairMutex& mutex_;
};

}  // namespace kvr::index
