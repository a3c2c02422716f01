// Waits for one event of another thread.
#pragma once

#include "base/mutex.h"

namespace kvr {

// Closed until Set, which may come from any thread. Whoever waits may destroy the latch as soon as
// Wait returns.
class Latch {
 public:
  void Set() KVR_EXCLUDES(mutex_) {
    // Told under the lock: after it the waiter may be gone, and the latch with it.
    const Lock lock(mutex_);
    set_ = true;
    condition_.NotifyAll();
  }
  void Wait() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    while (!set_)
      condition_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool set_ KVR_GUARDED_BY(mutex_) = false;
};

}  // namespace kvr
