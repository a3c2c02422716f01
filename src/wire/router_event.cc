#include "wire/router_event.h"

#include <limits>

#include "wire/msgpack_reader.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

constexpr std::size_t kFrameHeadBytes = 5;
constexpr std::uint8_t kFrameVersion = 1;

struct Context {
  MsgpackReader& in;
  RouterBatch& batch;
  const DecodeLimits& limits;
};

template <typename T>
Slice TailOf(const std::vector<T>& all, std::size_t begin) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(all.size() - begin)};
}

// Looks at the next value without taking it.
bool Peek(MsgpackReader& in, MsgpackItem& item) {
  const std::size_t start = in.offset();
  if (!in.Read(item)) return false;
  in.Seek(start);
  return true;
}

bool ReadU64(MsgpackReader& in, std::uint64_t& value) {
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (item.kind != Kind::kUint) return in.Fail(DecodeErrc::kWrongType, start);
  value = item.number;
  return true;
}

// Hashes are unsigned on this wire; a negative number is taken by its bits all the same.
bool ReadHash(MsgpackReader& in, std::uint64_t& value) {
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (!item.is_integer()) return in.Fail(DecodeErrc::kWrongType, start);
  value = item.number;
  return true;
}

// The values of a struct, which comes as a map, or as an array in the order of `fields`. `read`
// takes the value of the field whose number it gets. Fields from `required` on may be missing.
template <std::size_t kCount, typename ReadField>
bool ReadStruct(Context& context, const std::array<std::string_view, kCount>& fields,
                std::uint32_t required, ReadField read) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind != Kind::kMap && head.kind != Kind::kArray) {
    return in.Fail(DecodeErrc::kWrongType, start);
  }
  std::uint32_t seen = 0;
  for (std::uint64_t i = 0; i < head.number; ++i) {
    std::size_t field = static_cast<std::size_t>(i);
    if (head.kind == Kind::kMap) {
      std::string_view key;
      if (!in.ReadText(key)) return false;
      for (field = 0; field < kCount && fields[field] != key;)
        ++field;
    }
    if (field >= kCount) {
      if (!in.Skip(context.limits.depth_max)) return false;
      continue;
    }
    if (!read(field)) return false;
    seen |= std::uint32_t{1} << field;
  }
  return (seen & required) == required || in.Fail(DecodeErrc::kMissingField, start);
}

// The head of an array whose elements join `have` others, of which there may be `most` in all.
bool ReadCount(MsgpackReader& in, std::size_t have, std::size_t most, std::size_t& count) {
  const std::size_t start = in.offset();
  if (!in.ReadArray(count)) return false;
  return have + count <= most || in.Fail(DecodeErrc::kOverLimit, start);
}

// --- multimodal -----------------------------------------------------------------------------

bool ReadOffsets(Context& context, RouterMmObject& object) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.mm_offsets;
  std::size_t count = 0;
  if (!ReadCount(in, all.size(), context.limits.extra_keys_max, count)) return false;
  const std::size_t begin = all.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = in.offset();
    std::size_t width = 0;
    auto& range = all.emplace_back();
    if (!in.ReadArray(width)) return false;
    if (width != 2) return in.Fail(DecodeErrc::kWrongType, at);
    if (!in.ReadU32(range[0]) || !in.ReadU32(range[1])) return false;
  }
  object.offsets = TailOf(all, begin);
  return true;
}

bool ReadMmInfo(Context& context, RouterBlock& block) {
  MsgpackReader& in = context.in;
  MsgpackItem head;
  if (!Peek(in, head)) return false;
  if (head.kind == Kind::kNil) return in.Read(head);
  static constexpr std::array<std::string_view, 1> kInfo = {"mm_objects"};
  static constexpr std::array<std::string_view, 2> kObject = {"mm_hash", "offsets"};
  block.has_mm = true;
  return ReadStruct(context, kInfo, 1, [&](std::size_t) {
    auto& all = context.batch.mm_objects;
    std::size_t count = 0;
    if (!ReadCount(in, all.size(), context.limits.extra_keys_max, count)) return false;
    const std::size_t begin = all.size();
    for (std::size_t i = 0; i < count; ++i) {
      RouterMmObject object;
      const bool good = ReadStruct(context, kObject, 1, [&](std::size_t field) {
        return field == 0 ? ReadHash(in, object.hash) : ReadOffsets(context, object);
      });
      if (!good) return false;
      all.push_back(object);
    }
    block.mm_objects = TailOf(all, begin);
    return true;
  });
}

