// The fields that say where copies are and whose they are.
#include "wire/event_fields.h"
#include "wire/medium.h"

namespace kvr::wire {

bool ReadMedium(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.medium);
}

bool ReadGroup(FieldContext& context, EngineEvent& event) {
  return ReadU32OrNil(context.in, event.group);
}

bool ReadKind(FieldContext& context, EngineEvent& event) {
  event.kind = GroupKind::kAbsent;
  event.kind_name = {};
  if (context.in.TakeNil()) return true;
  if (!context.in.ReadText(event.kind_name)) return false;
  event.kind = GroupKindFromName(event.kind_name);
  return true;
}

bool ReadLocality(FieldContext& context, EngineEvent& event) {
  event.locality = Locality::kAbsent;
  event.locality_name = {};
  if (context.in.TakeNil()) return true;
  if (context.in.AtText()) {
    if (!context.in.ReadText(event.locality_name)) return false;
    event.locality = LocalityFromName(event.locality_name);
    return true;
  }
  event.locality = Locality::kUnknown;
  return context.in.Skip(context.limits.depth_max);
}

bool ReadOwnership(FieldContext& context, EngineEvent& event) {
  event.ownership = Ownership::kFramework;
  event.ownership_name = {};
  if (context.in.TakeNil()) return true;
  if (!context.in.ReadText(event.ownership_name)) return false;
  event.ownership = OwnershipFromName(event.ownership_name);
  return true;
}

// A pool that many workers share names its parts; no engine does.
bool ReadBackend(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.backend);
}

// A clear may name an owner. A medium in its place says which pool emptied; the clear is
// for all tiers all the same, which forgets too much rather than too little.
bool ReadClearOwnership(FieldContext& context, EngineEvent& event) {
  if (!ReadOwnership(context, event)) return false;
  if (event.ownership == Ownership::kUnknown && TierFromMedium(event.ownership_name)) {
    event.ownership = Ownership::kFramework;
    event.ownership_name = {};
  }
  return true;
}

}  // namespace kvr::wire
