#include "support/alloc_counter.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t allocations = 0;

void* Allocate(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* Allocate(std::size_t size, std::align_val_t align) {
  ++allocations;
  const auto alignment = static_cast<std::size_t>(align);
  // aligned_alloc wants a multiple of the alignment.
  if (void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment))
    return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace kvr::test {

std::uint64_t AllocationsOfThisThread() {
  return allocations;
}

}  // namespace kvr::test

// The array, nothrow and sized forms of the standard library end in these.
void* operator new(std::size_t size) {
  return Allocate(size);
}
void* operator new(std::size_t size, std::align_val_t align) {
  return Allocate(size, align);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
