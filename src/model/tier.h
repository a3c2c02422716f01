// The storage tiers a block can be in, and their names on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvr {

// Where a rank's copy of a block lives, nearest first. A match goes from nearer to farther tiers
// and never back.
enum class Tier : std::uint8_t { kDevice, kHostPinned, kDisk, kExternal };

inline constexpr std::size_t kTierCount = 4;
inline constexpr std::array<std::string_view, kTierCount> kTierNames = {"device", "host_pinned",
                                                                        "disk", "external"};

constexpr std::string_view TierName(Tier tier) {
  return kTierNames[static_cast<std::size_t>(tier)];
}

constexpr std::optional<Tier> TierFromName(std::string_view name) {
  for (std::size_t i = 0; i < kTierCount; ++i) {
    if (kTierNames[i] == name) return static_cast<Tier>(i);
  }
  return std::nullopt;
}

}  // namespace kvr
