// The normalised event that an index applies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/ids.h"
#include "model/tier.h"

namespace kvr {

enum class PlacementKind : std::uint8_t { kStored, kRemoved, kCleared };

struct PlacedBlock {
  EngineHash engine{};
  BlockHash local{};

  friend bool operator==(const PlacedBlock&, const PlacedBlock&) = default;
};

// One Stored, Removed or Cleared of one rank. The spans borrow from whoever made the event and are
// valid for the call that hands it over.
struct PlacementEvent {
  PlacementKind kind = PlacementKind::kStored;
  Tier tier = Tier::kDevice;  // stored and removed; a clear is for all tiers
  Rank rank;

  // Stored: consecutive blocks of one chain. `parent` names the block before the first; none means
  // the chain starts at the root.
  std::optional<EngineHash> parent;
  std::span<const PlacedBlock> blocks;
  // Stored: the engine sent names without tokens, so `local` of every block is meaningless. An
  // index places such blocks by their engine hash when the rank announced the content before.
  bool hash_only = false;
  // Stored: the block hashes cover every key that the engine itself hashed, so that a cache shared
  // by several workers may be reasoned about ("sce" on the wire). Never true by default.
  bool eligible = false;

  // Removed.
  std::span<const EngineHash> removed;

  // Whose request it was, as the engine says; empty: it does not. Nothing is decided by it.
  std::string_view session_id{};
};

}  // namespace kvr
