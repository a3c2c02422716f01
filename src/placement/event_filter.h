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
  if (event.type == wire::EventType::kIgnored) return DropReason::kIgnoredEvent;
  if (event.locality == wire::Locality::kRemote) return DropReason::kRemoteLocality;
  if (event.locality == wire::Locality::kUnknown) return DropReason::kUnknownLocality;
  return std::nullopt;
}

// Whether it is of the main cache group, as far as its own fields and what the group taught tell.
inline std::optional<DropReason> CheckGroup(const wire::EngineEvent& event, GroupTable& groups) {
  const GroupTable::Entry* learned = event.group ? groups.Find(*event.group) : nullptr;
  const wire::GroupKind before = learned ? learned->kind : wire::GroupKind::kAbsent;
  const wire::GroupKind kind = event.kind != wire::GroupKind::kAbsent ? event.kind : before;
  if (kind == wire::GroupKind::kUnknown) return DropReason::kUnknownKind;
  if (kind == wire::GroupKind::kOther) return DropReason::kNonMainGroup;
  if (kind == wire::GroupKind::kAbsent) {
    if (event.group.value_or(0) != 0) return DropReason::kUnlearnedGroup;
  } else if (event.group && groups.IsFurther(*event.group)) {
    return DropReason::kFurtherMainGroup;
  }
  return std::nullopt;
}

// Whether only a later event can say what the event means.
inline bool NeedsKind(const wire::EngineEvent& event, GroupTable& groups) {
  return event.group && event.kind == wire::GroupKind::kAbsent &&
         groups.Find(*event.group) == nullptr;
}

}  // namespace kvr::placement
