#include "wire/event_encoder.h"

#include <algorithm>
#include <array>

#include "model/tier.h"
#include "wire/medium.h"
#include "wire/msgpack_writer.h"
#include "wire/numbered_events.h"

namespace kvr::wire {
namespace {

struct Scope {
  const EventBatch& batch;
  const EngineEvent& event;
  const Dialect& dialect;
  MsgpackWriter& out;
};

void AppendBigEndian(std::uint64_t value, std::string& out) {
  for (int shift = 56; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift));
}

// The digest that was decoded as `hash`; without one, 32 bytes that are folded to it.
void WriteDigest(const Scope& scope, EngineHash hash) {
  const auto& known = scope.batch.digests;
  const auto found = std::find_if(known.begin(), known.end(),
                                  [hash](const DigestName& name) { return name.last == hash; });
  if (found != known.end()) return scope.out.Bin(found->bytes);
  std::string bytes;
  for (const std::uint64_t factor : {3u, 5u, 7u, 1u})
    AppendBigEndian(factor * Raw(hash), bytes);
  scope.out.Bin(bytes);
}

bool OnDevice(const EngineEvent& event) {
  return TierFromMedium(event.medium) == Tier::kDevice;
}

void WriteHash(const Scope& scope, EngineHash hash) {
  using Hashes = Dialect::Hashes;
  if (scope.dialect.hashes == Hashes::kSigned) {
    scope.out.Int(static_cast<std::int64_t>(Raw(hash)));
  } else if (scope.dialect.hashes == Hashes::kDigests && !OnDevice(scope.event)) {
    WriteDigest(scope, hash);
  } else {
    scope.out.Uint(Raw(hash));
  }
}

void WriteTokens(const Scope& scope) {
  const auto tokens = scope.batch.TokensOf(scope.event);
  if (tokens.empty() && scope.dialect.nil_tokens) return scope.out.Nil();
  if (!scope.event.eagle) {
    scope.out.Array(tokens.size());
    for (const TokenId token : tokens)
      scope.out.Uint(token);
    return;
  }
  scope.out.Array(tokens.empty() ? 0 : tokens.size() - 1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    scope.out.Array(2);
    scope.out.Uint(tokens[i]);
    scope.out.Uint(tokens[i + 1]);
  }
}

void WriteExtraKeys(const Scope& scope) {
  scope.out.Array(scope.event.extra_blocks.count);
  for (std::size_t i = 0; i < scope.event.extra_blocks.count; ++i) {
    const auto keys = scope.batch.ExtraKeysOf(scope.event, i);
    if (keys.empty()) {
      scope.out.Nil();
      continue;
    }
    scope.out.Array(keys.size());
    for (const ExtraKey& key : keys)
      scope.out.Raw(key.raw);
  }
}

void WriteMmInfos(const Scope& scope) {
  scope.out.Array(scope.event.mm_blocks.count);
  for (std::size_t i = 0; i < scope.event.mm_blocks.count; ++i) {
    const auto hashes = scope.batch.MmHashesOf(scope.event, i);
    if (hashes.empty()) {
      scope.out.Nil();
      continue;
    }
    scope.out.Map(1);
    scope.out.Text("mm_objects");
    scope.out.Array(hashes.size());
    for (const std::uint64_t hash : hashes) {
      scope.out.Map(2);
      scope.out.Text("mm_hash");
      scope.out.Uint(hash);
      scope.out.Text("offsets");
      scope.out.Array(0);
    }
  }
}

void WriteCopiesLeft(const Scope& scope) {
  scope.out.Array(scope.event.copies_left.count);
  for (std::size_t i = 0; i < scope.event.copies_left.count; ++i) {
    const std::uint32_t copies = scope.batch.CopiesLeftOf(scope.event, i);
    if (copies == kCopiesUnknown) {
      scope.out.Nil();
    } else {
      scope.out.Uint(copies);
    }
  }
}

using Field = EventField;

constexpr std::array<std::string_view, 19> kKeys = {"block_hashes",
                                                    "parent_block_hash",
                                                    "token_ids",
                                                    "block_size",
                                                    "lora_id",
                                                    "medium",
                                                    "lora_name",
                                                    "extra_keys",
                                                    "group_idx",
                                                    "kv_cache_spec_kind",
                                                    "kv_cache_spec_sliding_window",
                                                    "locality",
                                                    "ownership",
                                                    "session_id",
                                                    "cache_salt",
                                                    "block_mm_infos",
                                                    "remaining_copy_counts",
                                                    "token_offset",
                                                    "backend_id"};

bool Present(Field field, const EngineEvent& event) {
  switch (field) {
    case Field::kHashes:
    case Field::kTokens:
    case Field::kBlockSize:
      return true;
    case Field::kParent:
      return event.parent.has_value();
    case Field::kLoraId:
      return event.lora_id.has_value() || event.odd_lora_id;
    case Field::kMedium:
      return !event.medium.empty();
    case Field::kLoraName:
      return !event.lora_name.empty();
    case Field::kExtraKeys:
      return event.extra_blocks.count > 0;
    case Field::kGroup:
      return event.group.has_value();
    case Field::kKind:
      return event.kind != GroupKind::kAbsent;
    case Field::kWindow:
      return event.window.has_value();
    case Field::kLocality:
      return event.locality != Locality::kAbsent;
    case Field::kOwnership:
      return event.ownership != Ownership::kFramework;
    case Field::kSessionId:
      return !event.session_id.empty();
    case Field::kCacheSalt:
      return event.cache_salt.has_value();
    case Field::kMmInfos:
      return event.has_mm_infos;
    case Field::kCopiesLeft:
      return event.copies_left.count > 0;
    case Field::kTokenOffset:
      return event.token_offset.has_value();
    case Field::kBackend:
      return !event.backend.empty();
  }
  return false;
}

// The value of a field that is present.
void Write(Field field, const Scope& scope) {
  const EngineEvent& event = scope.event;
  switch (field) {
    case Field::kHashes:
      scope.out.Array(event.hashes.count);
      for (const EngineHash hash : scope.batch.HashesOf(event))
        WriteHash(scope, hash);
      return;
    case Field::kParent:
      return WriteHash(scope, *event.parent);
    case Field::kTokens:
      return WriteTokens(scope);
    case Field::kBlockSize:
      return scope.out.Uint(event.block_size);
    case Field::kLoraId:
      return event.lora_id ? scope.out.Uint(*event.lora_id) : scope.out.Bool(true);
    case Field::kMedium:
      return scope.out.Text(event.medium);
    case Field::kLoraName:
      return scope.out.Text(event.lora_name);
    case Field::kExtraKeys:
      return WriteExtraKeys(scope);
    case Field::kGroup:
      return scope.out.Uint(*event.group);
    case Field::kKind:
      return scope.out.Text(event.kind_name);
    case Field::kWindow:
      return scope.out.Uint(*event.window);
    case Field::kLocality:
      return scope.out.Text(event.locality_name);
    case Field::kOwnership:
      return scope.out.Text(event.ownership_name);
    case Field::kSessionId:
      return scope.out.Text(event.session_id);
    case Field::kCacheSalt:
      return scope.out.Text(*event.cache_salt);
    case Field::kMmInfos:
      return WriteMmInfos(scope);
    case Field::kCopiesLeft:
      return WriteCopiesLeft(scope);
    case Field::kTokenOffset:
      return scope.out.Uint(*event.token_offset);
    case Field::kBackend:
      return scope.out.Text(event.backend);
  }
}

std::string_view TagOf(EventType type) {
  static constexpr std::array<std::string_view, 4> kTags = {"BlockStored", "BlockRemoved",
                                                            "AllBlocksCleared", "Ignored"};
  return kTags[static_cast<std::size_t>(type)];
}

EventLayout LayoutOf(EventType type, const Dialect& dialect) {
  if (type == EventType::kStored) return dialect.stored;
  if (type == EventType::kRemoved) return dialect.removed;
  return type == EventType::kCleared ? dialect.cleared : EventLayout{};
}

void WriteOrNil(Field field, const Scope& scope) {
  if (Present(field, scope.event)) {
    Write(field, scope);
  } else {
    scope.out.Nil();
  }
}

void WriteMap(const Scope& scope, const EventLayout& layout) {
  const auto written = [&](std::size_t i) {
    return i < layout.required || Present(layout.fields[i], scope.event);
  };
  std::size_t pairs = 1;
  for (std::size_t i = 0; i < layout.fields.size(); ++i)
    pairs += std::size_t{written(i)};
  scope.out.Map(pairs);
  scope.out.Text("type");
  scope.out.Text(TagOf(scope.event.type));
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (!written(i)) continue;
    scope.out.Text(kKeys[static_cast<std::size_t>(layout.fields[i])]);
    WriteOrNil(layout.fields[i], scope);
  }
}

