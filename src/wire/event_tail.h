// The end of a positional event, whose places have moved from release to release. Private to the
// decoder.
#pragma once

#include <cstddef>

#include "wire/event_batch.h"
#include "wire/event_fields.h"
#include "wire/event_schema.h"

namespace kvr::wire {

// The last `count` elements of a positional event, from schema.tail on. The first five are group,
// kind, window, locality and ownership when at least four are there and each could be what its
// place says. Otherwise they are told apart by type alone, the way consumers read them before the
// places settled: locality and ownership are then never found.
bool ReadTail(FieldContext& context, const EventSchema& schema, std::size_t count,
              EngineEvent& event);

}  // namespace kvr::wire
