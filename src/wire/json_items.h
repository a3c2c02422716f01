// Where the items of a JSON list are in its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvr::wire {

// Of text that is valid JSON; of other text the answers mean nothing. Borrows the text. Finding all
// items of a list reads it once.
class JsonItems {
 public:
  explicit JsonItems(std::span<const std::byte> text);

  // The first byte of item `index` of the list; of a text that is no list, of its value. Indexes
  // are asked for in growing order; beyond the last item the end of the text is given.
  std::size_t BeginOf(std::uint32_t index);

 private:
  [[nodiscard]] char At(std::size_t i) const { return static_cast<char>(text_[i]); }
  void PassSpace();
  void PassText();
  void PassItem();

  std::span<const std::byte> text_;
  std::size_t at_ = 0;  // where item_ begins
  std::uint32_t item_ = 0;
};

}  // namespace kvr::wire
