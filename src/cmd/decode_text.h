// What `kvroute decode --explain` prints: a sentence for each event.
#pragma once

#include <string>

#include "cmd/decoded_batch.h"

namespace kvr::cmd {

// Appends one indented line an event, kept or dropped, in the order of the batch, and one for each
// fact about all of it.
void ExplainBatch(const DecodedBatch& decoded, SaltNames& salts, std::string& out);

}  // namespace kvr::cmd
