// What stores and removals do to the copies of a rank's blocks, and what the copies tell of later
// events. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"
#include "placement/copy_table.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// The salt of a store as the seed sees it.
struct Salt {
  SaltState state = SaltState::kNone;
  std::uint64_t mix = 0;

  static Salt Named(std::string_view text);
};

// Tiers whose blocks lie on the way of a prefix through the engine. What lies deeper is stored by
// components that know neither groups nor salts.
constexpr bool OnPath(Tier tier) {
  return tier == Tier::kDevice || tier == Tier::kHostPinned;
}

// The salt of a store that has a name at least. Its own first; else the parent's; else, of a copy
// in host memory, that of the same block on the device, for such copies are announced without keys.
Salt InheritSalt(const wire::EventBatch& batch, const wire::EngineEvent& event, Tier tier, Salt own,
                 CopyTable& blocks);

// Of a store off the device, where copies are announced without keys: whether its tokens alone
// would name another content.
bool LacksKeys(const wire::EventBatch& batch, const wire::EngineEvent& event, CopyTable& blocks);

// Of a store off the device: whether it is known which keys its blocks have, be it that they have
// none. If it does not say, the store on the device did.
bool KeysAreTold(const wire::EventBatch& batch, const wire::EngineEvent& event, CopyTable& blocks);

// Counts a copy of each of the store's blocks. `salt` is null when the store says nothing of the
// content; `keyed[i]` is whether keys are in the hash of block i, false beyond the end.
void AddCopies(std::span<const PlacedBlock> stored, Tier tier, const Salt* salt,
               std::span<const std::uint8_t> keyed, CopyTable& blocks, TranslatorStats& stats);

// Takes a copy of each of the removal's blocks, and appends to `gone` those of which none is left
// in the tier.
void RemoveCopies(const wire::EventBatch& batch, const wire::EngineEvent& event, Tier tier,
                  CopyTable& blocks, std::vector<EngineHash>& gone, TranslatorStats& stats);

}  // namespace kvr::placement
