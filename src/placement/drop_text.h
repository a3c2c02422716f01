// Why an event was dropped, in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "placement/placement_batch.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"
#include "wire/event_decoder.h"

namespace kvr::placement {

// Why a payload is no batch for anybody: "truncated". `error` is Translate's. A batch is
// "foreign_rank", as one of a rank that is not registered, if it names a data-parallel rank that
// cannot exist: no other number of a batch itself has a range.
std::string_view BatchErrorName(wire::DecodeErrc error);

// The same of any error of a payload of so many bytes, and of a limit which one it is and what
// moves it: "over_limit: more events than ...".
std::string_view BatchErrorDetail(wire::DecodeErrc error, std::size_t payload_bytes,
                                  const wire::DecodeLimits& limits);

// Of a PlacementBatch::wrong_block_size that is not 0: "block_size 64", "no block_size".
std::string BlockSizeText(std::uint32_t wrong);

// The values behind the reason: "medium `FS`", "block_size 8, registered 16", "type `BlockMoved`",
// "wrong_type, field `token_ids`", and of a limit which one it is. Short, and without tokens and
// salts; texts from outside are cut and lose what is not printable. `batch` is what the
// event was decoded into, `block_size` the registered one.
std::string DropDetail(const DroppedEvent& dropped, const wire::EventBatch& batch,
                       std::uint32_t block_size);

// One sentence for people: what the reason, or what could not be decoded, means, and how to mend it
// where that is possible.
std::string_view DropExplanation(const DroppedEvent& dropped);

// Whether the reason is part of the normal life of some engine, so that nobody needs to be told.
bool IsRoutine(DropReason reason);

}  // namespace kvr::placement
