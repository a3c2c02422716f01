// How RouterEvents and their envelopes are read, field by field. Private to the decoder.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/event_decoder.h"
#include "wire/msgpack_reader.h"
#include "wire/router_event.h"

namespace kvr::wire {

struct RouterContext {
  MsgpackReader& in;
  RouterBatch& batch;
  const DecodeLimits& limits;
  // Of an error in the event at hand: BadEvent::name.
  std::string_view failed{};
};

// Looks at the next value without taking it.
bool PeekItem(MsgpackReader& in, MsgpackItem& item);
bool ReadU64(MsgpackReader& in, std::uint64_t& value);

// One event, a map or an array in field order. False: the reader says why, and the vectors of the
// batch may have grown.
bool ReadRouterEvent(RouterContext& context, RouterEvent& event);

// The values of a struct, which comes as a map, or as an array in the order of `fields`. `read`
// takes the value of the field whose number it gets. The fields whose bits are set in `required`
// must be there.
template <std::size_t kCount, typename ReadField>
bool ReadStruct(RouterContext& context, const std::array<std::string_view, kCount>& fields,
                std::uint32_t required, ReadField read) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind != MsgpackItem::Kind::kMap && head.kind != MsgpackItem::Kind::kArray) {
    return in.Fail(DecodeErrc::kWrongType, start);
  }
  std::uint32_t seen = 0;
  for (std::uint64_t i = 0; i < head.number; ++i) {
    std::size_t field = static_cast<std::size_t>(i);
    if (head.kind == MsgpackItem::Kind::kMap) {
      std::string_view key;
      if (!in.ReadText(key)) return false;
      for (field = 0; field < kCount && fields[field] != key;)
        ++field;
    }
    if (field >= kCount) {
      if (!in.Skip(context.limits.depth_max)) return false;
      continue;
    }
    if (!read(field)) {
      if (context.failed.empty()) context.failed = fields[field];  // else one inside of it is named
      return false;
    }
    seen |= std::uint32_t{1} << field;
  }
  const std::uint32_t missing = required & ~seen;
  if (missing == 0) return true;
  context.failed = fields[static_cast<std::size_t>(std::countr_zero(missing))];
  return in.Fail(DecodeErrc::kMissingField, start);
}

}  // namespace kvr::wire
