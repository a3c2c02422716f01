// The names engines give to storage tiers.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "model/tier.h"

namespace kvr::wire {

struct MediumName {
  std::string_view medium;
  Tier tier;
};

// Case-sensitive on purpose: a producer that writes "cpu" describes copies we cannot place.
inline constexpr std::array<MediumName, 13> kMediumNames = {{
    {"GPU", Tier::kDevice},
    {"DEVICE", Tier::kDevice},
    {"CPU", Tier::kHostPinned},
    {"CPU_PINNED", Tier::kHostPinned},
    {"CPU_TIER1", Tier::kHostPinned},
    {"CPU_TIER2", Tier::kDisk},
    {"DISK", Tier::kDisk},
    {"NVME", Tier::kDisk},
    {"STORAGE", Tier::kDisk},
    {"EXTERNAL", Tier::kExternal},
    {"NETWORK", Tier::kExternal},
    {"REMOTE", Tier::kExternal},
    {"SHARED", Tier::kExternal},
}};

// The tier of `medium`; none for a name we do not know. The empty name is the device.
constexpr std::optional<Tier> TierFromMedium(std::string_view medium) {
  if (medium.empty()) return Tier::kDevice;
  for (const MediumName& name : kMediumNames) {
    if (name.medium == medium) return name.tier;
  }
  return std::nullopt;
}

}  // namespace kvr::wire
