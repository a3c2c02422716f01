// A queue between threads that refuses what is too much.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace kvr {

// A first-in first-out queue between threads with a stated maximum. Thread-safe.
//
// Full: TryPush refuses and leaves the value with the caller, who counts or sheds it.
// Closed: pushes are refused, pops drain what is left and then return nothing.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t items_max) : items_max_(items_max) {}

  // False when full or closed; `value` is then untouched.
  [[nodiscard]] bool TryPush(T&& value) KVR_EXCLUDES(mutex_) {
    {
      const Lock lock(mutex_);
      if (closed_ || items_.size() >= items_max_) return false;
      items_.push_back(std::move(value));
    }
    not_empty_.NotifyOne();
    return true;
  }

  // Blocks until there is a value, or the queue is closed and empty (nothing).
  [[nodiscard]] std::optional<T> Pop() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    while (items_.empty() && !closed_)
      not_empty_.Wait(mutex_);
    return TakeFront();
  }

  // Nothing when there is no value right now.
  [[nodiscard]] std::optional<T> TryPop() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return TakeFront();
  }

  void Close() KVR_EXCLUDES(mutex_) {
    {
      const Lock lock(mutex_);
      closed_ = true;
    }
    not_empty_.NotifyAll();
  }

  [[nodiscard]] std::size_t size() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> TakeFront() KVR_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const std::size_t items_max_;
  mutable Mutex mutex_;
  CondVar not_empty_;
  std::deque<T> items_ KVR_GUARDED_BY(mutex_);
  bool closed_ KVR_GUARDED_BY(mutex_) = false;
};

}  // namespace kvr
