#include "wire/event_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "wire/batch_mark.h"
#include "wire/event_fields.h"
#include "wire/event_schema.h"
#include "wire/event_tail.h"
#include "wire/msgpack_reader.h"
#include "wire/short_text.h"

namespace kvr::wire {
namespace {

// The event costs itself for this field. False.
bool FailField(FieldContext& context, std::string_view field) {
  context.failed = field;
  return false;
}

// The event ends without a field that it needs. False.
bool FailMissing(FieldContext& context, const EventSchema& schema, std::uint32_t seen) {
  context.in.Fail(DecodeErrc::kMissingField, context.in.offset());
  return FailField(context, schema.Missing(seen));
}

// Reads the value of a pair that is no field's: the tag, or one we do not know. The key began at
// `start`.
bool ReadOtherPair(FieldContext& context, std::string_view key, std::size_t start,
                   std::string_view& tag) {
  MsgpackReader& in = context.in;
  if (SameText(key, "type")) return in.ReadText(tag);
  if (!IsUtf8(key)) return in.Fail(DecodeErrc::kBadText, start);
  return in.Skip(context.limits.depth_max);
}

// Passes over the pairs of a map event. `tag` becomes the last tag that it names.
bool FindTag(FieldContext& context, std::size_t pairs, std::string_view& tag) {
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    const std::size_t start = context.in.offset();
    if (!context.in.ReadKey(key) || !ReadOtherPair(context, key, start, tag)) return false;
  }
  return true;
}

// Reads the pairs of a map event of one type. `tag` becomes the last tag that they name.
bool ReadPairs(FieldContext& context, const EventSchema& schema, std::size_t pairs,
               std::string_view& tag, EngineEvent& event) {
  MsgpackReader& in = context.in;
  const Field* const fields = schema.fields.data();
  const std::size_t known = schema.fields.size();
  std::uint32_t seen = 0;
  std::size_t next = 0;  // producers send the keys in the order of the table
  for (std::size_t i = 0; i < pairs; ++i) {
    std::size_t field = next;
    if (field == known || !in.TakeKey(fields[field].key)) {
      const std::size_t start = in.offset();
      std::string_view key;
      if (!in.ReadKey(key)) return false;
      field = schema.FieldOf(key, next);
      if (field == known) {
        if (!ReadOtherPair(context, key, start, tag)) return false;
        continue;
      }
    }
    if (!fields[field].read(context, event)) return FailField(context, fields[field].key);
    seen |= std::uint32_t{1} << field;
    next = field + 1;
  }
  return schema.Complete(seen) || FailMissing(context, schema, seen);
}

// Reads the pairs of a map event, which begins at `start`, as one of the type `tag`; see ReadPairs.
bool ReadPairsAs(FieldContext& context, std::string_view& tag, std::size_t start, std::size_t pairs,
                 EngineEvent& event) {
  const EventSchema* schema = SchemaByTag(tag);
  if (schema == nullptr) return context.in.Fail(DecodeErrc::kUnknownEvent, start);
  event.type = schema->type;
  return ReadPairs(context, *schema, pairs, tag, event);
}

// `mark` is where the batch stood before the event.
bool ReadMapEvent(FieldContext& context, const BatchMark& mark, std::uint32_t index) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  std::size_t pairs = 0;
  if (!in.ReadMap(pairs)) return false;
  const std::size_t body = in.offset();
  std::string_view first;
  std::optional<DecodeError> error;
  // Nearly always the tag comes first, and there is no other.
  if (pairs > 0 && in.TakeKey("type") && in.ReadText(first)) {
    std::string_view last = first;
    const bool good = ReadPairsAs(context, last, start, pairs - 1, context.batch.events.back());
    if (good && SameText(last, first)) return true;
    if (!good) error = in.error();
  }
  in.Seek(body);
  std::string_view tag;
  const bool found = FindTag(context, pairs, tag);
  if (error && (!found || SameText(tag, first))) return in.Fail(error->code, error->offset);
  if (!found) return false;
  if (tag.data() == nullptr) return in.Fail(DecodeErrc::kMissingField, start);
  context.failed = {};  // of what the first tag made of it
  mark.Rewind(context.batch);
  EngineEvent& event = context.batch.events.emplace_back();
  event.index = index;
  in.Seek(body);
  return ReadPairsAs(context, tag, start, pairs, event);
}

bool ReadArrayEvent(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (count == 0) return in.Fail(DecodeErrc::kMissingField, start);
  std::string_view tag;
  if (!in.ReadText(tag)) return false;
  const EventSchema* schema = SchemaByTag(tag);
  if (schema == nullptr) return in.Fail(DecodeErrc::kUnknownEvent, start);
  event.type = schema->type;
  const std::size_t end = std::min(count, schema->tail);
  const Field* const fields = schema->fields.data();
  for (std::size_t i = 0; i + 1 < end; ++i) {
    if (!fields[i].read_place(context, event)) return FailField(context, fields[i].key);
  }
  const std::uint32_t seen = (std::uint32_t{1} << (end - 1)) - 1;
  if (!schema->Complete(seen)) return FailMissing(context, *schema, seen);
  return ReadTail(context, *schema, count - end, event);
}

