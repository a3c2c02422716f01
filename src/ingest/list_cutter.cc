#include "ingest/list_cutter.h"

#include <algorithm>

namespace kvr::ingest {
namespace {

bool IsSpace(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void PassSpace(std::string_view& bytes) {
  const auto* const end = std::ranges::find_if_not(bytes, IsSpace);
  bytes.remove_prefix(static_cast<std::size_t>(end - bytes.begin()));
}

// An item may be long once; the next ones need not keep its room.
constexpr std::size_t kKeptBytesMax = std::size_t{1} << 20;

}  // namespace

void ListCutter::Reset() {
  *this = ListCutter(item_bytes_max_);
}

ListCutter::Step ListCutter::Take(std::string_view& bytes) {
  if (item_ended_) {
    item_.clear();
    if (item_.capacity() > kKeptBytesMax) std::string().swap(item_);
    too_long_ = false;
    item_ended_ = false;
  }
  if (place_ == Place::kBefore) {
    PassSpace(bytes);
    if (bytes.empty()) return Step::kMore;
    alone_ = bytes.front() == '{';
    if (!alone_ && bytes.front() != '[') {
      place_ = Place::kWrong;
      return Step::kWrong;
    }
    if (!alone_) bytes.remove_prefix(1);
    place_ = alone_ ? Place::kWithin : Place::kFirst;
  }
  if (place_ == Place::kFirst) {
    PassSpace(bytes);
    if (bytes.empty()) return Step::kMore;
    place_ = Place::kWithin;
    if (bytes.front() == ']') {
      bytes.remove_prefix(1);
      place_ = Place::kBehind;
    }
  }
  if (place_ == Place::kWithin) {
    if (item_.empty()) PassSpace(bytes);  // before an item
    if (!PassItem(bytes)) return Step::kMore;
    item_ended_ = true;
    return Step::kItem;
  }
  PassSpace(bytes);
  if (bytes.empty() && place_ == Place::kBehind) return Step::kMore;
  place_ = Place::kWrong;
  return Step::kWrong;
}

bool ListCutter::PassItem(std::string_view& bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_text_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_text_ = false;
      }
      continue;
    }
    switch (c) {
      case '"':
        in_text_ = true;
        break;
      case '[':
      case '{':
        ++depth_;
        break;
      case ']':
      case '}':
        if (depth_ > 0) {
          --depth_;
          if (depth_ > 0 || !alone_) break;
          Keep(bytes.substr(0, i + 1));
          bytes.remove_prefix(i + 1);
          place_ = Place::kBehind;
          return true;
        }
        if (c == '}') break;
        [[fallthrough]];
      case ',':
        if (depth_ > 0) break;
        Keep(bytes.substr(0, i));
        bytes.remove_prefix(i + 1);
        if (c == ']') place_ = Place::kBehind;
        return true;
      default:
        break;
    }
  }
  Keep(bytes);
  bytes = {};
  return false;
}

void ListCutter::Keep(std::string_view text) {
  const std::size_t room = item_bytes_max_ - item_.size();
  too_long_ = too_long_ || text.size() > room;
  item_ += text.substr(0, room);
}

}  // namespace kvr::ingest
