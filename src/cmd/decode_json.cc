#include "cmd/decode_json.h"

#include <cstdint>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "placement/block_keys.h"
#include "wire/medium.h"

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

void WriteTier(JsonWriter& json, const wire::EngineEvent& event, const PlacementEvent* placed) {
  const auto tier = placed != nullptr ? placed->tier : wire::TierFromMedium(event.medium);
  Optional(json, "tier", tier ? TierName(*tier) : std::string_view());
  Optional(json, "medium", event.medium);
}

void WriteStored(JsonWriter& json, const wire::EventBatch& batch, const wire::EngineEvent& event,
                 const PlacementEvent* placed, SaltNames& salts) {
  WriteTier(json, event, placed);
  Numbers(json, "block_hashes", batch.HashesOf(event), [](EngineHash hash) { return Raw(hash); });
  Optional(json, "parent",
           event.parent ? std::optional(Raw(*event.parent)) : std::optional<std::uint64_t>());
  json.Field("block_size", event.block_size);
  json.Field("tokens", event.tokens.count);
  json.Field("eagle", event.eagle);
  Optional(json, "lora", event.lora_name);
  Optional(json, "salt", salts.NameOf(placement::SaltOf(batch, event)));
  Optional(json, "group", event.group);
  Optional(json, "kind", event.kind_name);
  Optional(json, "locality", event.locality_name);
  Optional(json, "ownership", event.ownership_name);
  json.Field("eligible", placed != nullptr && placed->eligible);
  const bool hashed = placed != nullptr && !placed->hash_only;
  Numbers(json, "local_hashes", hashed ? placed->blocks : std::span<const PlacedBlock>(),
          [](const PlacedBlock& block) { return Raw(block.local); });
}

void WriteEvent(JsonWriter& json, const wire::EventBatch& batch, const wire::EngineEvent& event,
                const PlacementEvent* placed, SaltNames& salts) {
  json.BeginObject();
  json.Field("index", event.index);
  json.Field("type", wire::EventTypeName(event.type));
  if (event.type == wire::EventType::kStored) {
    WriteStored(json, batch, event, placed, salts);
  } else if (event.type == wire::EventType::kRemoved) {
    WriteTier(json, event, placed);
    Numbers(json, "block_hashes", batch.HashesOf(event), [](EngineHash hash) { return Raw(hash); });
    Optional(json, "group", event.group);
  }
  json.EndObject();
}

std::optional<PlacementKind> KindOf(wire::EventType type) {
  switch (type) {
    case wire::EventType::kStored:
      return PlacementKind::kStored;
    case wire::EventType::kRemoved:
      return PlacementKind::kRemoved;
    case wire::EventType::kCleared:
      return PlacementKind::kCleared;
    case wire::EventType::kIgnored:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string SaltNames::NameOf(std::string_view salt) {
  if (salt.empty()) return {};
  auto known = names_.find(salt);
  if (known == names_.end()) {
    if (names_.size() >= kNamesMax) return "#more";
    known = names_.emplace(salt, names_.size() + 1).first;
  }
  return fmt::format("#{}", known->second);
}

const PlacementEvent* PlacedEvents::Of(const wire::EngineEvent& event) {
  // Placed events come in the order of the decoded ones.
  while (next_ < placed_.events.size() && placed_.event_index[next_] < event.index)
    ++next_;
  const bool found = next_ < placed_.events.size() && placed_.event_index[next_] == event.index &&
                     KindOf(event.type) == placed_.events[next_].kind;
  return found ? &placed_.events[next_++] : nullptr;
}

void WriteBatch(JsonWriter& json, const wire::EventBatch& batch,
                const placement::PlacementBatch& placed, SaltNames& salts) {
  json.Field("ts", batch.ts);
  Optional(json, "dp_rank", batch.dp_rank);
  json.Key("events");
  json.BeginArray();
  PlacedEvents placed_events(placed);
  for (const wire::EngineEvent& event : batch.events)
    WriteEvent(json, batch, event, placed_events.Of(event), salts);
  json.EndArray();
  json.Key("dropped");
  json.BeginArray();
  for (const placement::DroppedEvent& dropped : placed.dropped) {
    json.BeginObject();
    json.Field("index", dropped.index);
    json.Field("reason", placement::DropReasonName(dropped.reason));
    if (dropped.reason == placement::DropReason::kDecodeError) {
      json.Field("detail", wire::DecodeErrcName(dropped.error.code));
      json.Field("offset", dropped.error.offset);
    }
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace kvr::cmd
