#include "hashing/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvr::hashing {

std::uint64_t Xxh3(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t Xxh3(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace kvr::hashing
