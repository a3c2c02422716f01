#include "wire/numbered_events.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/json_writer.h"
#include "model/tier.h"
#include "wire/event_encoder.h"
#include "wire/medium.h"
#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

// --- TensorRT-LLM -------------------------------------------------------------------------------

std::uint64_t LevelOf(const EngineEvent& event) {
  return static_cast<std::uint64_t>(TierFromMedium(event.medium).value_or(Tier::kDevice));
}

void WriteTokens(std::span<const TokenId> tokens, JsonWriter& json) {
  json.BeginArray();
  for (const TokenId token : tokens) {
    json.BeginObject();
    json.Field("type", "unique_token");
    json.Field("token_id", token);
    json.Field("token_extra_id", 0);
    json.EndObject();
  }
  json.EndArray();
}

void WriteStoredData(const EventBatch& batch, const EngineEvent& event, JsonWriter& json) {
  const auto hashes = batch.HashesOf(event);
  const auto tokens = batch.TokensOf(event);
  json.Field("type", "stored");
  json.Key("parent_hash");
  if (event.parent) {
    json.Value(Raw(*event.parent));
  } else {
    json.Null();
  }
  json.Key("blocks");
  json.BeginArray();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const std::size_t begin = std::min(tokens.size(), i * event.block_size);
    const std::size_t count = std::min<std::size_t>(tokens.size() - begin, event.block_size);
    json.BeginObject();
    json.Field("type", "stored_block");
    json.Field("block_hash", Raw(hashes[i]));
    json.Key("tokens");
    WriteTokens(tokens.subspan(begin, count), json);
    json.Field("cache_level", LevelOf(event));
    json.Field("priority", 35);
    if (event.cache_salt) json.Field("cache_salt", *event.cache_salt);
    json.EndObject();
  }
  json.EndArray();
  if (!event.lora_name.empty()) json.Field("lora_name", event.lora_name);
}

void WriteRemovedData(const EventBatch& batch, const EngineEvent& event, JsonWriter& json) {
  json.Field("type", "removed");
  json.Key("block_hashes");
  json.BeginArray();
  for (const EngineHash hash : batch.HashesOf(event))
    json.Value(Raw(hash));
  json.EndArray();
}

void WriteMovedData(EngineHash hash, std::uint64_t level, JsonWriter& json) {
  json.Field("type", "updated");
  json.Field("block_hash", Raw(hash));
  json.Key("cache_level");
  json.BeginObject();
  json.Field("type", "event_diff");
  json.Field("new_value", level);
  json.Field("old_value", 0);
  json.EndObject();
  json.Key("priority");
  json.Null();
}

template <typename WriteData>
void WriteItem(const EventBatch& batch, const EngineEvent& event, std::uint64_t& event_id,
               JsonWriter& json, WriteData write_data) {
  json.BeginObject();
  json.Field("event_id", event_id++);
  json.Key("data");
  json.BeginObject();
  write_data();
  json.EndObject();
  json.Field("window_size", event.window.value_or(kTrtllmWindow));
  if (batch.dp_rank) json.Field("attention_dp_rank", *batch.dp_rank);
  json.EndObject();
}

// --- Mooncake -----------------------------------------------------------------------------------

std::uint64_t MillisecondsOf(double ts) {
  constexpr double kFirstMilliseconds = 1e11;  // seconds until the year 5138
  return static_cast<std::uint64_t>(std::llround(ts < kFirstMilliseconds ? ts * 1e3 : ts));
}

void WriteNils(std::initializer_list<std::string_view> keys, MsgpackWriter& out) {
  for (const std::string_view key : keys) {
    out.Text(key);
    out.Nil();
  }
}

void WritePoolEvent(const EngineEvent& event, EngineHash hash, std::uint64_t milliseconds,
                    std::uint64_t& event_id, MsgpackWriter& out) {
  const bool stored = event.type == EventType::kStored;
  std::string medium(event.medium.empty() ? "cpu" : event.medium);
  std::transform(medium.begin(), medium.end(), medium.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  out.Map(stored ? 20 : 17);
  out.Text("event_id");
  out.Uint(event_id++);
  out.Text("timestamp");
  out.Uint(milliseconds);
  out.Text("event_type");
  out.Text(stored ? "stored" : "removed");
  out.Text("type");
  out.Text(stored ? "BlockStored" : "BlockRemoved");
  WriteNils({"model_name", "block_size", "additional_salt", "lora_name"}, out);
  out.Text("tenant_id");
  out.Text("default");
  out.Text("backend_id");
  out.Text(event.backend.empty() ? "pool-0" : event.backend);
  WriteNils({"group_id"}, out);
  out.Text("medium");
  out.Text(medium);
  WriteNils({"dp_rank"}, out);
  out.Text("object_key");
  out.Text(std::to_string(Raw(hash)));
  out.Text("seq_hashes");
  out.Array(1);
  out.Uint(Raw(hash));
  out.Text("block_hashes");
  out.Array(1);
  out.Int(static_cast<std::int64_t>(Raw(hash)));
  out.Text("base_block_idx");
  if (!stored) return out.Nil();
  out.Uint(0);
  WriteNils({"parent_hash", "token_ids", "parent_block_hash"}, out);
}

bool SpeaksOfBlocks(const EngineEvent& event) {
  return event.type == EventType::kStored || event.type == EventType::kRemoved;
}

}  // namespace

void EncodeTrtllmList(const EventBatch& batch, std::uint64_t& event_id, std::string& out) {
  JsonWriter json(out);
  json.BeginArray();
  for (const EngineEvent& event : batch.events) {
    const auto write = [&](auto write_data) {
      WriteItem(batch, event, event_id, json, write_data);
    };
    if (event.type == EventType::kRemoved) {
      write([&] { WriteRemovedData(batch, event, json); });
    } else if (event.type == EventType::kStored && event.tokens.count > 0) {
      write([&] { WriteStoredData(batch, event, json); });
    } else if (event.type == EventType::kStored) {
      for (const EngineHash hash : batch.HashesOf(event))
        write([&] { WriteMovedData(hash, LevelOf(event), json); });
    }
  }
  json.EndArray();
}

void EncodePoolBatch(const EventBatch& batch, std::uint64_t& event_id, std::string& bytes) {
  MsgpackWriter out(bytes);
  const std::uint64_t milliseconds = MillisecondsOf(batch.ts);
  std::size_t count = 0;
  for (const EngineEvent& event : batch.events)
    count += SpeaksOfBlocks(event) ? event.hashes.count : 0;
  out.Array(3);
  out.Uint(milliseconds);
  out.Array(count);
  for (const EngineEvent& event : batch.events) {
    if (!SpeaksOfBlocks(event)) continue;
    for (const EngineHash hash : batch.HashesOf(event))
      WritePoolEvent(event, hash, milliseconds, event_id, out);
  }
  out.Uint(batch.dp_rank.value_or(0));
}

}  // namespace kvr::wire
