// Seeded mixing of keys that come from outside.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvr::index {

inline std::uint64_t MulFold(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Spreads two words over 64 bits; all bits are usable.
inline std::uint64_t Mix(std::uint64_t seed, std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t x = MulFold(a ^ seed, 0x9E3779B97F4A7C15u);
  return MulFold(x ^ b, seed ^ 0xD6E8FEB86659FD93u);
}

// For standard containers whose keys engines choose. noexcept, or libstdc++ would keep the hash in
// every node.
struct SeededHash {
  std::uint64_t seed = 0;

  std::size_t operator()(std::uint64_t key) const noexcept { return Mix(seed, key, 1); }
};

}  // namespace kvr::index
