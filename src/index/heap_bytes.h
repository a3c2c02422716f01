// What an allocation costs beyond its size.
#pragma once

#include <cstddef>

namespace kvr::index {

// Heap that an allocation of `size` bytes takes: glibc rounds up to 16 bytes, 8 of them its own,
// and gives no less than 32. Other allocators are as near as their size classes are.
constexpr std::size_t HeapBytes(std::size_t size) {
  if (size == 0) return 0;
  const std::size_t rounded = (size + 8 + 15) / 16 * 16;
  return rounded < 32 ? 32 : rounded;
}

}  // namespace kvr::index
