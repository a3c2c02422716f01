#include "wire/json_items.h"

namespace kvr::wire {

JsonItems::JsonItems(std::span<const std::byte> text) : text_(text) {
  PassSpace();
  if (at_ == text_.size() || At(at_) != '[') return;
  ++at_;
  PassSpace();
}

std::size_t JsonItems::BeginOf(std::uint32_t index) {
  for (; item_ < index && at_ < text_.size(); ++item_)
    PassItem();
  return at_;
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

void JsonItems::PassItem() {
  std::size_t depth = 0;
  while (at_ < text_.size()) {
    const char c = At(at_);
    if (c == '"') {
      PassText();
      continue;
    }
    ++at_;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == ',' && depth == 0) break;
  }
  PassSpace();
}

}  // namespace kvr::wire
