// PlacementEvents: what a producer hands to its publisher inside a process, in the form in which
// producers of other languages write it, and how it becomes the RouterEvent that is published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json_writer.h"
#include "base/result.h"
#include "wire/decode_error.h"
#include "wire/event_decoder.h"
#include "wire/router_event.h"

namespace kvr::wire {

// Appends the {event_id, data, dp_rank} that both kinds of events have.
void EncodeKvCacheEvent(const RouterBatch& batch, const RouterEvent& event, std::string& out);

// Appends {"placement":{"owner":{"LocalWorker":{worker_id, dp_rank}},"tier","residency_domain"},
// "event", "session_id"?, "sce"?}. A domain that is missing is written as the worker's: that of
// a placement is always known.
void EncodePlacementEvent(const RouterBatch& batch, const RouterEvent& event, std::string& out);
void WritePlacementEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json);

// Whose blocks a PlacementEvent is about.
enum class PlacementOwner : std::uint8_t { kLocalWorker, kShared };

// Replaces `out` by the RouterEvent that the PlacementEvent in `payload`, a map or an array in
// field order, becomes: worker, tier, domain, event, session and eligibility are copied, unknown
// keys are skipped. kShared: blocks that belong to no worker have no RouterEvent, and `out` is
// empty. What is inside the event is not looked at; DecodeRouterEvents does that.
Result<PlacementOwner, DecodeError> RouterEventFromPlacement(std::span<const std::byte> payload,
                                                             const DecodeLimits& limits,
                                                             std::string& out);

}  // namespace kvr::wire
