#include "wire/event_fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "wire/medium.h"
#include "wire/short_text.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

std::uint32_t Size32(std::size_t size) {
  return static_cast<std::uint32_t>(size);  // below DecodeLimits::payload_bytes_max
}

// The last 8 of the bytes, big-endian.
EngineHash FromBytes(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes)
    value = value << 8 | static_cast<unsigned char>(c);
  return EngineHash{value};
}

// An integer by its 64 bits, whatever its sign; a digest by 8 of its bytes, big-endian, which is
// what an engine that sends integers makes of the same digest.
bool HashOf(FieldContext& context, const MsgpackItem& item, std::size_t at, EngineHash& hash) {
  MsgpackReader& in = context.in;
  if (item.is_integer()) {
    hash = EngineHash{item.number};
    return true;
  }
  if (item.kind != Kind::kBin) return in.Fail(DecodeErrc::kWrongType, at);
  if (item.bytes.empty()) return in.Fail(DecodeErrc::kOutOfRange, at);
  const DigestName name{FromBytes(item.bytes), FromBytes(item.bytes.substr(0, sizeof hash))};
  hash = context.limits.digests == DigestEnd::kLast ? name.last : name.first;
  if (item.bytes.size() > sizeof hash) context.batch.digests.push_back(name);
  return true;
}

bool ReadOtherHash(FieldContext& context, EngineHash& hash) {
  const std::size_t at = context.in.offset();
  MsgpackItem item;
  return context.in.Read(item) && HashOf(context, item, at, hash);
}

bool ReadHash(FieldContext& context, EngineHash& hash) {
  std::uint64_t number = 0;
  if (!context.in.TakeU64(number)) return ReadOtherHash(context, hash);
  hash = EngineHash{number};
  return true;
}

bool ReadHashes(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& hashes = context.batch.hashes;
  std::size_t count = 0;
  const std::size_t start = in.offset();
  if (!in.ReadArray(count)) return false;
  if (hashes.size() + count > context.limits.blocks_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  event.hashes = {Size32(hashes.size()), Size32(count)};
  hashes.resize(hashes.size() + count);
  for (EngineHash& hash : std::span(hashes).last(count)) {
    if (!ReadHash(context, hash)) return false;
  }
  return true;
}

bool ReadParent(FieldContext& context, EngineEvent& event) {
  event.parent.reset();
  return context.in.TakeNil() || ReadHash(context, event.parent.emplace());
}

// Pairs of neighbours: [[1,2],[2,3]] are the tokens 1, 2, 3.
bool ReadBigrams(MsgpackReader& in, std::span<TokenId> tokens) {
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::size_t at = in.offset();
    std::size_t width = 0;
    if (!in.ReadArray(width)) return false;
    if (width != 2) return in.Fail(DecodeErrc::kWrongType, at);
    if (!in.ReadU32(tokens[i]) || !in.ReadU32(tokens[i + 1])) return false;
  }
  return true;
}

bool ReadTokens(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  auto& tokens = context.batch.tokens;
  const std::size_t start = in.offset();
  event.eagle = false;
  event.tokens = {Size32(tokens.size()), 0};
  if (in.TakeNil()) return true;  // a producer that knows hashes only
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (count == 0) return true;
  event.eagle = in.AtArray();
  if (event.eagle) ++count;
  if (tokens.size() + count > context.limits.tokens_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  event.tokens.count = Size32(count);
  tokens.resize(tokens.size() + count);
  const auto room = std::span(tokens).last(count);
  if (event.eagle) return ReadBigrams(in, room);
  return in.ReadU32s(room);
}

bool ReadBlockSize(FieldContext& context, EngineEvent& event) {
  event.block_size = 0;
  if (context.in.TakeNil()) return true;  // as 0: the store names blocks without content
  return context.in.ReadU32(event.block_size);
}

// Any value passes: only its presence matters, and its value to those who repeat it.
bool ReadLoraId(FieldContext& context, EngineEvent& event) {
  MsgpackReader& in = context.in;
  event.lora_id.reset();
  if (in.TakeNil()) return true;
  if (in.AtArray() || in.AtMap()) return in.Skip(context.limits.depth_max);
  MsgpackItem item;
  if (!in.Read(item)) return false;
  if (item.is_integer()) event.lora_id = item.number;
  return true;
}

bool ReadTextOrNil(MsgpackReader& in, std::string_view& text) {
  text = {};
  return in.TakeNil() || in.ReadText(text);
}

bool ReadMedium(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.medium);
}

bool ReadLoraName(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.lora_name);
}

bool ReadCacheSalt(FieldContext& context, EngineEvent& event) {
  return context.in.ReadOptionalText(event.cache_salt);
}

