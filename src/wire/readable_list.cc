#include "wire/readable_list.h"

#include <simdjson.h>

#include "wire/json_items.h"

namespace kvr::wire {
namespace {

// Says of texts whether each can be an item of a list.
class ItemCheck {
 public:
  bool IsGood(std::string_view item) {
    // As an item, so that it may be nested as deep as it may be there, and may not be empty.
    alone_.assign("[").append(item).append("]");
    simdjson::dom::array list;
    return parser_.parse(alone_).get(list) == simdjson::SUCCESS && list.size() == 1;
  }

 private:
  simdjson::dom::parser parser_;
  std::string alone_;
};

}  // namespace

std::optional<ReadableList> MakeReadable(std::span<const std::byte> list, std::size_t items_max,
                                         std::string_view placeholder) {
  ReadableList readable;
  ItemCheck check;
  JsonItems items(list);
  std::uint32_t count = 0;
  for (auto item = items.Next(); item; item = items.Next(), ++count) {
    if (count == items_max) return std::nullopt;
    const bool good = check.IsGood(*item);
    readable.text += count == 0 ? '[' : ',';
    readable.text += good ? *item : placeholder;
    if (!good) readable.bad.push_back({count, *item});
  }
  if (!items.ended()) return std::nullopt;
  readable.text += ']';
  return readable;
}

}  // namespace kvr::wire
