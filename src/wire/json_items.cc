#include "wire/json_items.h"

namespace kvr::wire {

JsonItems::JsonItems(std::span<const std::byte> text) : text_(text) {
  PassSpace();
  if (at_ == text_.size() || At(at_) != '[') return;
  list_ = true;
  ++at_;
  PassSpace();
}

std::size_t JsonItems::BeginOf(std::uint32_t index) {
  while (item_ < index && at_ < text_.size()) {
    PassItem();
    PassEndOfItem();
  }
  return at_;
}

std::optional<std::string_view> JsonItems::Next() {
  if (!list_ || closed_) return std::nullopt;
  const std::size_t begin = at_;
  PassItem();
  if (at_ == text_.size()) return std::nullopt;
  const auto item = text_.subspan(begin, at_ - begin);
  PassEndOfItem();
  return std::string_view(reinterpret_cast<const char*>(item.data()), item.size());
}

void JsonItems::PassSpace() {
  while (at_ < text_.size() && (At(at_) == ' ' || (At(at_) >= '\t' && At(at_) <= '\r')))
    ++at_;
}

// From the quotation mark to behind the one that ends the text.
void JsonItems::PassText() {
  for (++at_; at_ < text_.size() && At(at_) != '"'; ++at_) {
    if (At(at_) == '\\') ++at_;
  }
  at_ = at_ < text_.size() ? at_ + 1 : text_.size();
}

// To the comma or bracket that ends the item.
void JsonItems::PassItem() {
  std::size_t depth = 0;
  while (at_ < text_.size()) {
    const char c = At(at_);
    if (c == '"') {
      PassText();
      continue;
    }
    if (depth == 0 && (c == ',' || c == ']')) return;
    ++at_;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
}

void JsonItems::PassEndOfItem() {
  ++item_;
  if (at_ == text_.size()) return;
  closed_ = At(at_) == ']';
  ++at_;
  PassSpace();
}

bool HasMoreItems(std::span<const std::byte> list, std::size_t items) {
  JsonItems all(list);
  std::size_t count = 0;
  while (count <= items && all.Next())
    ++count;
  return count > items;
}

}  // namespace kvr::wire
