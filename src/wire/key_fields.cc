// The fields that tell blocks of the same tokens apart.
#include <vector>

#include "wire/event_fields.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

// {cache_salt, session_id, ...} in the place of the LoRA name.
bool ReadMetadata(FieldContext& context, EngineEvent& event) {
  std::size_t pairs = 0;
  if (!context.in.ReadMap(pairs)) return false;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!context.in.ReadText(key)) return false;
    bool good = false;
    if (key == "cache_salt") {
      good = ReadCacheSalt(context, event);
    } else if (key == "session_id") {
      good = ReadSessionId(context, event);
    } else if (key == "lora_name") {
      good = ReadLoraName(context, event);
    } else {
      good = context.in.Skip(context.limits.depth_max);
    }
    if (!good) return false;
  }
  return true;
}

bool ReadExtraKey(FieldContext& context, ExtraKey& key) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  MsgpackItem item;
  if (!in.Read(item)) return false;
  key.kind = ExtraKey::Kind::kOther;
  if (item.kind == Kind::kString) {
    if (!IsUtf8(item.bytes)) return in.Fail(DecodeErrc::kBadText, start);
    key.kind = ExtraKey::Kind::kText;
    key.text = item.bytes;
  } else if (item.kind == Kind::kBin) {
    key.kind = IsUtf8(item.bytes) ? ExtraKey::Kind::kText : ExtraKey::Kind::kBytes;
    key.text = item.bytes;
  } else if (item.kind == Kind::kArray && item.number == 2) {
    MsgpackItem name;
    MsgpackItem place;
    if (!in.Read(name) || !in.Read(place)) return false;
    if (name.kind == Kind::kString && IsUtf8(name.bytes) && place.is_integer()) {
      key.kind = ExtraKey::Kind::kTextOffset;
      key.text = name.bytes;
    }
  }
  if (key.kind == ExtraKey::Kind::kOther) {
    in.Seek(start);
    if (!in.Skip(context.limits.depth_max)) return false;
  }
  key.raw = in.Since(start);
  return true;
}

// An array, appended to `entries`, of which there may be `entries_max`; `read` takes an entry.
template <typename Entry, typename ReadEntry>
bool AppendArray(FieldContext& context, std::vector<Entry>& entries, std::size_t entries_max,
                 std::uint32_t& appended, ReadEntry read) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (entries.size() + count > entries_max) return in.Fail(DecodeErrc::kOverLimit, start);
  appended = Size32(count);
  for (std::uint32_t i = 0; i < appended; ++i) {
    if (!read(context, entries.emplace_back())) return false;
  }
  return true;
}

// The list of one block: nil, or keys.
bool ReadBlockKeys(FieldContext& context, Slice& keys) {
  auto& all = context.batch.extra_keys;
  keys = {Size32(all.size()), 0};
  return context.in.TakeNil() ||
         AppendArray(context, all, context.limits.extra_keys_max, keys.count, ReadExtraKey);
}

// A list with one entry a block, or nil; `read` takes the entry.
template <typename ReadEntry>
bool ReadPerBlock(FieldContext& context, std::vector<Slice>& entries, Slice& slice, bool& present,
                  ReadEntry read) {
  slice = {Size32(entries.size()), 0};
  present = !context.in.TakeNil();
  return !present || AppendArray(context, entries, context.limits.blocks_max, slice.count, read);
}

// {mm_hash, offsets}
bool ReadMmObject(FieldContext& context, std::uint64_t& hash) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  std::size_t pairs = 0;
  if (!in.ReadMap(pairs)) return false;
  bool found = false;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return false;
    if (key != "mm_hash") {
      if (!in.Skip(context.limits.depth_max)) return false;
      continue;
    }
    const std::size_t at = in.offset();
    MsgpackItem item;
    if (!in.Read(item)) return false;
    if (!item.is_integer()) return in.Fail(DecodeErrc::kWrongType, at);
    hash = item.number;
    found = true;
  }
  return found || in.Fail(DecodeErrc::kMissingField, start);
}

// {mm_objects: [...]}, or nil
bool ReadMmInfo(FieldContext& context, Slice& objects) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.mm_hashes;
  const std::size_t start = in.offset();
  objects = {Size32(all.size()), 0};
  if (in.TakeNil()) return true;
  std::size_t pairs = 0;
  if (!in.ReadMap(pairs)) return false;
  bool found = false;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return false;
    if (key != "mm_objects") {
      if (!in.Skip(context.limits.depth_max)) return false;
      continue;
    }
    std::size_t count = 0;
    if (!in.ReadArray(count)) return false;
    if (all.size() + count > context.limits.extra_keys_max) {
      return in.Fail(DecodeErrc::kOverLimit, start);
    }
    objects = {Size32(all.size()), Size32(count)};
    for (std::size_t k = 0; k < count; ++k) {
      if (!ReadMmObject(context, all.emplace_back())) return false;
    }
    found = true;
  }
  return found || in.Fail(DecodeErrc::kMissingField, start);
}

}  // namespace

// Any value passes: only its presence matters, and its value to those who repeat it.
bool ReadLoraId(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  event.lora_id.reset();
  event.odd_lora_id = !in.TakeNil();
  if (!event.odd_lora_id) return true;
  if (in.AtArray() || in.AtMap()) return in.Skip(context.limits.depth_max);
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (!item.is_integer()) return true;
  event.lora_id = item.number;
  event.odd_lora_id = false;
  return true;
}

bool ReadLoraName(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.lora_name);
}

bool ReadCacheSalt(FieldContext& context, EngineEvent& event) {
  return context.in.ReadOptionalText(event.cache_salt);
}

// Position 7 has had three meanings: the LoRA name, a map of metadata, a list of component names.
bool ReadNameOrMetadata(FieldContext& context, EngineEvent& event) {
  if (context.in.AtMap()) return ReadMetadata(context, event);
  if (context.in.AtArray()) return context.in.Skip(context.limits.depth_max);
  return ReadLoraName(context, event);
}

bool ReadExtraKeys(FieldContext& context, EngineEvent& event) {
  bool present = false;
  return ReadPerBlock(context, context.batch.extra_blocks, event.extra_blocks, present,
                      ReadBlockKeys);
}

bool ReadMmInfos(FieldContext& context, EngineEvent& event) {
  return ReadPerBlock(context, context.batch.mm_blocks, event.mm_blocks, event.has_mm_infos,
                      ReadMmInfo);
}

}  // namespace kvr::wire
