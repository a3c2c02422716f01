// What a change took away while queries may still read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/epoch.h"
#include "index/heap_bytes.h"

namespace kvr::index {

// Frees objects when no query can see them any more. For one writer at a time.
class Retired {
 public:
  explicit Retired(Epoch& epoch) : epoch_(epoch) {}
  // No query may run any more.
  ~Retired() { Free(waiting_.size()); }
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;

  // Queries can still reach the object until the next Release.
  template <typename T, typename Deleter>
  void Add(std::unique_ptr<T, Deleter> object, std::size_t bytes) {
    if (object == nullptr) return;
    using Pointer = typename std::unique_ptr<T, Deleter>::pointer;
    Add({const_cast<void*>(static_cast<const void*>(object.release())),
         [](void* p) { Deleter()(static_cast<Pointer>(p)); }, bytes, 0, 0});
  }
  // A number that must not be used again too early.
  void Add(std::uint32_t number) { Add({nullptr, nullptr, 0, number, 0}); }

  // All that was added is out of reach. Frees what is due, and hands over numbers that are.
  template <typename UseAgain>
  void Release(UseAgain&& use_again) {
    if (waiting_.size() - released_ < kBatch && bytes_ < kBatchBytes) return;
    Flush(use_again);
  }
  template <typename UseAgain>
  void Flush(UseAgain&& use_again) {
    const std::uint64_t now = epoch_.Advance();
    for (; released_ < waiting_.size(); ++released_)
      waiting_[released_].epoch = now;
    std::size_t due = 0;
    while (due < waiting_.size() && epoch_.HasPassed(waiting_[due].epoch)) {
      const std::uint64_t passed = waiting_[due].epoch;
      while (due < waiting_.size() && waiting_[due].epoch == passed)
        ++due;
    }
    for (std::size_t i = 0; i < due; ++i) {
      if (waiting_[i].object == nullptr) use_again(waiting_[i].number);
    }
    Free(due);
  }

  // With the list of it, but for what that takes when it is empty.
  [[nodiscard]] std::size_t bytes() const {
    return bytes_ + waiting_.size() / kItemsAPiece * kPieceBytes;
  }
  [[nodiscard]] static std::size_t empty_bytes() {
    return kPieceBytes + HeapBytes(8 * sizeof(void*));
  }

 private:
  // Looking at all readers costs about what freeing this many objects costs.
  static constexpr std::size_t kBatch = 64;
  static constexpr std::size_t kBatchBytes = 64 * 1024;

  struct Item {
    void* object;
    void (*free)(void*);
    std::size_t bytes;
    std::uint32_t number;
    std::uint64_t epoch;
  };
  // As libstdc++ makes a deque.
  static constexpr std::size_t kItemsAPiece = 512 / sizeof(Item);
  static constexpr std::size_t kPieceBytes = HeapBytes(kItemsAPiece * sizeof(Item));

  void Add(const Item& item) {
    waiting_.push_back(item);
    bytes_ += item.bytes;
  }
  void Free(std::size_t count) {
    for (; count > 0; --count) {
      const Item item = waiting_.front();
      waiting_.pop_front();
      if (item.object != nullptr) item.free(item.object);
      bytes_ -= item.bytes;
      if (released_ > 0) --released_;
    }
  }

  Epoch& epoch_;
  std::deque<Item> waiting_;
  std::size_t released_ = 0;  // of them, out of reach: from the front
  std::size_t bytes_ = 0;
};

}  // namespace kvr::index
