// Asks for memory before it is read.
#pragma once

namespace kvr::index {

// The line of `address`, which need not be valid. The empty statement is for GCC, which takes a
// function that only prefetches for one without effect and drops calls of it.
inline void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

}  // namespace kvr::index
