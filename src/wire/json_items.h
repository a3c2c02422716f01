// Where the items of a JSON list are in its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kvr::wire {

// An item is what is between two commas of the list, with as many brackets closed as opened; in a
// list that is valid JSON those are its values. Borrows the text. Finding all items reads it once.
class JsonItems {
 public:
  explicit JsonItems(std::span<const std::byte> text);

  // The first byte of item `index` of the list; of a text that is no list, of its value. Indexes
  // are asked for in growing order; beyond the last item the end of the text is given.
  std::size_t BeginOf(std::uint32_t index);

  // The next item, with the space behind it; of an empty list one that is empty. None when the list
  // or its text ends.
  std::optional<std::string_view> Next();
  // Whether the list is at its end, and its text is, too.
  [[nodiscard]] bool ended() const { return closed_ && at_ == text_.size(); }

 private:
  [[nodiscard]] char At(std::size_t i) const { return static_cast<char>(text_[i]); }
  void PassSpace();
  void PassText();
  void PassItem();
  void PassEndOfItem();

  std::span<const std::byte> text_;
  std::size_t at_ = 0;  // where item_ begins
  std::uint32_t item_ = 0;
  bool list_ = false;
  bool closed_ = false;
};

// Whether a list has more than so many items, empty ones counted. Reads no further than that takes.
bool HasMoreItems(std::span<const std::byte> list, std::size_t items);

}  // namespace kvr::wire