constexpr std::array<Field, 3> kMetadata = {Field::kCacheSalt, Field::kSessionId, Field::kLoraName};
constexpr std::size_t kMetadataPlace = 6;  // of the fields, the tag not counted

bool NeedsMetadata(const EngineEvent& event, const Dialect& dialect) {
  return dialect.metadata && event.type == EventType::kStored &&
         (event.cache_salt || !event.session_id.empty());
}

void WriteMetadata(const Scope& scope) {
  const auto present = [&](Field field) { return Present(field, scope.event); };
  scope.out.Map(
      static_cast<std::size_t>(std::count_if(kMetadata.begin(), kMetadata.end(), present)));
  for (const Field field : kMetadata) {
    if (!present(field)) continue;
    scope.out.Text(kKeys[static_cast<std::size_t>(field)]);
    Write(field, scope);
  }
}

void WriteArray(const Scope& scope, const EventLayout& layout) {
  const bool metadata = NeedsMetadata(scope.event, scope.dialect);
  std::size_t length = layout.fields.size();
  if (metadata) length = std::max(length, kMetadataPlace + 1);
  scope.out.Array(1 + length);
  scope.out.Text(TagOf(scope.event.type));
  for (std::size_t i = 0; i < length; ++i) {
    if (metadata && i == kMetadataPlace) {
      WriteMetadata(scope);
    } else {
      WriteOrNil(layout.fields[i], scope);
    }
  }
}

