// Why an event was dropped, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "placement/placement_batch.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// The values behind the reason: "medium `FS`", "block_size 8, registered 16". Short, and without
// tokens and salts; texts from outside are cut and lose what is not printable. `batch` is what the
// event was decoded into, `block_size` the registered one.
std::string DropDetail(const DroppedEvent& dropped, const wire::EventBatch& batch,
                       std::uint32_t block_size);

// One sentence for people: what the reason means, and how to mend it where that is possible.
std::string_view DropExplanation(DropReason reason);

// Whether the reason is part of the normal life of some engine, so that nobody needs to be told.
bool IsRoutine(DropReason reason);

}  // namespace kvr::placement
