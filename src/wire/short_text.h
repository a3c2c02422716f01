// Comparisons of texts that are mostly shorter than a call to the library is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kvr::wire {

namespace internal {

// All bytes of a text shorter than 8, some perhaps more than once.
inline std::uint64_t ShortWord(const char* text, std::size_t size) {
  if (size >= 4) {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::memcpy(&begin, text, sizeof begin);
    std::memcpy(&end, text + size - sizeof end, sizeof end);
    return std::uint64_t{end} << 32 | begin;
  }
  if (size == 0) return 0;
  const auto at = [text](std::size_t i) {
    return std::uint64_t{static_cast<unsigned char>(text[i])};
  };
  return at(0) << 16 | at(size / 2) << 8 | at(size - 1);
}

inline std::uint64_t WordAt(const char* text) {
  std::uint64_t word = 0;
  std::memcpy(&word, text, sizeof word);
  return word;
}

}  // namespace internal

inline bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  const std::size_t size = a.size();
  if (size < 8) return internal::ShortWord(a.data(), size) == internal::ShortWord(b.data(), size);
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i + 8 < size; i += 8)
    differs |= internal::WordAt(a.data() + i) ^ internal::WordAt(b.data() + i);
  differs |= internal::WordAt(a.data() + size - 8) ^ internal::WordAt(b.data() + size - 8);
  return differs == 0;
}

inline bool IsAscii(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  const std::size_t size = text.size();
  if (size < 8) return (internal::ShortWord(text.data(), size) & kHighBits) == 0;
  std::uint64_t bits = internal::WordAt(text.data() + size - 8);
  for (std::size_t i = 0; i + 8 < size; i += 8)
    bits |= internal::WordAt(text.data() + i);
  return (bits & kHighBits) == 0;
}

}  // namespace kvr::wire
