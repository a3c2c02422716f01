#include "wire/router_event.h"

#include <optional>

#include "wire/msgpack_reader.h"
#include "wire/router_fields.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

constexpr std::size_t kFrameHeadBytes = 5;
constexpr std::uint8_t kFrameVersion = 1;

// False only when the bytes of the event have no end.
bool TakeEvent(RouterContext& context, std::uint32_t index) {
  MsgpackReader& in = context.in;
  RouterBatch& batch = context.batch;
  const std::size_t start = in.offset();
  const std::size_t blocks = batch.blocks.size();
  const std::size_t removed = batch.removed.size();
  const std::size_t objects = batch.mm_objects.size();
  const std::size_t offsets = batch.mm_offsets.size();
  const RouterSkipped skipped = batch.skipped;
  RouterEvent event;
  event.index = index;
  context.failed = {};
  if (ReadRouterEvent(context, event)) {
    batch.events.push_back(event);
    return true;
  }
  BadEvent& bad = batch.bad.emplace_back(BadEvent{index, in.error(), start});
  bad.name = context.failed;
  batch.blocks.resize(blocks);
  batch.removed.resize(removed);
  batch.mm_objects.resize(objects);
  batch.mm_offsets.resize(offsets);
  batch.skipped = skipped;
  in.Seek(start);
  return in.SkipAnyDepth();
}

bool TakeList(RouterContext& context) {
  std::size_t count = 0;
  const std::size_t start = context.in.offset();
  if (!context.in.ReadArray(count)) return false;
  if (count > context.limits.events_max) return context.in.Fail(DecodeErrc::kOverLimit, start);
  for (std::size_t i = 0; i < count; ++i) {
    if (!TakeEvent(context, static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

// `topic`, unless it is null, is set when the envelope has one.
bool TakeEnvelope(RouterContext& context, std::span<const std::byte>& payload,
                  std::optional<std::string_view>* topic = nullptr) {
  static constexpr std::array<std::string_view, 5> kFields = {"publisher_id", "sequence",
                                                              "published_at", "topic", "payload"};
  return ReadStruct(context, kFields, 0b10011, [&](std::size_t field) {
    MsgpackReader& in = context.in;
    if (field == 0) return ReadU64(in, context.batch.publisher_id.emplace());
    if (field == 1) return ReadU64(in, context.batch.sequence.emplace());
    const std::size_t start = in.offset();
    MsgpackItem item;
    if (field == 3 && topic != nullptr && PeekItem(in, item) && item.kind == Kind::kString) {
      return in.ReadText(topic->emplace());
    }
    if (field != 4) return in.Skip(context.limits.depth_max);
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

bool TakePayload(RouterContext& context, Shape shape) {
  if (shape == Shape::kList) return TakeList(context);
  if (shape == Shape::kEvent) return TakeEvent(context, 0);
  return context.in.Fail(DecodeErrc::kWrongType, 0);
}

}  // namespace

void RouterBatch::Clear() {
  publisher_id.reset();
  sequence.reset();
  skipped = {};
  reused.Empty(events, bad, blocks, removed, mm_objects, mm_offsets);
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
  RouterContext context{in, batch, limits};
  bool good = false;
  DecodeError error;
  if (shape == Shape::kEnvelope) {
    std::span<const std::byte> content;
    good = TakeEnvelope(context, content);
    error = in.error();
    if (good) {
      MsgpackReader inner(content);
      RouterContext inside{inner, batch, limits};
      MsgpackItem head;
      good = PeekItem(inner, head) &&
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
  RouterContext context{in, batch, limits};
  std::span<const std::byte> payload;
  EnvelopeIds ids;
  if (!TakeEnvelope(context, payload, &ids.topic)) return std::nullopt;
  ids.publisher_id = *batch.publisher_id;
  ids.sequence = *batch.sequence;
  return ids;
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
