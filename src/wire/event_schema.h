// The fields of each event type, in one table for the map form and the positional form.
// Private to the decoder.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/event_batch.h"
#include "wire/event_fields.h"

namespace kvr::wire {

struct Field {
  std::string_view key;
  bool required;
  ReadField read;
  ReadField read_place = read;  // as `read`, of the positional form
};

struct EventSchema {
  std::string_view tag;
  EventType type;
  // In the order of their places, of which the first is 1, behind the tag. Those that only maps
  // have come last.
  std::span<const Field> fields;
  std::size_t tail;  // first place whose meaning depends on what follows, see ReadTail
  std::uint32_t required;

  // The number of the field of a map key; fields.size() when there is none. Looks from `from` on,
  // then at those before it.
  [[nodiscard]] std::size_t FieldOf(std::string_view key, std::size_t from) const;
  [[nodiscard]] bool Complete(std::uint32_t seen) const { return (seen & required) == required; }
  // The first that is required and was not seen; there is one.
  [[nodiscard]] std::string_view Missing(std::uint32_t seen) const {
    return fields[static_cast<std::size_t>(std::countr_zero(required & ~seen))].key;
  }
};

// Null for a tag we do not know.
const EventSchema* SchemaByTag(std::string_view tag);

}  // namespace kvr::wire
