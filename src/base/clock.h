// Time through an interface, so that a simulation can own it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace kvr {

using Nanos = std::chrono::nanoseconds;
using Millis = std::chrono::milliseconds;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; the zero point is arbitrary and equal within one process.
  [[nodiscard]] virtual Nanos Now() const = 0;
  // Since the Unix epoch. For logs and wire time stamps, never for durations.
  [[nodiscard]] virtual Nanos WallTime() const = 0;
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] Nanos Now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  [[nodiscard]] Nanos WallTime() const override {
    return std::chrono::system_clock::now().time_since_epoch();
  }
};

// Moves only when told to. Wall time is Now().
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanos Now() const override { return Nanos{now_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Nanos WallTime() const override { return Now(); }
  // Relaxed: the clock orders nothing but itself.
  void Advance(Nanos by) { now_.fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_{0};
};

}  // namespace kvr
