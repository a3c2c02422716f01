#include "base/hex.h"

#include <cstddef>
#include <string>

#include <fmt/format.h>

namespace kvr {
namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string ToHex(std::span<const std::byte> bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<std::size_t>(b >> 4)];
    out += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return out;
}

Result<std::vector<std::byte>> FromHex(std::string_view text) {
  if (text.size() % 2 != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("hex text has an odd number of digits ({})", text.size()));
  }
  std::vector<std::byte> out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = DigitValue(text[i]);
    const int low = DigitValue(text[i + 1]);
    if (high < 0 || low < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("no hex digit at position {}", high < 0 ? i : i + 1));
    }
    out.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return out;
}

}  // namespace kvr
