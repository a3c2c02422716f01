// Mutexes that clang's thread-safety analysis understands. Bare std::mutex is banned elsewhere.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define KVR_TSA(x) __attribute__((x))
#else
#define KVR_TSA(x)
#endif
#define KVR_GUARDED_BY(m) KVR_TSA(guarded_by(m))
#define KVR_REQUIRES(...) KVR_TSA(requires_capability(__VA_ARGS__))
#define KVR_REQUIRES_SHARED(...) KVR_TSA(requires_shared_capability(__VA_ARGS__))
#define KVR_EXCLUDES(...) KVR_TSA(locks_excluded(__VA_ARGS__))
// For the two or three places the analysis cannot follow.
// Say why beside each.
#define KVR_NO_ANALYSIS KVR_TSA(no_thread_safety_analysis)

namespace kvr {

class KVR_TSA(capability("mutex")) Mutex {
 public:
  void lock() KVR_TSA(acquire_capability()) { mutex_.lock(); }
  bool try_lock() KVR_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() KVR_TSA(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class KVR_TSA(capability("mutex")) SharedMutex {
 public:
  void lock() KVR_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() KVR_TSA(release_capability()) { mutex_.unlock(); }
  void lock_shared() KVR_TSA(acquire_shared_capability()) { mutex_.lock_shared(); }
  void unlock_shared() KVR_TSA(release_shared_capability()) { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a Mutex for a scope.
class KVR_TSA(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) KVR_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() KVR_TSA(release_capability()) { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// Holds a SharedMutex alone for a scope.
class KVR_TSA(scoped_lockable) WriteLock {
 public:
  explicit WriteLock(SharedMutex& mutex) KVR_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~WriteLock() KVR_TSA(release_capability()) { mutex_.unlock(); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Holds a SharedMutex together with other readers for a scope.
class KVR_TSA(scoped_lockable) ReadLock {
 public:
  explicit ReadLock(SharedMutex& mutex) KVR_TSA(acquire_shared_capability(mutex)) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReadLock() KVR_TSA(release_generic_capability()) { mutex_.unlock_shared(); }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// A condition variable for Mutex. Waits may wake early: test the condition in a loop.
class CondVar {
 public:
  void Wait(Mutex& mutex) KVR_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False when `deadline` passed first.
  template <typename Clock, typename Duration>
  bool WaitUntil(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline)
      KVR_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace kvr
