// XXH3-64 with a seed: the one hash behind every block and sequence hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvr::hashing {

// Equal to XXH3_64bits_withSeed(bytes, seed). No alignment is asked of `bytes`.
std::uint64_t Xxh3(std::span<const std::byte> bytes, std::uint64_t seed);
std::uint64_t Xxh3(std::string_view text, std::uint64_t seed);

}  // namespace kvr::hashing
