// Which runs a rank has something in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "index/heap_bytes.h"
#include "index/run_state.h"

namespace kvr::index {

// A set of run numbers: open addressing, at most three quarters full, nothing on the heap when
// empty. Not thread-safe.
class RunSet {
 public:
  void Add(RunId run);    // may be there
  void Erase(RunId run);  // may be absent
  // Takes one out; there must be one.
  RunId Take();

  // One after the other, again and again; there must be one. All are seen in size() calls while
  // none is added or erased.
  RunId Next();
  // All, between kRootRuns.
  [[nodiscard]] std::span<const RunId> cells() const { return slots_; }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return HeapBytes(slots_.capacity() * sizeof(RunId)); }

 private:
  [[nodiscard]] std::size_t Home(RunId run) const {
    return static_cast<std::size_t>((run * 0x9E3779B97F4A7C15u) >> 32) & (slots_.size() - 1);
  }
  void Resize(std::size_t size);
  void EraseAt(std::size_t i);

  std::vector<RunId> slots_;  // kRootRun: free
  std::size_t size_ = 0;
  std::size_t hand_ = 0;
};

}  // namespace kvr::index
