#include "cmd/decode_json.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "placement/block_keys.h"
#include "placement/drop_text.h"

namespace kvr::cmd {
namespace {

void Optional(JsonWriter& json, std::string_view key, std::string_view text) {
  json.Key(key);
  if (text.empty()) {
    json.Null();
  } else {
    json.Value(text);
  }
}

template <typename T>
void Optional(JsonWriter& json, std::string_view key, const std::optional<T>& value) {
  json.Key(key);
  if (value) {
    json.Value(*value);
  } else {
    json.Null();
  }
}

template <typename Items, typename Number>
void Numbers(JsonWriter& json, std::string_view key, const Items& items, Number number) {
  json.Key(key);
  json.BeginArray();
  for (const auto& item : items)
    json.Value(number(item));
  json.EndArray();
}

void Hashes(JsonWriter& json, std::string_view key, std::span<const EngineHash> hashes) {
  Numbers(json, key, hashes, [](EngineHash hash) { return Raw(hash); });
}

// What each block has beside tokens, LoRA and salt: the objects, and a number for the keys without
// a name, that go into its hash. What the keys are stays hidden, as they may be secrets.
void WriteKeys(JsonWriter& json, const wire::EventBatch& batch, const wire::EngineEvent& event) {
  const std::string_view salt = placement::SaltOf(batch, event);
  const bool has_keys = event.extra_blocks.count > 0 || event.has_mm_infos;
  const std::size_t count = has_keys ? event.hashes.count : 0;
  std::vector<placement::BlockKeys> keys(count);
  for (std::size_t i = 0; i < count; ++i)
    placement::ReadBlockKeys(batch, event, i, salt, keys[i]);
  const auto write = [&](std::string_view name, auto is_there, auto write_value) {
    json.Key(name);
    json.BeginArray();
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_there(keys[i])) continue;
      json.BeginObject();
      json.Field("block", i);
      write_value(keys[i]);
      json.EndObject();
    }
    json.EndArray();
  };
  using Keys = placement::BlockKeys;
  write(
      "objects", [](const Keys& of) { return !of.mm.empty(); },
      [&](const Keys& of) {
        Numbers(json, "mm_hashes", of.mm, [](std::uint64_t hash) { return hash; });
      });
  write(
      "unmapped_keys", [](const Keys& of) { return of.unmapped; },
      [&](const Keys& of) { json.Field("seed", of.unmapped_bytes + of.unmapped_other); });
}

void WriteStored(JsonWriter& json, const wire::EventBatch& batch, const ShownEvent& shown,
                 SaltNames& salts) {
  const wire::EngineEvent& event = *shown.event;
  Hashes(json, "block_hashes", batch.HashesOf(event));
  Optional(json, "parent",
           event.parent ? std::optional(Raw(*event.parent)) : std::optional<std::uint64_t>());
  json.Field("block_size", event.block_size);
  json.Field("tokens", event.tokens.count);
  json.Field("eagle", event.eagle);
  Optional(json, "lora", event.lora_name);
  Optional(json, "lora_id", event.lora_id);
  const bool inherited = shown.inherited_salt != 0;
  Optional(json, "salt",
           inherited ? salts.NameOf(shown.inherited_salt)
                     : salts.NameOf(placement::SaltOf(batch, event)));
  json.Field("salt_inherited", inherited);
  WriteKeys(json, batch, event);
  Optional(json, "group", event.group);
  Optional(json, "kind", event.kind_name);
  Optional(json, "window", event.window);
  Optional(json, "locality", event.locality_name);
  Optional(json, "ownership", event.ownership_name);
  Optional(json, "session_id", event.session_id);
  json.Field("eligible", shown.own != nullptr && shown.own->eligible);
  const bool hashed = shown.own != nullptr && !shown.own->hash_only;
  Numbers(json, "local_hashes", hashed ? shown.own->blocks : std::span<const PlacedBlock>(),
          [](const PlacedBlock& block) { return Raw(block.local); });
}

constexpr std::array<std::string_view, 3> kPlacedNames = {"stored", "removed", "cleared"};

void WritePlaced(JsonWriter& json, const PlacementEvent& placed,
                 std::optional<std::uint32_t> batch_rank) {
  json.BeginObject();
  json.Field("type", kPlacedNames[static_cast<std::size_t>(placed.kind)]);
  if (placed.rank.dp_rank != batch_rank.value_or(0)) json.Field("dp_rank", placed.rank.dp_rank);
  if (placed.kind != PlacementKind::kCleared) json.Field("tier", TierName(placed.tier));
  if (placed.kind == PlacementKind::kRemoved) Hashes(json, "block_hashes", placed.removed);
  if (placed.kind == PlacementKind::kStored) {
    Numbers(json, "block_hashes", placed.blocks,
            [](const PlacedBlock& block) { return Raw(block.engine); });
    json.Field("by_name_only", placed.hash_only);
  }
  json.EndObject();
}

void WriteEvent(JsonWriter& json, const DecodedBatch& decoded, const ShownEvent& shown,
                SaltNames& salts) {
  const wire::EngineEvent& event = *shown.event;
  const bool stored = event.type == wire::EventType::kStored;
  json.BeginObject();
  json.Field("index", event.index);
  json.Field("type", wire::EventTypeName(event.type));
  if (stored || event.type == wire::EventType::kRemoved) {
    // A removal that names no tier is from wherever its blocks are: `placed` says where.
    const auto tier = event.every_tier ? std::nullopt : decoded.TierOf(event);
    Optional(json, "tier", tier ? TierName(*tier) : std::string_view());
    Optional(json, "medium", event.medium);
  }
  if (stored) WriteStored(json, decoded.batch, shown, salts);
  if (event.type == wire::EventType::kRemoved) {
    Hashes(json, "block_hashes", decoded.batch.HashesOf(event));
    Optional(json, "group", event.group);
  }
  if (event.type != wire::EventType::kCleared) json.Field("left_out", shown.left_out);
  json.Key("placed");
  json.BeginArray();
  for (const PlacementEvent& placed : shown.placed)
    WritePlaced(json, placed, decoded.batch.dp_rank);
  json.EndArray();
  json.EndObject();
}

}  // namespace

void WriteBatch(JsonWriter& json, const DecodedBatch& decoded, SaltNames& salts) {
  json.Field("ts", decoded.batch.ts);
  Optional(json, "dp_rank", decoded.batch.dp_rank);
  json.Key("events");
  json.BeginArray();
  for (const ShownEvent& shown : decoded.events)
    WriteEvent(json, decoded, shown, salts);
  json.EndArray();
  json.Key("dropped");
  json.BeginArray();
  for (const placement::DroppedEvent& dropped : decoded.placed.dropped) {
    json.BeginObject();
    json.Field("index", dropped.index);
    json.Field("reason", placement::DropReasonName(dropped.reason));
    const std::string detail =
        placement::DropDetail(dropped, decoded.batch, decoded.options.block_size);
    if (!detail.empty()) json.Field("detail", detail);
    if (dropped.reason == placement::DropReason::kDecodeError ||
        dropped.reason == placement::DropReason::kUnknownEvent) {
      json.Field("offset", dropped.error.offset);
    }
    json.EndObject();
  }
  json.EndArray();
  json.Key("facts");
  json.BeginArray();
  for (const Fact& fact : decoded.facts) {
    json.BeginObject();
    json.Field("name", fact.name);
    json.Field("text", fact.text);
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace kvr::cmd
