// The blocks whose names a rank keeps after it dropped them, oldest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "index/heap_bytes.h"
#include "index/run_state.h"

namespace kvr::index {

// Kept as stretches, in the order their blocks were dropped: engines drop whole tails. Recall and
// Move look at every stretch, so an operation costs at most what IndexOptions::remembered_names_max
// allows. Not thread-safe.
class RememberedBlocks {
 public:
  struct Dropped {
    RunId run = kRootRun;
    Stretch blocks;
    bool tail_first = false;  // dropped from the last block to the first
  };

  void Add(const Dropped& dropped);
  // The oldest, at most `count`; there must be one.
  Dropped TakeOldest(std::uint32_t count);
  // Forgets which of these blocks are here.
  void Recall(RunId run, Stretch blocks);
  // The blocks belong to another run from now on.
  void Move(RunId from, RunId to, Stretch blocks);

  [[nodiscard]] std::size_t size() const { return size_; }  // blocks
  [[nodiscard]] const std::deque<Dropped>& list() const { return list_; }
  // Estimated heap in use: a deque's nodes have 512 bytes.
  [[nodiscard]] std::size_t bytes() const {
    constexpr std::size_t kNode = 512;
    return (list_.size() * sizeof(Dropped) / kNode + 1) * HeapBytes(kNode) + HeapBytes(64);
  }

 private:
  std::deque<Dropped> list_;
  std::size_t size_ = 0;
};

}  // namespace kvr::index