void WriteEvents(const EventBatch& batch, const Dialect& dialect, MsgpackWriter& writer) {
  writer.Array(batch.events.size());
  for (const EngineEvent& event : batch.events) {
    const Scope scope{batch, event, dialect, writer};
    const EventLayout layout = LayoutOf(event.type, dialect);
    if (dialect.form == Dialect::Form::kArrays) {
      WriteArray(scope, layout);
    } else {
      WriteMap(scope, layout);
    }
  }
}

void WriteRank(const EventBatch& batch, MsgpackWriter& writer) {
  if (batch.dp_rank) {
    writer.Uint(*batch.dp_rank);
  } else {
    writer.Nil();
  }
}

void WriteBatch(const EventBatch& batch, const Dialect& dialect, MsgpackWriter& writer) {
  using RankPlace = Dialect::RankPlace;
  const bool ranked = dialect.rank == RankPlace::kAlways ||
                      (dialect.rank == RankPlace::kWhenKnown && batch.dp_rank.has_value());
  const std::size_t parts = ranked ? 3 : 2;
  if (dialect.form == Dialect::Form::kMapBatch) {
    writer.Map(parts);
    writer.Text("ts");
    writer.Double(batch.ts);
    writer.Text("events");
    WriteEvents(batch, dialect, writer);
    if (ranked) writer.Text("data_parallel_rank");
  } else {
    writer.Array(parts);
    writer.Double(batch.ts);
    WriteEvents(batch, dialect, writer);
  }
  if (ranked) WriteRank(batch, writer);
}

}  // namespace

void EncodeEventBatch(const EventBatch& batch, const Dialect& dialect, std::string& out,
                      std::uint64_t* event_id) {
  std::uint64_t first = 0;
  std::uint64_t& id = event_id != nullptr ? *event_id : first;
  MsgpackWriter writer(out);
  if (dialect.form == Dialect::Form::kJson) {
    EncodeTrtllmList(batch, dialect, id, out);
  } else if (dialect.form == Dialect::Form::kPool) {
    EncodePoolBatch(batch, id, out);
  } else {
    WriteBatch(batch, dialect, writer);
  }
}

}  // namespace kvr::wire
