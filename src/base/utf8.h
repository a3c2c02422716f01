// Whether bytes are text.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvr {

// Length of the well-formed UTF-8 sequence at `text[i]`, or 0. `i` is within the text.
[[nodiscard]] std::size_t Utf8Length(std::string_view text, std::size_t i);

// Of short texts; a byte at a time.
[[nodiscard]] bool IsUtf8(std::string_view text);

}  // namespace kvr
