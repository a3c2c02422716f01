#include "wire/router_event_json.h"

#include <cstdint>
#include <string_view>

#include "wire/msgpack_reader.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

void WriteMm(const RouterBatch& batch, const RouterBlock& block, JsonWriter& json) {
  if (!block.has_mm) return json.Null();
  json.BeginObject();
  json.Key("mm_objects");
  json.BeginArray();
  for (std::size_t i = 0; i < block.mm_objects.count; ++i) {
    const RouterMmObject& object = batch.mm_objects[block.mm_objects.begin + i];
    json.BeginObject();
    json.Field("mm_hash", object.hash);
    json.Key("offsets");
    json.BeginArray();
    for (std::size_t k = 0; k < object.offsets.count; ++k) {
      const auto& range = batch.mm_offsets[object.offsets.begin + k];
      json.BeginArray();
      json.Value(range[0]);
      json.Value(range[1]);
      json.EndArray();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void WriteStored(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json) {
  json.Key("parent_hash");
  if (event.parent) {
    json.Value(Raw(*event.parent));
  } else {
    json.Null();
  }
  json.Key("start_position");
  if (event.start_position) {
    json.Value(*event.start_position);
  } else {
    json.Null();
  }
  json.Key("blocks");
  json.BeginArray();
  for (std::size_t i = 0; i < event.blocks.count; ++i) {
    const RouterBlock& block = batch.blocks[event.blocks.begin + i];
    json.BeginObject();
    json.Field("block_hash", Raw(block.engine));
    json.Field("tokens_hash", Raw(block.local));
    json.Key("mm_extra_info");
    WriteMm(batch, block, json);
    json.EndObject();
  }
  json.EndArray();
}

void WriteRemoved(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json) {
  json.Key("block_hashes");
  json.BeginArray();
  for (std::size_t i = 0; i < event.removed.count; ++i)
    json.Value(Raw(batch.removed[event.removed.begin + i]));
  json.EndArray();
}

void WriteDomain(const RouterEvent& event, JsonWriter& json) {
  json.Key("residency_domain");
  if (event.domain == ResidencyDomain::kInvalid) return json.Null();
  if (event.domain == ResidencyDomain::kUnknown) return json.Value(event.domain_name);
  json.Value(event.domain == ResidencyDomain::kWorker ? "worker" : "cache_owner");
}

// Writes exactly one value. False when the bytes are no MessagePack; the value is then null.
bool WriteOne(MsgpackReader& in, std::size_t depth, JsonWriter& json);

bool WriteItems(MsgpackReader& in, const MsgpackItem& head, std::size_t depth, JsonWriter& json) {
  const bool map = head.kind == Kind::kMap;
  bool good = true;
  if (map) {
    json.BeginObject();
  } else {
    json.BeginArray();
  }
  for (std::uint64_t i = 0; good && i < head.number; ++i) {
    std::string_view key;
    if (map) {
      good = in.AtText() && in.ReadText(key);
      if (!good) break;
      json.Key(key);
    }
    good = WriteOne(in, depth + 1, json);
  }
  if (map) {
    json.EndObject();
  } else {
    json.EndArray();
  }
  return good;
}

bool WriteOne(MsgpackReader& in, std::size_t depth, JsonWriter& json) {
  constexpr std::size_t kDepthMax = 16;
  MsgpackItem item;
  if (depth > kDepthMax || !in.Read(item)) {
    json.Null();
    return false;
  }
  switch (item.kind) {
    case Kind::kBool:
      json.Value(item.number == 1);
      break;
    case Kind::kUint:
      json.Value(item.number);
      break;
    case Kind::kInt:
      json.Value(static_cast<std::int64_t>(item.number));
      break;
    case Kind::kFloat:
      json.Value(item.real);
      break;
    case Kind::kString:
      json.Value(item.bytes);
      break;
    case Kind::kBin:
      json.BeginArray();
      for (const char byte : item.bytes)
        json.Value(static_cast<unsigned>(static_cast<unsigned char>(byte)));
      json.EndArray();
      break;
    case Kind::kArray:
    case Kind::kMap:
      return WriteItems(in, item, depth, json);
    case Kind::kNil:
    case Kind::kExt:
      json.Null();
      break;
  }
  return true;
}

}  // namespace

void WriteKvCacheEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json) {
  json.BeginObject();
  json.Field("event_id", event.event_id);
  json.Key("data");
  if (event.type == EventType::kCleared) {
    json.Value("cleared");
  } else {
    json.BeginObject();
    json.Key(EventTypeName(event.type));
    json.BeginObject();
    if (event.type == EventType::kStored) {
      WriteStored(batch, event, json);
    } else {
      WriteRemoved(batch, event, json);
    }
    json.EndObject();
    json.EndObject();
  }
  json.Field("dp_rank", event.dp_rank);
  json.EndObject();
}

void WriteRouterEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json) {
  json.BeginObject();
  json.Field("worker_id", event.worker_id);
  json.Field("storage_tier", TierName(event.tier));
  if (event.domain != ResidencyDomain::kMissing) WriteDomain(event, json);
  json.Key("event");
  WriteKvCacheEvent(batch, event, json);
  if (!event.state_source.empty()) {
    json.Key("state_source");
    WriteMsgpackValue(std::as_bytes(std::span(event.state_source)), json);
  }
  if (!event.session_id.empty()) json.Field("session_id", event.session_id);
  if (event.eligible) json.Field("sce", true);
  json.EndObject();
}

void WriteMsgpackValue(std::span<const std::byte> value, JsonWriter& json) {
  MsgpackReader in(value);
  static_cast<void>(WriteOne(in, 0, json));
}

}  // namespace kvr::wire
