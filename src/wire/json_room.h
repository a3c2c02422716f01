// What JSON texts cost in memory. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>

#include <simdjson.h>

#include "base/reused_lists.h"

namespace kvr::wire {

// A parser reserves about so many bytes for each byte of a text before it has looked at it, and
// keeps them.
inline constexpr std::size_t kParserBytesAByte = 14;

// Gives the room of a parser back, as ReusedLists do that of lists.
class JsonRoom {
 public:
  // Before the next text.
  void Look(simdjson::dom::parser& parser) {
    if (looks_.IsDue()) [[unlikely]]
      GiveBack(parser);
  }
  // At once; nothing of the last text is used any more.
  static void GiveBack(simdjson::dom::parser& parser) {
    if (parser.capacity() * kParserBytesAByte > ReusedLists::kKeptBytesMax) {
      parser = simdjson::dom::parser();
    }
  }

 private:
  ReusedLists looks_;
};

}  // namespace kvr::wire
