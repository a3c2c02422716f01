// How the fields of an event are read. Private to the decoder.
//
// A reader takes the value at the cursor into the event and, where it is a list, into the vectors
// of the batch. False: the reader of the payload says why, and the event is lost. A second value of
// the same field takes the place of the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/event_batch.h"
#include "wire/event_decoder.h"
#include "wire/msgpack_reader.h"

namespace kvr::wire {

struct FieldContext {
  MsgpackReader& in;
  EventBatch& batch;
  const DecodeLimits& limits;
  std::string_view failed{};  // the field of the event at hand that cost it
};

using ReadField = bool (*)(FieldContext& context, EngineEvent& event);

// Names and content of blocks: block_fields.cc.
bool ReadHashes(FieldContext& context, EngineEvent& event);
bool ReadParent(FieldContext& context, EngineEvent& event);
bool ReadTokens(FieldContext& context, EngineEvent& event);
bool ReadBlockSize(FieldContext& context, EngineEvent& event);

// What else an engine mixes into its hashes: key_fields.cc.
bool ReadLoraId(FieldContext& context, EngineEvent& event);
bool ReadLoraName(FieldContext& context, EngineEvent& event);
bool ReadNameOrMetadata(FieldContext& context, EngineEvent& event);
bool ReadCacheSalt(FieldContext& context, EngineEvent& event);
bool ReadExtraKeys(FieldContext& context, EngineEvent& event);
bool ReadMmInfos(FieldContext& context, EngineEvent& event);

// Where copies are and whose: place_fields.cc.
bool ReadMedium(FieldContext& context, EngineEvent& event);
bool ReadGroup(FieldContext& context, EngineEvent& event);
bool ReadKind(FieldContext& context, EngineEvent& event);
bool ReadLocality(FieldContext& context, EngineEvent& event);
bool ReadOwnership(FieldContext& context, EngineEvent& event);
bool ReadClearOwnership(FieldContext& context, EngineEvent& event);
bool ReadBackend(FieldContext& context, EngineEvent& event);

// What helps but changes neither: hint_fields.cc.
bool ReadWindow(FieldContext& context, EngineEvent& event);
bool ReadTokenOffset(FieldContext& context, EngineEvent& event);
bool ReadSessionId(FieldContext& context, EngineEvent& event);
bool ReadCopiesLeft(FieldContext& context, EngineEvent& event);

inline std::uint32_t Size32(std::size_t size) {
  return static_cast<std::uint32_t>(size);  // below DecodeLimits::payload_bytes_max
}

inline bool ReadTextOrNil(MsgpackReader& in, std::string_view& text) {
  text = {};
  return in.TakeNil() || in.ReadText(text);
}

inline bool ReadU32OrNil(MsgpackReader& in, std::optional<std::uint32_t>& value) {
  value.reset();
  return in.TakeNil() || in.ReadU32(value.emplace());
}

}  // namespace kvr::wire
