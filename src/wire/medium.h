// The names engines give to storage tiers.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "model/tier.h"

namespace kvr::wire {

struct MediumName {
  std::string_view medium;
  Tier tier;
};

// Case-sensitive on purpose: a producer that writes "cpu" describes copies we cannot place.
inline constexpr std::array<MediumName, 14> kMediumNames = {{
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
    {"SHARED_STORAGE", Tier::kExternal},
}};

// The tier of `medium`; none for a name we do not know. The empty name is the device.
constexpr std::optional<Tier> TierFromMedium(std::string_view medium) {
  if (medium.empty()) return Tier::kDevice;
  for (const MediumName& name : kMediumNames) {
    if (name.medium == medium) return name.tier;
  }
  return std::nullopt;
}

// The names of more producers, upper-cased: for workers of which the operator says so.
inline constexpr std::array<MediumName, 2> kFurtherMediumNames = {{
    {"FS", Tier::kDisk},
    {"OBJ", Tier::kDisk},
}};

// The same in any case, `cpu` of LMCache and of Mooncake's connector included, and with
// kFurtherMediumNames.
inline std::optional<Tier> TierFromMediumLeniently(std::string_view medium) {
  std::array<char, 16> upper{};
  if (medium.size() > upper.size()) return std::nullopt;
  for (std::size_t i = 0; i < medium.size(); ++i)
    upper[i] = medium[i] >= 'a' && medium[i] <= 'z' ? static_cast<char>(medium[i] - 32) : medium[i];
  const std::string_view name(upper.data(), medium.size());
  if (const auto tier = TierFromMedium(name)) return tier;
  for (const MediumName& further : kFurtherMediumNames) {
    if (further.medium == name) return further.tier;
  }
  return std::nullopt;
}

}  // namespace kvr::wire
