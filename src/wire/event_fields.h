// The fields of each event type, in one table for the map form and the positional form.
// Private to the decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "wire/event_batch.h"
#include "wire/event_decoder.h"
#include "wire/msgpack_reader.h"

namespace kvr::wire {

struct FieldContext {
  MsgpackReader& in;
  EventBatch& batch;
  const DecodeLimits& limits;
};

using ReadField = bool (*)(FieldContext& context, EngineEvent& event);

inline constexpr std::uint8_t kNoPosition = 0;  // the tag's own, so never a field's

struct Field {
  std::string_view key;   // empty: positional form only
  std::uint8_t position;  // kNoPosition: map form only
  bool required;
  ReadField read;
};

struct EventSchema {
  std::string_view tag;
  EventType type;
  std::span<const Field> fields;
  std::size_t tail;  // first position whose meaning depends on what follows, see ReadTail
  std::uint32_t required;

  // The field of a map key, or null. `hint` is where to look first and is moved on: producers send
  // keys in the order of the table.
  [[nodiscard]] const Field* ByKey(std::string_view key, std::size_t& hint) const;
  // The field of a position below `tail` or of a fixed tail; never null there.
  [[nodiscard]] const Field* ByPosition(std::size_t position) const;
  [[nodiscard]] std::uint32_t Bit(const Field& field) const {
    return std::uint32_t{1} << (&field - fields.data());
  }
  [[nodiscard]] bool Complete(std::uint32_t seen) const { return (seen & required) == required; }
};

// Null for a tag we do not know.
const EventSchema* SchemaByTag(std::string_view tag);

// The last `count` elements of a positional event, from schema.tail on. The first five are group,
// kind, window, locality and ownership when at least four are there and each could be what its
// place says. Otherwise they are told apart by type alone, the way consumers read them before the
// places settled: locality and ownership are then never found.
bool ReadTail(FieldContext& context, const EventSchema& schema, std::size_t count,
              EngineEvent& event);

}  // namespace kvr::wire
