#include "support/alloc_counter.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

thread_local std::uint64_t allocations = 0;
thread_local std::int64_t heap = 0;

// glibc keeps a word before each piece.
std::int64_t Weight(void* memory) {
  return static_cast<std::int64_t>(malloc_usable_size(memory) + sizeof(std::size_t));
}

void* Counted(void* memory) noexcept {
  ++allocations;
  if (memory != nullptr) heap += Weight(memory);
  return memory;
}

void Free(void* memory) noexcept {
  if (memory == nullptr) return;
  heap -= Weight(memory);
  std::free(memory);
}

void* AllocateOrNull(std::size_t size) noexcept {
  return Counted(std::malloc(size == 0 ? 1 : size));
}

void* Allocate(std::size_t size) {
  if (void* memory = AllocateOrNull(size)) return memory;
  throw std::bad_alloc();
}

void* Allocate(std::size_t size, std::align_val_t align) {
  const auto alignment = static_cast<std::size_t>(align);
  // aligned_alloc wants a multiple of the alignment.
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (void* memory = Counted(std::aligned_alloc(alignment, rounded))) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace kvr::test {

std::uint64_t AllocationsOfThisThread() {
  return allocations;
}

std::int64_t HeapOfThisThread() {
  return heap;
}

}  // namespace kvr::test

// Every form, although those of the standard library end in the first two: a sanitizer brings forms
// of its own, which must not meet these.
void* operator new(std::size_t size) {
  return Allocate(size);
}
void* operator new[](std::size_t size) {
  return Allocate(size);
}
void* operator new(std::size_t size, std::align_val_t align) {
  return Allocate(size, align);
}
void* operator new[](std::size_t size, std::align_val_t align) {
  return Allocate(size, align);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size);
}
void operator delete(void* memory) noexcept {
  Free(memory);
}
void operator delete[](void* memory) noexcept {
  Free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  Free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  Free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  Free(memory);
}
