#include "wire/numbered_events.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "model/tier.h"
#include "wire/medium.h"
#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

// --- TensorRT-LLM -------------------------------------------------------------------------------

constexpr std::size_t kDigestDigits = 64;

std::uint64_t LevelOf(const EngineEvent& event) {
  return static_cast<std::uint64_t>(TierFromMedium(event.medium).value_or(Tier::kDevice));
}

// What all parts of a list need.
struct ListScope {
  const EventBatch& batch;
  const Dialect& dialect;
  JsonWriter& json;
};

// As the digest that was decoded as `hash`; without one, as 64 digits that begin with it.
void WriteDigest(const ListScope& scope, EngineHash hash) {
  const auto& known = scope.batch.digests;
  const auto found = std::find_if(known.begin(), known.end(), [hash](const DigestName& name) {
    return name.first == hash && name.bytes.size() == kDigestDigits;
  });
  if (found != known.end()) return scope.json.Value(found->bytes);
  scope.json.Value(fmt::format("{:016x}{:048x}", Raw(hash), 0));
}

void WriteHash(const ListScope& scope, EngineHash hash) {
  if (scope.dialect.hashes == Dialect::Hashes::kDigests) return WriteDigest(scope, hash);
  scope.json.Value(Raw(hash));
}

// The text that stands in the place of token `i` of the block; none where a number does.
std::optional<std::string_view> TextAt(std::span<const ExtraKey> keys, std::size_t i) {
  const auto found = std::find_if(keys.begin(), keys.end(), [i](const ExtraKey& key) {
    return key.kind == ExtraKey::Kind::kBytes && key.offset == static_cast<std::int64_t>(i);
  });
  return found == keys.end() ? std::nullopt : std::optional(found->text);
}

void WriteTokens(std::span<const TokenId> tokens, std::span<const ExtraKey> keys,
                 JsonWriter& json) {
  json.Key("tokens");
  json.BeginArray();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto text = TextAt(keys, i);
    json.BeginObject();
    json.Field("type", "unique_token");
    if (text) {
      json.Field("token_id", *text);
    } else {
      json.Field("token_id", tokens[i]);
    }
    json.Field("token_extra_id", 0);
    json.EndObject();
  }
  json.EndArray();
}

void WriteObjects(std::span<const ExtraKey> keys, JsonWriter& json) {
  const auto is_object = [](const ExtraKey& key) {
    return key.kind == ExtraKey::Kind::kTextOffset;
  };
  if (std::none_of(keys.begin(), keys.end(), is_object)) return;
  json.Key("mm_keys");
  json.BeginArray();
  for (const ExtraKey& key : keys) {
    if (!is_object(key)) continue;
    json.BeginObject();
    json.Field("type", "mm_key");
    json.Field("hash", key.text);
    json.Field("start_offset", key.offset);
    json.EndObject();
  }
  json.EndArray();
}

void WriteStoredData(const ListScope& scope, const EngineEvent& event) {
  JsonWriter& json = scope.json;
  const auto hashes = scope.batch.HashesOf(event);
  const auto tokens = scope.batch.TokensOf(event);
  json.Field("type", "stored");
  json.Key("parent_hash");
  if (event.parent) {
    WriteHash(scope, *event.parent);
  } else {
    json.Null();
  }
  json.Key("blocks");
  json.BeginArray();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const std::size_t begin = std::min(tokens.size(), i * event.block_size);
    const std::size_t count = std::min<std::size_t>(tokens.size() - begin, event.block_size);
    const auto keys = scope.batch.ExtraKeysOf(event, i);
    json.BeginObject();
    json.Field("type", "stored_block");
    json.Key("block_hash");
    WriteHash(scope, hashes[i]);
    WriteTokens(tokens.subspan(begin, count), keys, json);
    json.Field("cache_level", LevelOf(event));
    json.Field("priority", 35);
    WriteObjects(keys, json);
    if (event.cache_salt) json.Field("cache_salt", *event.cache_salt);
    json.EndObject();
  }
  json.EndArray();
  if (!event.lora_name.empty()) json.Field("lora_name", event.lora_name);
}

