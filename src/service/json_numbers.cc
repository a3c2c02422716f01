#include "service/json_numbers.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <simdjson.h>

#include "service/json_chars.h"

namespace kvr::service {
namespace {

// Digits that fit into 64 bits whatever they are.
constexpr std::size_t kSafeDigits = 18;
// Of a field's name, in an error.
constexpr std::size_t kNameBytesMax = 64;

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) { faults_.without_far = text; }

  NumberFaults Run() && {
    while (at_ < text_.size() && !faults_.malformed)
      Step();
    return std::move(faults_);
  }

 private:
  void Step() {
    const char c = text_[at_];
    if (c == '"') return String();
    if (c == '-' || IsDigit(c)) return Number();
    if (c == '{' || c == '[') {
      if (++depth_ == 2) {
        in_list_ = c == '[';
        element_ = 0;
      }
    } else if (c == '}' || c == ']') {
      --depth_;
    } else if (c == ',' && depth_ == 2) {
      ++element_;
    }
    ++at_;
  }

  void String() {
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"')
      at_ += text_[at_] == '\\' ? 2u : 1u;
    at_ = std::min(at_, text_.size());
    // Before a number in the outermost object, the last string of that level is its field's name.
    if (depth_ == 1) field_ = text_.substr(begin, at_ - begin);
    ++at_;
  }

  void Number() {
    const std::size_t begin = at_;
    faults_.malformed = !TakeNumber();
    if (faults_.malformed) return;
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (!IsFar(number)) return;
    faults_.without_far.replace(begin, number.size(), "0" + std::string(number.size() - 1, ' '));
    if (faults_.far_where.empty()) faults_.far_where = Where();
  }

  [[nodiscard]] std::string Where() const {
    const std::string name = fmt::format("`{}`", field_.substr(0, kNameBytesMax));
    return depth_ >= 2 && in_list_ ? fmt::format("{}[{}]", name, element_) : name;
  }

  bool IsFar(std::string_view number) {
    if (number.size() <= kSafeDigits && std::all_of(number.begin(), number.end(), IsDigit)) {
      return false;
    }
    return parser_.parse(number.data(), number.size()).error() == simdjson::NUMBER_ERROR;
  }

  // Goes past a number; false when it is not well-formed.
  bool TakeNumber() {
    TakeOneOf("-");
    const bool leading_zero = at_ < text_.size() && text_[at_] == '0';
    const std::size_t whole = TakeDigits();
    if (whole == 0 || (leading_zero && whole > 1)) return false;
    if (TakeOneOf(".") && TakeDigits() == 0) return false;
    if (TakeOneOf("eE")) {
      TakeOneOf("+-");
      if (TakeDigits() == 0) return false;
    }
    return at_ == text_.size() || std::string_view(" \t\r\n,]}").find(text_[at_]) != text_.npos;
  }

  std::size_t TakeDigits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && IsDigit(text_[at_]))
      ++at_;
    return at_ - begin;
  }

  bool TakeOneOf(std::string_view chars) {
    if (at_ == text_.size() || chars.find(text_[at_]) == std::string_view::npos) return false;
    ++at_;
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool in_list_ = false;     // what is at depth 2 is a list ...
  std::size_t element_ = 0;  // ... and this element of it is at hand
  std::string_view field_;
  simdjson::dom::parser parser_;
  NumberFaults faults_;
};

}  // namespace

NumberFaults FindNumberFaults(std::string_view text) {
  return Scan(text).Run();
}

}  // namespace kvr::service
