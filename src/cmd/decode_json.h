// What `kvroute decode` prints as JSON.
#pragma once

#include "base/json_writer.h"
#include "cmd/decoded_batch.h"

namespace kvr::cmd {

// The fields ts, dp_rank, events, dropped and facts of an open object.
void WriteBatch(JsonWriter& json, const DecodedBatch& decoded, SaltNames& salts);

}  // namespace kvr::cmd