void WriteRemovedData(const ListScope& scope, const EngineEvent& event) {
  scope.json.Field("type", "removed");
  scope.json.Key("block_hashes");
  scope.json.BeginArray();
  for (const EngineHash hash : scope.batch.HashesOf(event))
    WriteHash(scope, hash);
  scope.json.EndArray();
}

void WriteMovedData(const ListScope& scope, EngineHash hash, std::uint64_t from, std::uint64_t to) {
  JsonWriter& json = scope.json;
  json.Field("type", "updated");
  json.Key("block_hash");
  WriteHash(scope, hash);
  json.Key("cache_level");
  json.BeginObject();
  json.Field("type", "event_diff");
  json.Field("new_value", to);
  json.Field("old_value", from);
  json.EndObject();
  json.Key("priority");
  json.Null();
}

template <typename WriteData>
void WriteItem(const ListScope& scope, std::uint64_t window, std::uint64_t& event_id,
               WriteData write_data) {
  JsonWriter& json = scope.json;
  json.BeginObject();
  json.Field("event_id", event_id++);
  json.Key("data");
  json.BeginObject();
  write_data();
  json.EndObject();
  json.Field("window_size", window);
  if (scope.batch.dp_rank) json.Field("attention_dp_rank", *scope.batch.dp_rank);
  if (!scope.dialect.hash_algo.empty()) {
    json.Field("hash_algo", scope.dialect.hash_algo);
    json.Field("layer_group_id", 0);
  }
  json.EndObject();
}

// What is decoded from a move: a store without tokens, and a removal of the same names.
const EngineEvent* OtherHalf(const EventBatch& batch, std::size_t i) {
  if (i + 1 == batch.events.size()) return nullptr;
  const EngineEvent& store = batch.events[i];
  const EngineEvent& next = batch.events[i + 1];
  const bool same = next.type == EventType::kRemoved && !next.every_tier &&
                    next.hashes.begin == store.hashes.begin &&
                    next.hashes.count == store.hashes.count;
  return same ? &next : nullptr;
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

void EncodeTrtllmList(const EventBatch& batch, const Dialect& dialect, std::uint64_t& event_id,
                      std::string& out) {
  JsonWriter json(out);
  const ListScope scope{batch, dialect, json};
  json.BeginArray();
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const EngineEvent& event = batch.events[i];
    const auto write = [&](auto write_data) {
      WriteItem(scope, event.window.value_or(kTrtllmWindow), event_id, write_data);
    };
    if (event.type == EventType::kRemoved) {
      write([&] { WriteRemovedData(scope, event); });
    } else if (event.type == EventType::kStored && event.tokens.count > 0) {
      write([&] { WriteStoredData(scope, event); });
    } else if (event.type == EventType::kStored) {
      const EngineEvent* removal = OtherHalf(batch, i);
      const std::uint64_t from = removal != nullptr ? LevelOf(*removal) : 0;
      for (const EngineHash hash : batch.HashesOf(event))
        write([&] { WriteMovedData(scope, hash, from, LevelOf(event)); });
      if (removal != nullptr) ++i;
    }
  }
  json.EndArray();
}

void EncodeTrtllmCreated(std::span<const std::uint64_t> blocks_per_level,
                         std::optional<std::uint32_t> dp_rank, const Dialect& dialect,
                         std::uint64_t& event_id, std::string& out) {
  EventBatch batch;
  batch.dp_rank = dp_rank;
  JsonWriter json(out);
  json.BeginArray();
  WriteItem({batch, dialect, json}, kTrtllmWindow, event_id, [&] {
    json.Field("type", "created");
    json.Key("num_blocks_per_cache_level");
    json.BeginArray();
    for (const std::uint64_t blocks : blocks_per_level)
      json.Value(blocks);
    json.EndArray();
  });
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
