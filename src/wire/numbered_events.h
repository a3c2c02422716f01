// The forms in which each event has a number of its own. Private to the encoder.
#pragma once

#include <cstdint>
#include <string>

#include "wire/event_batch.h"
#include "wire/event_encoder.h"

namespace kvr::wire {

// TensorRT-LLM's list. It has no word for a clear, and none for a block without tokens: such a
// store is a move, from the tier of a removal of the same names that follows it or from the device.
void EncodeTrtllmList(const EventBatch& batch, const Dialect& dialect, std::uint64_t& event_id,
                      std::string& out);

// The batch of Mooncake's master: one map a block, times in milliseconds, each hash also as a
// signed twin. It has no word for a clear.
void EncodePoolBatch(const EventBatch& batch, std::uint64_t& event_id, std::string& out);

}  // namespace kvr::wire
