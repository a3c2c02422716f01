// Runs of MessagePack integers, as token ids come in: the bulk of every event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvr::wire {

// Decodes consecutive unsigned integers from `at` on until `out` is full or something else comes:
// another type, another width than the four that hold 32 bits, or the last bytes before `end`.
// Moves `at` behind what was decoded and returns how many that were; the rest is for a reader that
// checks each value. May read bytes from `begin` on, and decodes nothing within the first three.
std::size_t DecodeU32Run(const unsigned char* begin, const unsigned char*& at,
                         const unsigned char* end, std::span<std::uint32_t> out);

}  // namespace kvr::wire
