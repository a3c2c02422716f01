// What `kvroute decode --explain` prints: a sentence for each event.
#pragma once

#include <cstdint>
#include <string>

#include "cmd/decode_json.h"
#include "placement/placement_batch.h"
#include "wire/event_batch.h"

namespace kvr::cmd {

// Appends one indented line an event, kept or dropped, in the order of the batch. `block_size` is
// the registered one, 0 when none was given.
void ExplainBatch(const wire::EventBatch& batch, const placement::PlacementBatch& placed,
                  std::uint32_t block_size, SaltNames& salts, std::string& out);

}  // namespace kvr::cmd