// --- events ---------------------------------------------------------------------------------

bool ReadBlock(Context& context) {
  static constexpr std::array<std::string_view, 3> kFields = {"block_hash", "tokens_hash",
                                                              "mm_extra_info"};
  RouterBlock block;
  const bool good = ReadStruct(context, kFields, 0b11, [&](std::size_t field) {
    if (field == 2) return ReadMmInfo(context, block);
    std::uint64_t hash = 0;
    if (!ReadHash(context.in, hash)) return false;
    if (field == 0) {
      block.engine = EngineHash{hash};
    } else {
      block.local = BlockHash{hash};
    }
    return true;
  });
  if (good) context.batch.blocks.push_back(block);
  return good;
}

bool ReadBlocks(Context& context, RouterEvent& event) {
  const std::size_t begin = context.batch.blocks.size();
  std::size_t count = 0;
  if (!ReadCount(context.in, begin, context.limits.blocks_max, count)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!ReadBlock(context)) return false;
  }
  event.blocks = TailOf(context.batch.blocks, begin);
  return true;
}

template <typename Number, typename Read>
bool ReadOptional(MsgpackReader& in, std::optional<Number>& value, Read read) {
  MsgpackItem head;
  if (!Peek(in, head)) return false;
  value.reset();
  if (head.kind == Kind::kNil) return in.Read(head);
  return read(value.emplace());
}

bool ReadStored(Context& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 3> kFields = {"parent_hash", "start_position",
                                                              "blocks"};
  event.type = EventType::kStored;
  MsgpackItem head;
  if (!Peek(context.in, head)) return false;
  // As an array of two the optional position is left out.
  const bool short_form = head.kind == Kind::kArray && head.number == 2;
  return ReadStruct(context, kFields, short_form ? 0b001 : 0b100, [&](std::size_t field) {
    if (field == 0) {
      return ReadOptional(context.in, event.parent, [&](EngineHash& hash) {
        std::uint64_t value = 0;
        const bool good = ReadHash(context.in, value);
        hash = EngineHash{value};
        return good;
      });
    }
    if (field == 1 && !short_form) {
      return ReadOptional(context.in, event.start_position,
                          [&](std::uint32_t& position) { return context.in.ReadU32(position); });
    }
    return ReadBlocks(context, event);
  });
}

bool ReadRemoved(Context& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 1> kFields = {"block_hashes"};
  event.type = EventType::kRemoved;
  return ReadStruct(context, kFields, 1, [&](std::size_t) {
    MsgpackReader& in = context.in;
    auto& all = context.batch.removed;
    const std::size_t begin = all.size();
    std::size_t count = 0;
    if (!ReadCount(in, begin, context.limits.blocks_max, count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t hash = 0;
      if (!ReadHash(in, hash)) return false;
      all.push_back(EngineHash{hash});
    }
    event.removed = TailOf(all, begin);
    return true;
  });
}

// "cleared", or a map of one pair whose key names the type.
bool ReadData(Context& context, RouterEvent& event) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  // Of two the last counts, so nothing may stay of the first.
  event.parent.reset();
  event.start_position.reset();
  event.blocks = {};
  event.removed = {};
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind == Kind::kString) {
    if (head.bytes != "cleared") return in.Fail(DecodeErrc::kUnknownEvent, start);
    event.type = EventType::kCleared;
    return true;
  }
  if (head.kind != Kind::kMap || head.number != 1) return in.Fail(DecodeErrc::kWrongType, start);
  std::string_view type;
  if (!in.ReadText(type)) return false;
  if (type == "stored") return ReadStored(context, event);
  if (type == "removed") return ReadRemoved(context, event);
  if (type != "cleared") return in.Fail(DecodeErrc::kUnknownEvent, start);
  event.type = EventType::kCleared;
  return in.Skip(context.limits.depth_max);
}

bool ReadCacheEvent(Context& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 3> kFields = {"event_id", "data", "dp_rank"};
  return ReadStruct(context, kFields, 0b011, [&](std::size_t field) {
    if (field == 0) return ReadU64(context.in, event.event_id);
    if (field == 1) return ReadData(context, event);
    return context.in.ReadU32(event.dp_rank);
  });
}

bool ReadTier(Context& context, Tier& tier) {
  const std::size_t start = context.in.offset();
  std::string_view name;
  if (!context.in.ReadText(name)) return false;
  const auto known = TierFromName(name);
  if (!known) return context.in.Fail(DecodeErrc::kOutOfRange, start);
  tier = *known;
  return true;
}

