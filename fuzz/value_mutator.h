// Mutations that leave an input well formed, so that the fuzzer spends its time on meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace kvr::fuzz {

// [begin, end) of an input.
struct Part {
  std::size_t begin;
  std::size_t end;
};

// The input with one of `parts` exchanged for another one of them or for one of `awkward`; empty
// when there are no parts.
std::vector<std::uint8_t> WithOneExchanged(std::span<const std::byte> input,
                                           std::span<const Part> parts,
                                           std::span<const std::string_view> awkward, Rng& rng);

// With one value exchanged; empty when the input is not of the format. Of JSON also with one key.
std::vector<std::uint8_t> MutatedMsgpack(std::span<const std::byte> input, Rng& rng);
std::vector<std::uint8_t> MutatedJson(std::span<const std::byte> input, Rng& rng);

}  // namespace kvr::fuzz
