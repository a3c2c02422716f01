// Tells a writer when nobody can still read what it took away.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>

namespace kvr {

// Readers enter and leave; they write one cache line that usually no other thread touches, and
// never wait for the writer. The writer makes an object unreachable, calls Advance, and may free it
// once HasPassed says so of the number it got.
//
// Objects must be reached through sequentially consistent atomics on both sides: then a reader that
// the writer did not see had not entered yet, and finds the object gone. What is read otherwise may
// be older than the stay on machines that order weakly; it is a hint to be verified.
class Epoch {
 public:
  // Readers inside at the same time; one more spins until another leaves.
  static constexpr std::size_t kReadersMax = 128;

  // A stay inside, for a scope. Keep it short and never block in it: it holds back all frees. One a
  // thread at a time: threads that enter twice may wait for each other when all cells are taken.
  class Reader {
   public:
    explicit Reader(const Epoch& epoch) : cell_(epoch.Enter()) {}
    // Pairs with the load in HasPassed: what was read here was read before the writer frees it.
    ~Reader() { cell_.store(kOutside, std::memory_order_release); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    std::atomic<std::uint64_t>& cell_;
  };

  // For one writer at a time.
  std::uint64_t Advance() { return now_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool HasPassed(std::uint64_t number) const {
    for (const Cell& cell : cells_) {
      const std::uint64_t entered = cell.entered.load(std::memory_order_seq_cst);
      if (entered != kOutside && entered <= number) return false;
    }
    return true;
  }
  // Returns when all readers that are inside now have left.
  void Wait() {
    const std::uint64_t number = Advance();
    while (!HasPassed(number))
      std::this_thread::yield();
  }

 private:
  static constexpr std::uint64_t kOutside = 0;
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> entered{kOutside};
  };

  // Threads that start one after the other begin at different cells, as many as there are cells.
  static std::size_t HomeOfThread() {
    static std::atomic<std::size_t> threads{0};
    static thread_local std::size_t number = 0;  // 0: none yet
    if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    return number;
  }

  std::atomic<std::uint64_t>& Enter() const {
    for (std::size_t i = HomeOfThread();; ++i) {
      std::atomic<std::uint64_t>& cell = cells_[i % kReadersMax].entered;
      std::uint64_t expected = kOutside;
      if (cell.load(std::memory_order_relaxed) == kOutside &&
          cell.compare_exchange_strong(expected, now_.load(std::memory_order_seq_cst),
                                       std::memory_order_seq_cst))
        return cell;
    }
  }

  mutable std::array<Cell, kReadersMax> cells_;
  std::atomic<std::uint64_t> now_{1};
};

}  // namespace kvr
