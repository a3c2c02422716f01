// The characters of JSON, without a locale.
#pragma once

namespace kvr::service {

constexpr bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
// White space between values.
constexpr bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace kvr::service