bool ReadSessionId(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.session_id);
}

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

// Position 7 has had three meanings: the LoRA name, a map of metadata, a list of component names.
bool ReadNameOrMetadata(FieldContext& context, EngineEvent& event) {
  if (context.in.AtMap()) return ReadMetadata(context, event);
  if (context.in.AtArray()) return context.in.Skip(context.limits.depth_max);
  return ReadLoraName(context, event);
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

// The list of one block: nil, or keys.
bool ReadBlockKeys(FieldContext& context, Slice& keys) {
  MsgpackReader& in = context.in;
  auto& all = context.batch.extra_keys;
  const std::size_t start = in.offset();
  keys = {Size32(all.size()), 0};
  if (in.TakeNil()) return true;
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (all.size() + count > context.limits.extra_keys_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  keys.count = Size32(count);
  for (std::uint32_t i = 0; i < keys.count; ++i) {
    if (!ReadExtraKey(context, all.emplace_back())) return false;
  }
  return true;
}

// A list with one entry a block, or nil; `read` takes the entry.
template <typename ReadEntry>
bool ReadPerBlock(FieldContext& context, std::vector<Slice>& entries, Slice& slice, bool& present,
                  ReadEntry read) {
  MsgpackReader& in = context.in;
  const std::size_t start = in.offset();
  slice = {Size32(entries.size()), 0};
  present = !in.TakeNil();
  if (!present) return true;
  std::size_t count = 0;
  if (!in.ReadArray(count)) return false;
  if (entries.size() + count > context.limits.blocks_max) {
    return in.Fail(DecodeErrc::kOverLimit, start);
  }
  slice.count = Size32(count);
  for (std::uint32_t i = 0; i < slice.count; ++i) {
    if (!read(context, entries.emplace_back())) return false;
  }
  return true;
}

bool ReadExtraKeys(FieldContext& context, EngineEvent& event) {
  bool present = false;
  return ReadPerBlock(context, context.batch.extra_blocks, event.extra_blocks, present,
                      ReadBlockKeys);
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

bool ReadMmInfos(FieldContext& context, EngineEvent& event) {
  return ReadPerBlock(context, context.batch.mm_blocks, event.mm_blocks, event.has_mm_infos,
                      ReadMmInfo);
}

bool ReadU32OrNil(MsgpackReader& in, std::optional<std::uint32_t>& value) {
  value.reset();
  return in.TakeNil() || in.ReadU32(value.emplace());
}

bool ReadGroup(FieldContext& context, EngineEvent& event) {
  return ReadU32OrNil(context.in, event.group);
}

bool ReadWindow(FieldContext& context, EngineEvent& event) {
  return ReadU32OrNil(context.in, event.window);
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

bool ReadKind(FieldContext& context, EngineEvent& event) {
  event.kind = GroupKind::kAbsent;
  event.kind_name = {};
  if (context.in.TakeNil()) return true;
  if (!context.in.ReadText(event.kind_name)) return false;
  event.kind = GroupKindFromName(event.kind_name);
  return true;
}

bool ReadLocality(FieldContext& context, EngineEvent& event) {
  event.locality = Locality::kAbsent;
  event.locality_name = {};
  if (context.in.TakeNil()) return true;
  if (context.in.AtText()) {
    if (!context.in.ReadText(event.locality_name)) return false;
    event.locality = LocalityFromName(event.locality_name);
    return true;
  }
  event.locality = Locality::kUnknown;
  return context.in.Skip(context.limits.depth_max);
}

bool ReadOwnership(FieldContext& context, EngineEvent& event) {
  event.ownership = Ownership::kFramework;
  event.ownership_name = {};
  if (context.in.TakeNil()) return true;
  if (!context.in.ReadText(event.ownership_name)) return false;
  event.ownership = OwnershipFromName(event.ownership_name);
  return true;
}

// A pool that many workers share names its parts; no engine does.
bool ReadBackend(FieldContext& context, EngineEvent& event) {
  return ReadTextOrNil(context.in, event.backend);
}

// A clear may name an owner. A medium in its place says which pool emptied; the clear is
// for all tiers all the same, which forgets too much rather than too little.
bool ReadClearOwnership(FieldContext& context, EngineEvent& event) {
  if (!ReadOwnership(context, event)) return false;
  if (event.ownership == Ownership::kUnknown && TierFromMedium(event.ownership_name)) {
    event.ownership = Ownership::kFramework;
    event.ownership_name = {};
  }
  return true;
}

constexpr std::array<Field, 18> kStoredFields = {{
    {"block_hashes", true, ReadHashes},
    {"parent_block_hash", false, ReadParent},
    {"token_ids", true, ReadTokens},
    {"block_size", true, ReadBlockSize},
    {"lora_id", false, ReadLoraId},
    {"medium", false, ReadMedium},
    {"lora_name", false, ReadLoraName, ReadNameOrMetadata},
    {"extra_keys", false, ReadExtraKeys},
    {"group_idx", false, ReadGroup},
    {"kv_cache_spec_kind", false, ReadKind},
    {"kv_cache_spec_sliding_window", false, ReadWindow},
    {"locality", false, ReadLocality},
    {"ownership", false, ReadOwnership},
    {"source_kind", false, ReadOwnership},  // what ownership was called at first
    {"session_id", false, ReadSessionId},
    {"cache_salt", false, ReadCacheSalt},
    {"block_mm_infos", false, ReadMmInfos},
    {"backend_id", false, ReadBackend},
}};

constexpr std::array<Field, 11> kRemovedFields = {{
    {"block_hashes", true, ReadHashes},
    {"medium", false, ReadMedium},
    {"group_idx", false, ReadGroup},
    {"kv_cache_spec_kind", false, ReadKind},
    {"kv_cache_spec_sliding_window", false, ReadWindow},
    {"locality", false, ReadLocality},
    {"ownership", false, ReadOwnership},
    {"source_kind", false, ReadOwnership},
    {"session_id", false, ReadSessionId},
    {"remaining_copy_counts", false, ReadCopiesLeft},
    {"backend_id", false, ReadBackend},
}};

constexpr std::array<Field, 2> kClearedFields = {{
    {"ownership", false, ReadClearOwnership},
    {"source_kind", false, ReadClearOwnership},
}};

constexpr std::uint32_t RequiredBits(std::span<const Field> fields) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].required) bits |= std::uint32_t{1} << i;
  }
  return bits;
}

