// Asks for memory before it is read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvr::index {

// The line of `address`, which need not be valid. The empty statement is for GCC, which takes a
// function that only prefetches for one without effect and drops calls of it.
inline void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// Element `index` of an array, which may end before it or not be there.
template <typename T>
void PrefetchAt(const T* array, std::size_t index) {
  const auto address = reinterpret_cast<std::uintptr_t>(array) + index * sizeof(T);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a hint, which nobody reads through
  Prefetch(reinterpret_cast<const void*>(address));
}

}  // namespace kvr::index
