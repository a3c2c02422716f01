// A cache event of the mock engine, as a value.
#pragma once

#include <optional>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "model/tier.h"

namespace kvr::sim {

// What an engine announces about its cache, before it is put into a dialect of the wire. Owns what
// it names, because a pass ends long after its events came up.
struct KvEvent {
  PlacementKind kind = PlacementKind::kStored;
  Tier tier = Tier::kDevice;           // meaningless for a clear
  std::optional<EngineHash> parent{};  // stored: none at the root
  std::vector<EngineHash> hashes{};    // stored: consecutive blocks of one chain; removed: any
  std::vector<TokenId> tokens{};       // stored: block_size for each hash

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

}  // namespace kvr::sim
