// The fields that say neither which blocks an event is about nor where they are.
#include "wire/event_fields.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

}  // namespace

bool ReadWindow(FieldContext& context, EngineEvent& event) {
  return ReadU32OrNil(context.in, event.window);
}

bool ReadSessionId(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.session_id);
}

// A list with one number a hash, or nil. Only a hint, so that nothing in it costs the event: what
// is no list, or too long, is passed over, and what is no number is a number not known.
bool ReadCopiesLeft(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.copies_left;
  const std::size_t start = in.offset();
  event.copies_left = {};
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind != Kind::kArray || all.size() + head.number > context.limits.blocks_max) {
    in.Seek(start);
    return in.Skip(context.limits.depth_max);
  }
  event.copies_left = {Size32(all.size()), static_cast<std::uint32_t>(head.number)};
  for (std::uint64_t i = 0; i < head.number; ++i) {
    const std::size_t at = in.offset();
    MsgpackItem item;
    if (!in.Read(item)) return false;
    const bool known = item.kind == Kind::kUint && item.number < kCopiesUnknown;
    all.push_back(known ? static_cast<std::uint32_t>(item.number) : kCopiesUnknown);
    if (known) continue;
    in.Seek(at);
    if (!in.Skip(context.limits.depth_max)) return false;
  }
  return true;
}

}  // namespace kvr::wire
