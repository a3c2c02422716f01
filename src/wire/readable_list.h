// A JSON list of which some items are no JSON, without those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvr::wire {

// One value that JSON has no words for, as a number beyond 64 bits or NaN is, makes a parser refuse
// all of a text. Of a list it need cost its item only.
struct ReadableList {
  struct BadItem {
    std::uint32_t index = 0;
    std::string_view text;  // borrowed from the list
  };

  std::string text;          // valid JSON, with a placeholder for each bad item
  std::vector<BadItem> bad;  // in their order
};

// Of a list that a parser refused. None when it is no list, does not end where its text does, or
// has more than `items_max` items. Takes time and memory as the text is long, whatever is in it.
std::optional<ReadableList> MakeReadable(std::span<const std::byte> list, std::size_t items_max,
                                         std::string_view placeholder = "null");

}  // namespace kvr::wire
