// How much memory the request bodies of one server may take together. For this module only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "metrics/registry.h"

namespace kvr::net {

// Thread-safe; one atomic operation each time a body grows.
class BodyBudget {
 public:
  // `held` shows what is given out and must outlive the budget.
  BodyBudget(std::size_t bytes_max, metrics::Gauge& held) : bytes_max_(bytes_max), held_(held) {}

  // Before the server starts: a budget below the largest body would refuse that one for ever.
  void MakeRoomFor(std::size_t body_bytes) { bytes_max_ = std::max(bytes_max_, body_bytes); }
  [[nodiscard]] std::size_t bytes_max() const { return bytes_max_; }

  // All of `bytes` or nothing. Relaxed: the number guards no other memory.
  [[nodiscard]] bool Take(std::size_t bytes) {
    const std::size_t before = taken_.fetch_add(bytes, std::memory_order_relaxed);
    if (before > bytes_max_ || bytes > bytes_max_ - before) {
      taken_.fetch_sub(bytes, std::memory_order_relaxed);
      return false;
    }
    held_.Add(static_cast<std::int64_t>(bytes));
    return true;
  }
  void Give(std::size_t bytes) {
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    held_.Add(-static_cast<std::int64_t>(bytes));
  }

 private:
  std::size_t bytes_max_;
  metrics::Gauge& held_;
  std::atomic<std::size_t> taken_{0};
};

// What one body takes of it, given back at the latest with the share. Used by one thread.
class BodyShare {
 public:
  explicit BodyShare(BodyBudget& budget) : budget_(budget) {}
  ~BodyShare() { Release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // False when the budget has no room for the difference; the share stays as it is.
  [[nodiscard]] bool GrowTo(std::size_t bytes) {
    if (bytes <= bytes_) return true;
    if (!budget_.Take(bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }
  void Release() {
    if (bytes_ > 0) budget_.Give(bytes_);
    bytes_ = 0;
  }

 private:
  BodyBudget& budget_;
  std::size_t bytes_ = 0;
};

}  // namespace kvr::net
