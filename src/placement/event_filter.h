// Which engine events are no evidence of a prefix that the rank itself holds. Private to the
// module. Inline, because every event passes here.
#pragma once

#include <optional>

#include "placement/drop_reason.h"
#include "placement/rank_memory.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Whose copy it is and where; none when it is the rank's own.
inline std::optional<DropReason> CheckOrigin(const wire::EngineEvent& event) {
  if (event.ownership == wire::Ownership::kUnknown) return DropReason::kUnknownOwnership;
  if (event.ownership == wire::Ownership::kKvcr || !event.backend.empty()) {
    return DropReason::kUnsupportedOwnership;
  }
  if (event.type == wire::EventType::kIgnored) {
    return event.left_out > 0 ? DropReason::kPartialBlock : DropReason::kIgnoredEvent;
  }
  if (event.locality == wire::Locality::kRemote) return DropReason::kRemoteLocality;
  if (event.locality == wire::Locality::kUnknown) return DropReason::kUnknownLocality;
  return std::nullopt;
}

}  // namespace kvr::placement
