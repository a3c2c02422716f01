// Whose blocks a RouterEvent speaks of, and what a clear takes with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "wire/router_event.h"

namespace kvr::wire {

// What an event's residency domain comes to, once somebody has to know.
enum class Residency : std::uint8_t {
  kWorker,        // the rank's own blocks
  kCacheOwner,    // those of a cache that outlives the engine's process
  kAll,           // a clear without a domain, as old writers send it: both
  kUnsupported,   // a domain nobody knows, or a cache owner's block on the device
  kOwnerMissing,  // a cache owner's block without the owner
};
inline constexpr std::array<std::string_view, 5> kResidencyNames = {"worker", "cache_owner", "all",
                                                                    "unsupported", "owner_missing"};

Residency ResidencyOf(const RouterEvent& event);

// Whether an index of the device tier has to look at the event. A clear names the device as a
// placeholder and reaches all tiers.
bool ReachesDevice(const RouterEvent& event);

// What a snapshot replaces: everything of the rank, or one domain.
enum class ResetScope : std::uint8_t { kAll, kWorker, kCacheOwner };

// "all", or {"domain":"worker"}, in MessagePack and in JSON.
void EncodeResetScope(ResetScope scope, std::string& out);
void WriteResetScope(ResetScope scope, JsonWriter& json);
// None for anything else. Unknown keys are skipped.
std::optional<ResetScope> DecodeResetScope(std::span<const std::byte> payload);

}  // namespace kvr::wire
