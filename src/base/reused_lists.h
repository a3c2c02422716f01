// Lists that are filled again with each message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvr {

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
    Look(lists...);
  }

  // Of lists that are overwritten next: their content may go.
  template <typename... T>
  void Look(std::vector<T>&... lists) {
    if (IsDue()) [[unlikely]]
      (GiveBack(lists), ...);
  }

  // For other things than lists: whether it is time to give back what is extraordinary.
  [[nodiscard]] bool IsDue() { return ++looks_ % kLookEvery == 0; }

 private:
  template <typename T>
  static void GiveBack(std::vector<T>& list) {
    if (list.capacity() * sizeof(T) > kKeptBytesMax) std::vector<T>().swap(list);
  }

  std::uint32_t looks_ = 0;
};

}  // namespace kvr
