// Lists that are filled again with each message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvr::wire {

// Empties the lists of a batch and keeps their room, so that a warm batch allocates nothing. Room
// that only an extraordinary message needed is given back: once in kLookEvery times the lists are
// looked at, for a look costs more than all else here. Not thread-safe.
class ReusedLists {
 public:
  static constexpr std::size_t kKeptBytesMax = std::size_t{8} << 20;  // of each list
  static constexpr std::uint32_t kLookEvery = 64;

  template <typename... T>
  void Empty(std::vector<T>&... lists) {
    (lists.clear(), ...);
    if (++emptied_ % kLookEvery == 0) [[unlikely]]
      (GiveBack(lists), ...);
  }

 private:
  template <typename T>
  static void GiveBack(std::vector<T>& list) {
    if (list.capacity() * sizeof(T) > kKeptBytesMax) std::vector<T>().swap(list);
  }

  std::uint32_t emptied_ = 0;
};

}  // namespace kvr::wire
