// RouterEvents as JSON, with the names and the order they have in MessagePack.
#pragma once

#include <cstddef>
#include <span>

#include "base/json_writer.h"
#include "wire/router_event.h"

namespace kvr::wire {

// The event as one object. What is at its default is left out as EncodeRouterEvent leaves it out.
void WriteRouterEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json);
// The {event_id, data, dp_rank} inside it.
void WriteKvCacheEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json);

// One MessagePack value as JSON: bytes become a list of numbers, values deeper than 16 and what is
// no MessagePack become null. A key that is no text ends the map and all around it.
void WriteMsgpackValue(std::span<const std::byte> value, JsonWriter& json);

}  // namespace kvr::wire
