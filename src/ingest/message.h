// The frames around a payload: how messages are numbered and told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hashing/xxh3.h"

namespace kvr::ingest {

// The number of a replay's end marker; no message has it.
inline constexpr std::uint64_t kEndSequence = ~std::uint64_t{0};

// False unless `frame` is 8 bytes; they are big-endian, as BigEndian writes them.
inline bool ReadSequence(std::span<const std::byte> frame, std::uint64_t& sequence) {
  if (frame.size() != 8) return false;
  sequence = 0;
  for (const std::byte b : frame)
    sequence = sequence << 8 | static_cast<std::uint8_t>(b);
  return true;
}

// Tells payloads apart, here and in other processes (StreamPosition). Two engines do not publish
// the same bytes under one number: each payload carries the time.
inline std::uint64_t MessageDigest(std::span<const std::byte> payload) {
  return hashing::Xxh3(payload, 0);
}

}  // namespace kvr::ingest
