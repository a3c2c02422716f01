// What stores and removals do to the copies of a rank's blocks, and what the copies tell of later
// events. Private to the module.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"
#include "placement/copy_table.h"
#include "placement/rank_memory.h"
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

// What stores of a stream have had beside tokens. It outlives what is known of their blocks: copies
// of such blocks may be announced when all that told of the keys is gone.
struct ShownKeys {
  bool salts = false;
  bool adapters = false;
  bool others = false;
};

// Of a store off the device: whether it may be without keys that its blocks have, as others of the
// stream do, because of some block nothing else is known. Its tokens would then name another's.
bool MayLackKeys(const wire::EventBatch& batch, const wire::EngineEvent& event, const Salt& salt,
                 const ShownKeys& shown, CopyTable& blocks);

// Of a store off the device: whether it is known which keys its blocks have, be it that they have
// none. If it does not say, the store on the device did.
bool KeysAreTold(const wire::EventBatch& batch, const wire::EngineEvent& event, CopyTable& blocks);

// Whether the name stands for blocks in several places, so that nothing goes where it is. Engines
// whose hashes do not cover what is before a block, and broken ones, use names so.
bool IsMisplaced(EngineHash name, CopyTable& blocks);

// Of a store off the device: whether the device has one of its blocks, or had it last, in another
// place or with another content. Connectors do not always know either.
bool IsElsewhere(std::span<const PlacedBlock> stored, std::optional<EngineHash> parent,
                 RankMemory& memory);

// What a store says of each of its blocks.
struct StoreFacts {
  Tier tier = Tier::kDevice;
  bool sole = false;  // there is no second copy of a block in the tier
  std::optional<EngineHash> parent;
  const Salt* salt = nullptr;           // null: nothing of content and place
  std::span<const std::uint8_t> keyed;  // whether keys are in the hash of block i; false beyond
};

// Where a store contradicts earlier ones.
struct Contradictions {
  std::vector<EngineHash> moved;  // the device has them elsewhere than a copy in a lower tier said
  std::vector<EngineHash> misplaced;  // since this store
  bool refuse = false;                // a name of the store is misplaced

  void Clear() {
    moved.clear();
    misplaced.clear();
    refuse = false;
  }
};

// Counts a copy of each of the store's blocks. Off the device, a block without a place has the one
// where the device had it last.
void AddCopies(std::span<const PlacedBlock> stored, const StoreFacts& facts, RankMemory& memory,
               Contradictions& found, TranslatorStats& stats);

// Takes a copy of each of the removal's blocks, and appends to `gone` those of which none is left
// in the tier; one that an index may hold several times as often. Partial blocks, which no index
// has, go unseen.
void RemoveCopies(const wire::EventBatch& batch, const wire::EngineEvent& event, Tier tier,
                  RankMemory& memory, std::vector<EngineHash>& gone, TranslatorStats& stats);

using TierSet = std::bitset<kTierCount>;
// Of a removal that names no tier: where each of its blocks is. One that is nowhere is looked for
// wherever something was stored; so is every one while some copies are not counted.
void FindTiers(std::span<const EngineHash> hashes, CopyTable& blocks, std::vector<TierSet>& found,
               TranslatorStats& stats);
// As above, of the blocks that are to go from this tier.
void RemoveCopies(std::span<const EngineHash> hashes, std::span<const TierSet> tiers, Tier tier,
                  RankMemory& memory, std::vector<EngineHash>& gone, TranslatorStats& stats);

}  // namespace kvr::placement
