// The fields that say neither which blocks an event is about nor where they are. Nothing in them
// costs the event: a value of a wrong type is passed over and counted, as if the field were absent.
#include "wire/event_fields.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

// The value that began at `start` is not what its field holds.
bool PassOver(FieldContext& context, std::size_t start, std::uint32_t& counter) {
  ++counter;
  context.in.Seek(start);
  return context.in.Skip(context.limits.depth_max);
}

}  // namespace

bool ReadWindow(FieldContext& context, EngineEvent& event) {
  const std::size_t start = context.in.offset();
  if (ReadU32OrNil(context.in, event.window)) return true;
  event.window.reset();
  return PassOver(context, start, context.batch.skipped.window);
}

bool ReadTokenOffset(FieldContext& context, EngineEvent& event) {
  const std::size_t start = context.in.offset();
  if (ReadU32OrNil(context.in, event.token_offset)) return true;
  event.token_offset.reset();
  return PassOver(context, start, context.batch.skipped.token_offset);
}

bool ReadSessionId(FieldContext& context, EngineEvent& event) {
  const std::size_t start = context.in.offset();
  if (ReadTextOrNil(context.in, event.session_id)) return true;
  event.session_id = {};
  return PassOver(context, start, context.batch.skipped.session_id);
}

// A list with one number a hash, or nil. What is no number in it, or nil, is a number not known.
bool ReadCopiesLeft(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.copies_left;
  std::uint32_t& skipped = context.batch.skipped.copies_left;
  const std::size_t start = in.offset();
  event.copies_left = {};
  if (in.TakeNil()) return true;
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind != Kind::kArray || all.size() + head.number > context.limits.blocks_max) {
    return PassOver(context, start, skipped);
  }
  event.copies_left = {Size32(all.size()), static_cast<std::uint32_t>(head.number)};
  std::uint32_t wrong = 0;
  for (std::uint64_t i = 0; i < head.number; ++i) {
    const std::size_t at = in.offset();
    MsgpackItem item;
    if (!in.Read(item)) return false;
    const bool known = item.kind == Kind::kUint && item.number < kCopiesUnknown;
    all.push_back(known ? static_cast<std::uint32_t>(item.number) : kCopiesUnknown);
    if (known || item.kind == Kind::kNil) continue;
    if (!PassOver(context, at, wrong)) return false;
  }
  if (wrong > 0) ++skipped;
  return true;
}

}  // namespace kvr::wire
