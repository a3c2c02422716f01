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

// What containers of nodes take, as libstdc++ makes them; what elements own is not counted.
template <typename Table>
std::size_t HashTableBytes(const Table& table) {
  constexpr std::size_t kNode = 2 * sizeof(void*) + sizeof(typename Table::value_type);
  const std::size_t buckets = table.bucket_count() > 1 ? table.bucket_count() : 0;
  return table.size() * HeapBytes(kNode) + HeapBytes(buckets * sizeof(void*));
}
template <typename Tree>
std::size_t TreeBytes(const Tree& tree) {
  constexpr std::size_t kNode = 4 * sizeof(void*) + sizeof(typename Tree::value_type);
  return tree.size() * HeapBytes(kNode);
}

}  // namespace kvr::index