// A tail begins after the fields whose places never moved.
constexpr std::array<EventSchema, 4> kSchemas = {{
    {"BlockStored", EventType::kStored, kStoredFields, 9, RequiredBits(kStoredFields)},
    {"BlockRemoved", EventType::kRemoved, kRemovedFields, 3, RequiredBits(kRemovedFields)},
    {"AllBlocksCleared", EventType::kCleared, kClearedFields, 2, 0},
    {"Ignored", EventType::kIgnored, {}, 1, 0},
}};

constexpr std::size_t kTailMax = 5;

struct TailSlot {
  std::size_t offset = 0;
  Kind kind = Kind::kNil;
  bool u32 = false;
};

// Whether each slot could be what the fixed places say: number, text, number, text, text; or nil.
bool FitsPlaces(std::span<const TailSlot> slots) {
  static constexpr std::array<bool, kTailMax> kNumber = {true, false, true, false, false};
  if (slots.size() < 4) return false;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].kind == Kind::kNil) continue;
    if (kNumber[i] ? !slots[i].u32 : slots[i].kind != Kind::kString) return false;
  }
  return true;
}

// A lone number in the fourth place is where one producer counts tokens, and names no group.
bool IsTokenOffset(std::span<const TailSlot> slots, std::size_t i) {
  return i == 3 && std::all_of(slots.begin(), slots.begin() + 3,
                               [](const TailSlot& slot) { return slot.kind == Kind::kNil; });
}

bool ReadTailByType(FieldContext& context, std::span<const TailSlot> slots, EngineEvent& event) {
  MsgpackReader& in = context.in;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    in.Seek(slots[i].offset);
    if (slots[i].u32 && IsTokenOffset(slots, i)) {
      if (!ReadU32OrNil(in, event.token_offset)) return false;
    } else if (slots[i].u32) {
      std::optional<std::uint32_t>& number = event.group ? event.window : event.group;
      if (!number && !ReadU32OrNil(in, number)) return false;
    } else if (slots[i].kind == Kind::kString) {
      if (!ReadKind(context, event)) return false;
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

std::size_t EventSchema::FieldOf(std::string_view key, std::size_t from) const {
  std::size_t at = from;
  for (std::size_t left = fields.size(); left > 0; --left, ++at) {
    if (at >= fields.size()) at = 0;
    if (SameText(fields[at].key, key)) return at;
  }
  return fields.size();
}

const EventSchema* SchemaByTag(std::string_view tag) {
  for (const EventSchema& schema : kSchemas) {
    if (SameText(schema.tag, tag)) return &schema;
  }
  return nullptr;
}

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
  if (FitsPlaces(slots)) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      in.Seek(slots[i].offset);
      if (!schema.fields[schema.tail - 1 + i].read_place(context, event)) return false;
    }
  } else {
    ++context.batch.legacy_layouts;
    if (!ReadTailByType(context, slots, event)) return false;
  }
  in.Seek(end);
  return true;
}

}  // namespace kvr::wire