// Never fails for its value, only for bytes that are no value.
bool ReadDomain(Context& context, RouterEvent& event) {
  MsgpackItem item;
  if (!Peek(context.in, item)) return false;
  if (item.kind != Kind::kString) {
    event.domain = ResidencyDomain::kInvalid;
    return context.in.Skip(context.limits.depth_max);
  }
  if (!context.in.ReadText(event.domain_name)) return false;
  if (event.domain_name == "worker") {
    event.domain = ResidencyDomain::kWorker;
  } else if (event.domain_name == "cache_owner") {
    event.domain = ResidencyDomain::kCacheOwner;
  } else {
    event.domain = ResidencyDomain::kUnknown;
  }
  return true;
}

// What is no bool is as good as false: the flag only ever permits something.
bool ReadEligible(Context& context, RouterEvent& event) {
  MsgpackItem item;
  if (!Peek(context.in, item)) return false;
  event.eligible = item.kind == Kind::kBool && item.number == 1;
  return context.in.Skip(context.limits.depth_max);
}

bool ReadSession(Context& context, RouterEvent& event) {
  std::optional<std::string_view> text;
  if (!context.in.ReadOptionalText(text)) return false;
  event.session_id = text.value_or(std::string_view());
  return true;
}

bool ReadStateSource(Context& context, RouterEvent& event) {
  const std::size_t start = context.in.offset();
  MsgpackItem item;
  if (!Peek(context.in, item) || !context.in.Skip(context.limits.depth_max)) return false;
  event.state_source = item.kind == Kind::kNil ? std::string_view() : context.in.Since(start);
  return true;
}

bool ReadRouterEvent(Context& context, RouterEvent& event) {
  static constexpr std::array<std::string_view, 7> kFields = {
      "worker_id",  "storage_tier", "residency_domain", "event", "state_source",
      "session_id", "sce"};
  return ReadStruct(context, kFields, 0b1001, [&](std::size_t field) {
    switch (field) {
      case 0:
        return ReadU64(context.in, event.worker_id);
      case 1:
        return ReadTier(context, event.tier);
      case 2:
        return ReadDomain(context, event);
      case 3:
        return ReadCacheEvent(context, event);
      case 4:
        return ReadStateSource(context, event);
      case 5:
        return ReadSession(context, event);
      default:
        return ReadEligible(context, event);
    }
  });
}

// False only when the bytes of the event have no end.
bool TakeEvent(Context& context, std::uint32_t index) {
  MsgpackReader& in = context.in;
  RouterBatch& batch = context.batch;
  const std::size_t start = in.offset();
  const std::size_t blocks = batch.blocks.size();
  const std::size_t removed = batch.removed.size();
  const std::size_t objects = batch.mm_objects.size();
  const std::size_t offsets = batch.mm_offsets.size();
  RouterEvent event;
  event.index = index;
  if (ReadRouterEvent(context, event)) {
    batch.events.push_back(event);
    return true;
  }
  batch.bad.push_back(BadEvent{index, in.error(), start});
  batch.blocks.resize(blocks);
  batch.removed.resize(removed);
  batch.mm_objects.resize(objects);
  batch.mm_offsets.resize(offsets);
  in.Seek(start);
  return in.SkipAnyDepth();
}

