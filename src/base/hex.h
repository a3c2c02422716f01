// Bytes as hexadecimal text, and back.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvr {

// Lower case, two digits a byte.
std::string ToHex(std::span<const std::byte> bytes);

// Accepts either case. kInvalidArgument names the first bad digit, or an odd length.
Result<std::vector<std::byte>> FromHex(std::string_view text);

}  // namespace kvr
