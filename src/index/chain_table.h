// A hash table whose links live in the items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/heap_bytes.h"

namespace kvr::index {

// Finds items, addressed by non-zero numbers, by hash. Equal keys are allowed; the newest comes
// first. `Items` gives HashOf(id) and a reference NextOf(id). One word a bucket beside the items'
// own link; an empty table has no heap. A resize walks all items. Not thread-safe.
class ChainTable {
 public:
  // First item of the bucket; follow its link until 0.
  [[nodiscard]] std::uint32_t First(std::uint64_t hash) const {
    return heads_.empty() ? 0 : heads_[hash & (heads_.size() - 1)];
  }

  template <typename Items>
  void Insert(Items& items, std::uint32_t id) {
    if (size_ == heads_.size()) Resize(items, heads_.empty() ? kSmallest : heads_.size() * 2);
    Link(items, id);
    ++size_;
  }

  template <typename Items>
  void Erase(Items& items, std::uint32_t id) {
    std::uint32_t* link = &Head(items.HashOf(id));
    while (*link != id)
      link = &items.NextOf(*link);
    *link = items.NextOf(id);
    --size_;
    if (size_ == 0) {
      std::vector<std::uint32_t>().swap(heads_);
    } else if (heads_.size() > kSmallest && size_ < heads_.size() / 8) {
      Resize(items, heads_.size() / 4);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(heads_.capacity() * sizeof(std::uint32_t));
  }

 private:
  static constexpr std::size_t kSmallest = 16;

  std::uint32_t& Head(std::uint64_t hash) { return heads_[hash & (heads_.size() - 1)]; }

  template <typename Items>
  void Link(Items& items, std::uint32_t id) {
    std::uint32_t& head = Head(items.HashOf(id));
    items.NextOf(id) = head;
    head = id;
  }

  template <typename Items>
  void Resize(Items& items, std::size_t buckets) {
    std::vector<std::uint32_t> old(buckets < kSmallest ? kSmallest : buckets, 0);
    old.swap(heads_);
    std::vector<std::uint32_t> bucket;
    for (std::uint32_t id : old) {
      for (bucket.clear(); id != 0; id = items.NextOf(id))
        bucket.push_back(id);
      while (!bucket.empty()) {  // last first, so that the newest of equal keys stays first
        Link(items, bucket.back());
        bucket.pop_back();
      }
    }
  }

  std::vector<std::uint32_t> heads_;
  std::size_t size_ = 0;
};

}  // namespace kvr::index