// The tag of the event at `start`, whatever else is wrong with it; none when that cannot be read.
std::string_view TagAt(FieldContext& context, std::size_t start) {
  MsgpackReader& in = context.in;
  in.Seek(start);
  std::size_t count = 0;
  std::string_view tag;
  const bool read = in.AtMap()
                        ? in.ReadMap(count) && FindTag(context, count, tag)
                        : in.AtArray() && in.ReadArray(count) && count > 0 && in.ReadText(tag);
  return read ? tag : std::string_view();
}

void AddBad(FieldContext& context, std::uint32_t index, std::size_t start) {
  BadEvent& bad = context.batch.bad.emplace_back(BadEvent{index, context.in.error(), start});
  const std::string_view tag = TagAt(context, start);
  const EventSchema* schema = tag.data() != nullptr ? SchemaByTag(tag) : nullptr;
  if (schema != nullptr) bad.type = schema->type;
  bad.name = bad.error.code == DecodeErrc::kUnknownEvent ? tag : context.failed;
  context.failed = {};
}

// False only when the bytes of the event have no end.
bool ReadEvent(FieldContext& context, std::uint32_t index) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  const BatchMark mark(context.batch);
  EngineEvent& event = context.batch.events.emplace_back();
  event.index = index;
  bool good = false;
  if (in.AtMap()) {
    good = ReadMapEvent(context, mark, index);
  } else if (in.AtArray()) {
    good = ReadArrayEvent(context, event);
  } else {
    in.Fail(DecodeErrc::kWrongType, start);
  }
  if (good) return true;
  AddBad(context, index, start);
  mark.Rewind(context.batch);
  in.Seek(start);
  return in.SkipAnyDepth();
}

bool ReadEvents(FieldContext& context) {
  EventBatch& batch = context.batch;
  batch.events.clear();
  batch.bad.clear();
  const std::size_t start = context.in.offset();
  std::size_t count = 0;
  if (!context.in.ReadArray(count)) return false;
  if (count > context.limits.events_max) return context.in.Fail(DecodeErrc::kOverLimit, start);
  for (std::size_t i = 0; i < count; ++i) {
    if (!ReadEvent(context, static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

bool ReadNumber(MsgpackReader& in, double& ts) {
  if (in.TakeF64(ts)) return true;
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (item.kind == MsgpackItem::Kind::kFloat) {
    ts = item.real;
  } else if (item.kind == MsgpackItem::Kind::kUint) {
    ts = static_cast<double>(item.number);
  } else if (item.kind == MsgpackItem::Kind::kInt) {
    ts = static_cast<double>(static_cast<std::int64_t>(item.number));
  } else {
    return in.Fail(DecodeErrc::kWrongType, start);
  }
  return true;
}

// One that is no point in time is 0: a time that compares with none would never pass.
bool ReadTimestamp(MsgpackReader& in, double& ts) {
  if (!ReadNumber(in, ts)) return false;
  if (!std::isfinite(ts)) ts = 0;
  return true;
}

// The wire has a signed number; a negative one is no rank.
bool ReadRank(MsgpackReader& in, std::optional<std::uint32_t>& rank) {
  rank.reset();
  if (in.TakeNil()) return true;
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (!item.is_integer()) return in.Fail(DecodeErrc::kWrongType, start);
  if (item.kind == MsgpackItem::Kind::kInt ||
      item.number > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    return in.Fail(DecodeErrc::kOutOfRange, start);
  }
  rank = static_cast<std::uint32_t>(item.number);
  return true;
}

bool ReadArrayBatch(FieldContext& context, std::size_t count) {
  MsgpackReader& in = context.in;
  if (count < 2) return in.Fail(DecodeErrc::kMissingField, 0);
  if (!ReadTimestamp(in, context.batch.ts) || !ReadEvents(context)) return false;
  if (count > 2 && !ReadRank(in, context.batch.dp_rank)) return false;
  for (std::size_t i = 3; i < count; ++i) {
    if (!in.SkipAnyDepth()) return false;
  }
  return true;
}

bool ReadMapBatch(FieldContext& context, std::size_t pairs) {
  MsgpackReader& in = context.in;
  bool has_ts = false;
  bool has_events = false;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return false;
    bool good = true;
    if (key == "ts") {
      good = has_ts = ReadTimestamp(in, context.batch.ts);
    } else if (key == "events") {
      good = has_events = ReadEvents(context);
    } else if (key == "data_parallel_rank" || key == "dp_rank") {
      good = ReadRank(in, context.batch.dp_rank);
    } else {
      good = in.SkipAnyDepth();
    }
    if (!good) return false;
  }
  return (has_ts && has_events) || in.Fail(DecodeErrc::kMissingField, in.offset());
}

bool ReadBatch(FieldContext& context) {
  MsgpackReader& in = context.in;
  if (in.left() > context.limits.payload_bytes_max) return in.Fail(DecodeErrc::kOverLimit, 0);
  std::size_t count = 0;
  if (in.AtMap()) return in.ReadMap(count) && ReadMapBatch(context, count);
  return in.ReadArray(count) && ReadArrayBatch(context, count);
}

}  // namespace

Result<void, DecodeError> DecodeEventBatch(std::span<const std::byte> payload,
                                           const DecodeLimits& limits, EventBatch& batch) {
  batch.Clear();
  MsgpackReader in(payload);
  FieldContext context{in, batch, limits, {}};
  if (!ReadBatch(context)) {
    batch.Clear();
    return tl::make_unexpected(in.error());
  }
  batch.trailing_bytes = in.left();
  return {};
}

}  // namespace kvr::wire
