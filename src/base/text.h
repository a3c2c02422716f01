// The small things every reader of text needs.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace kvr {

// The whole of `text` as a number in the plain C locale; nothing when it is empty, has anything
// before or after the digits (a plus or white space included), or is out of range.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}
// The same of a whole number whose digits are of this base; no prefix such as 0x.
template <typename Whole>
std::optional<Whole> ParseNumber(std::string_view text, int base) {
  Whole value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Without the spaces, tabs and line ends around it.
std::string_view Trim(std::string_view text);

// The pieces between the separators, empty ones included: one more than there are separators. They
// point into `text`.
std::vector<std::string_view> Split(std::string_view text, char separator);

}  // namespace kvr
