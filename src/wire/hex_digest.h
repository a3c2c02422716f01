// A digest of 32 bytes as text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace kvr::wire {

// Of 64 hex digits, of either case, the first 16: the integer form of the same digest. None when
// the text is another.
inline std::optional<std::uint64_t> HexDigestHead(std::string_view text) {
  constexpr std::size_t kDigits = 64;
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (text.size() != kDigits || !std::all_of(text.begin(), text.end(), is_digit))
    return std::nullopt;
  return ParseNumber<std::uint64_t>(text.substr(0, 16), 16);
}

}  // namespace kvr::wire
