#include "wire/event_schema.h"

#include <array>

#include "wire/short_text.h"

namespace kvr::wire {
namespace {

constexpr std::array<Field, 19> kStoredFields = {{
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
    {"token_offset", false, ReadTokenOffset},
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

}  // namespace kvr::wire
