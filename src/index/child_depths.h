// Where the children of one run hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "index/heap_bytes.h"

namespace kvr::index {

// Counts the children at each block, so that the deepest is known without a look at all of them
// when one goes. Not thread-safe.
class ChildDepths {
 public:
  void Add(std::uint32_t depth) { ++counts_[depth]; }
  // One must be there.
  void Remove(std::uint32_t depth) {
    const auto at = counts_.find(depth);
    if (--at->second == 0) counts_.erase(at);
  }

  // 0: there is none.
  [[nodiscard]] std::uint32_t deepest() const {
    return counts_.empty() ? 0 : counts_.rbegin()->first;
  }
  // How many hang deeper.
  [[nodiscard]] std::uint32_t CountBehind(std::uint32_t depth) const {
    std::uint32_t behind = 0;
    for (auto at = counts_.upper_bound(depth); at != counts_.end(); ++at)
      behind += at->second;
    return behind;
  }
  [[nodiscard]] std::size_t bytes() const { return TreeBytes(counts_); }

 private:
  std::map<std::uint32_t, std::uint32_t> counts_;
};

}  // namespace kvr::index
