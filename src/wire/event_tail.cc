#include "wire/event_tail.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

constexpr std::size_t kTailMax = 5;

struct TailSlot {
  std::size_t offset = 0;
  Kind kind = Kind::kNil;
  bool u32 = false;
};

// Whether each slot could be what the fixed places say: number, text, number, text, text; or nil.
bool FitsPlaces(std::span<const TailSlot> slots) {
  static constexpr std::array<bool, kTailMax> kNumber = {true, false, true, false, false};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].kind == Kind::kNil) continue;
    if (kNumber[i] ? !slots[i].u32 : slots[i].kind != Kind::kString) return false;
  }
  return true;
}

// A number behind three slots that are at their places, where others have a text, is where one
// producer counts tokens.
bool IsTokenOffset(std::span<const TailSlot> slots, std::size_t i) {
  return i == 3 && FitsPlaces(slots.first(3));
}

// The number at the third place of three, as vLLM wrote them at first, or of those and a token
// offset: the window, also of an event without a group.
bool IsWindow(std::span<const TailSlot> slots, std::size_t i) {
  return i == 2 && FitsPlaces(slots.first(3)) && (slots.size() == 3 || slots[3].u32);
}

bool ReadTailByType(FieldContext& context, std::span<const TailSlot> slots, EngineEvent& event) {
  MsgpackReader& in = context.in;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    in.Seek(slots[i].offset);
    if (slots[i].u32 && IsTokenOffset(slots, i)) {
      if (event.type != EventType::kStored) continue;  // removals have no such number
      if (!ReadU32OrNil(in, event.token_offset)) return false;
    } else if (slots[i].u32) {
      std::optional<std::uint32_t>& number =
          event.group || IsWindow(slots, i) ? event.window : event.group;
      if (!number && !ReadU32OrNil(in, number)) return false;
    } else if (slots[i].kind == Kind::kString) {
      if (ReadKind(context, event)) continue;
      context.failed = "kv_cache_spec_kind";
      return false;
    } else if (slots[i].kind == Kind::kArray && event.type == EventType::kStored) {
      const std::size_t blocks = context.batch.mm_blocks.size();
      const std::size_t hashes = context.batch.mm_hashes.size();
      const Slice before = event.mm_blocks;
      const bool had = event.has_mm_infos;
      if (!ReadMmInfos(context, event)) {  // some other list
        context.batch.mm_blocks.resize(blocks);
        context.batch.mm_hashes.resize(hashes);
        event.mm_blocks = before;
        event.has_mm_infos = had;
      }
    }
  }
  return true;
}

}  // namespace

bool ReadTail(FieldContext& context, const EventSchema& schema, std::size_t count,
              EngineEvent& event) {
  MsgpackReader& in = context.in;
  std::array<TailSlot, kTailMax> room;
  const bool meaningful = event.type == EventType::kStored || event.type == EventType::kRemoved;
  const std::size_t used = meaningful ? std::min(count, kTailMax) : 0;
  const auto slots = std::span(room).first(used);
  for (TailSlot& slot : slots) {
    slot.offset = in.offset();
    MsgpackItem head;
    if (!in.Read(head)) return false;
    slot.kind = head.kind;
    slot.u32 = head.kind == Kind::kUint && head.number <= std::numeric_limits<std::uint32_t>::max();
    if (head.kind != Kind::kArray && head.kind != Kind::kMap) continue;
    in.Seek(slot.offset);
    if (!in.Skip(context.limits.depth_max)) return false;
  }
  for (std::size_t i = used; i < count; ++i) {
    if (!in.Skip(context.limits.depth_max)) return false;
  }
  if (slots.empty()) return true;
  const std::size_t end = in.offset();
  if (slots.size() >= 4 && FitsPlaces(slots)) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      in.Seek(slots[i].offset);
      const Field& field = schema.fields[schema.tail - 1 + i];
      if (field.read_place(context, event)) continue;
      context.failed = field.key;
      return false;
    }
  } else {
    ++context.batch.legacy_layouts;
    if (!ReadTailByType(context, slots, event)) return false;
  }
  in.Seek(end);
  return true;
}

}  // namespace kvr::wire
