// How much memory answers that are told in pieces may hold together.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace kvr::service {

// Thread-safe.
class AnswerBudget {
  using Taken = std::atomic<std::size_t>;

 public:
  explicit AnswerBudget(std::size_t bytes_max)
      : bytes_max_(bytes_max), taken_(std::make_shared<Taken>(0)) {}

  // What one answer takes, given back with the object, which may outlive the budget.
  class Share {
   public:
    Share(Share&& other) noexcept
        : taken_(std::move(other.taken_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (bytes_ > 0) taken_->fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    friend class AnswerBudget;
    Share(std::shared_ptr<Taken> taken, std::size_t bytes)
        : taken_(std::move(taken)), bytes_(bytes) {}

    std::shared_ptr<Taken> taken_;
    std::size_t bytes_;
  };

  // None when there is no room. A lone answer always has it. Relaxed: the number guards no other
  // memory.
  [[nodiscard]] std::optional<Share> Take(std::size_t bytes) {
    const std::size_t before = taken_->fetch_add(bytes, std::memory_order_relaxed);
    if (before > 0 && (before > bytes_max_ || bytes > bytes_max_ - before)) {
      taken_->fetch_sub(bytes, std::memory_order_relaxed);
      return std::nullopt;
    }
    return Share(taken_, bytes);
  }
  [[nodiscard]] std::size_t taken() const { return taken_->load(std::memory_order_relaxed); }

 private:
  const std::size_t bytes_max_;
  const std::shared_ptr<Taken> taken_;
};

}  // namespace kvr::service
