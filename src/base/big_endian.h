// Numbers as the wire has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvr {

// The highest byte first.
inline std::array<std::byte, 8> BigEndian(std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(value >> (56 - 8 * i));
  return bytes;
}

}  // namespace kvr