bool TakeList(Context& context) {
  std::size_t count = 0;
  const std::size_t start = context.in.offset();
  if (!context.in.ReadArray(count)) return false;
  if (count > context.limits.events_max) return context.in.Fail(DecodeErrc::kOverLimit, start);
  for (std::size_t i = 0; i < count; ++i) {
    if (!TakeEvent(context, static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

bool TakeEnvelope(Context& context, std::span<const std::byte>& payload) {
  static constexpr std::array<std::string_view, 5> kFields = {"publisher_id", "sequence",
                                                              "published_at", "topic", "payload"};
  return ReadStruct(context, kFields, 0b10011, [&](std::size_t field) {
    MsgpackReader& in = context.in;
    if (field == 0) return ReadU64(in, context.batch.publisher_id.emplace());
    if (field == 1) return ReadU64(in, context.batch.sequence.emplace());
    if (field != 4) return in.Skip(context.limits.depth_max);
    const std::size_t start = in.offset();
    MsgpackItem item;
    if (!in.Read(item)) return false;
    if (item.kind != Kind::kBin) return in.Fail(DecodeErrc::kWrongType, start);
    payload = std::as_bytes(std::span(item.bytes));
    return true;
  });
}

// What a payload begins with.
enum class Shape { kOther, kEnvelope, kEvent, kList };

// The first key of a map says what the map is, whatever the order of the others.
Shape ShapeOfMap(MsgpackReader& in, std::uint64_t pairs) {
  for (std::uint64_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return Shape::kOther;
    if (key == "publisher_id" || key == "payload") return Shape::kEnvelope;
    if (key == "worker_id" || key == "event") return Shape::kEvent;
    if (key == "events" || key == "ts" || !in.SkipAnyDepth()) return Shape::kOther;
  }
  return Shape::kOther;
}

Shape ShapeOf(std::span<const std::byte> payload) {
  MsgpackReader in(payload);
  std::size_t count = 0;
  if (in.AtMap()) return in.ReadMap(count) ? ShapeOfMap(in, count) : Shape::kOther;
  if (!in.AtArray() || !in.ReadArray(count) || count == 0) return Shape::kOther;
  // An engine's batch begins with a number.
  if (in.AtArray()) return in.ReadArray(count) ? Shape::kList : Shape::kOther;
  if (!in.AtMap() || !in.ReadMap(count)) return Shape::kOther;
  return ShapeOfMap(in, count) == Shape::kEvent ? Shape::kList : Shape::kOther;
}

bool TakePayload(Context& context, Shape shape) {
  if (shape == Shape::kList) return TakeList(context);
  if (shape == Shape::kEvent) return TakeEvent(context, 0);
  return context.in.Fail(DecodeErrc::kWrongType, 0);
}

}  // namespace

void RouterBatch::Clear() {
  publisher_id.reset();
  sequence.reset();
  events.clear();
  bad.clear();
  blocks.clear();
  removed.clear();
  mm_objects.clear();
  mm_offsets.clear();
}

bool LooksLikeRouterEvents(std::span<const std::byte> payload) {
  return ShapeOf(payload) != Shape::kOther;
}

Result<void, DecodeError> DecodeRouterEvents(std::span<const std::byte> payload,
                                             const DecodeLimits& limits, RouterBatch& batch) {
  batch.Clear();
  if (payload.size() > limits.payload_bytes_max) {
    return tl::make_unexpected(DecodeError{DecodeErrc::kOverLimit, 0});
  }
  const Shape shape = ShapeOf(payload);
  MsgpackReader in(payload);
  Context context{in, batch, limits};
  bool good = false;
  DecodeError error;
  if (shape == Shape::kEnvelope) {
    std::span<const std::byte> content;
    good = TakeEnvelope(context, content);
    error = in.error();
    if (good) {
      MsgpackReader inner(content);
      Context inside{inner, batch, limits};
      MsgpackItem head;
      good = Peek(inner, head) &&
             (head.kind == Kind::kArray ? TakeList(inside) : TakePayload(inside, ShapeOf(content)));
      error = inner.error();
    }
  } else {
    good = TakePayload(context, shape);
    error = in.error();
  }
  if (good) return {};
  batch.Clear();
  return tl::make_unexpected(error);
}

std::optional<EnvelopeIds> ReadEnvelopeIds(std::span<const std::byte> envelope) {
  MsgpackReader in(envelope);
  RouterBatch batch;
  const DecodeLimits limits;
  Context context{in, batch, limits};
  std::span<const std::byte> payload;
  if (!TakeEnvelope(context, payload)) return std::nullopt;
  return EnvelopeIds{*batch.publisher_id, *batch.sequence};
}

Result<std::span<const std::byte>, DecodeError> UnframeRouterEvents(
    std::span<const std::byte> frame) {
  const auto fail = [](DecodeErrc code, std::size_t offset) {
    return tl::make_unexpected(DecodeError{code, offset});
  };
  if (frame.size() < kFrameHeadBytes) return fail(DecodeErrc::kTruncated, frame.size());
  if (std::to_integer<std::uint8_t>(frame[0]) != kFrameVersion) {
    return fail(DecodeErrc::kOutOfRange, 0);
  }
  std::size_t length = 0;
  for (std::size_t i = 1; i < kFrameHeadBytes; ++i)
    length = length << 8 | std::to_integer<std::size_t>(frame[i]);
  const auto content = frame.subspan(kFrameHeadBytes);
  if (content.size() < length) return fail(DecodeErrc::kTruncated, frame.size());
  return content.first(length);
}

}  // namespace kvr::wire
