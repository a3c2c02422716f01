// Engine event batches in MessagePack, from bytes to values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/digest.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"

namespace kvr::wire {

// Ceilings that hold whatever the peer sends. The first three refuse the batch; an event that would
// cross one of the others is refused alone, but for the counts of copies left, which are passed
// over when with those of the batch before they are more than blocks_max. An engine flushes once a
// step, so a real batch stays
// below a hundredth of them; a bridge that collects for long may need more.
struct DecodeLimits {
  std::size_t payload_bytes_max = std::size_t{64} << 20;
  // Of JSON, of which a parser takes many times the text's size. Some 500,000 tokens of
  // TensorRT-LLM's, which hands out no more of one prompt at once.
  std::size_t json_bytes_max = std::size_t{32} << 20;
  std::size_t events_max = 65'536;
  std::size_t blocks_max = std::size_t{1} << 20;
  std::size_t tokens_max = std::size_t{1} << 23;
  std::size_t extra_keys_max = std::size_t{1} << 18;  // keys, and multimodal objects
  // Nesting of values we do not know.
  std::size_t depth_max = 16;
  DigestEnd digests = DigestEnd::kLast;
};

// Decodes one event batch, as engines publish it, into `batch`, reusing its capacity.
//
// The batch may be an array or a map, and so may each event, in any mixture; fields we do not know
// are skipped, so a newer engine stays readable. Known ones of a wrong type cost the event, but for
// those that batch.skipped counts. An event that cannot be decoded costs only itself
// and is listed in `batch.bad`. An error is returned only when the batch around the events is
// wrong, or the bytes are no MessagePack at all; `batch` is then empty.
//
// Pure: no I/O, no log, no state between calls. No payload makes it throw or read out of bounds.
// The batch's views borrow from `payload`.
Result<void, DecodeError> DecodeEventBatch(std::span<const std::byte> payload,
                                           const DecodeLimits& limits, EventBatch& batch);

}  // namespace kvr::wire
