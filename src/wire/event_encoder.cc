#include "wire/event_encoder.h"

#include <algorithm>
#include <array>

#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

constexpr std::array<Dialect, 10> kDialects = {{
    {"vllm-0.9", false, false, true, 6, 2, 1, false},
    {"vllm-0.10", false, false, false, 7, 3, 1, false},
    {"vllm-0.14", false, false, false, 8, 3, 1, false},
    {"vllm-0.17", false, false, false, 9, 3, 1, false},
    {"vllm-0.20", false, false, false, 10, 4, 1, false},
    {"vllm-0.22", false, false, false, 12, 4, 1, false},
    {"vllm-0.24", true, false, false, 8, 3, 1, false},
    {"sglang", false, true, false, 7, 3, 1, true},
    {"sglang-map", true, true, false, 6, 2, 1, false},
    {"positional", false, false, false, 14, 8, 2, true},
}};

struct Scope {
  const EventBatch& batch;
  const EngineEvent& event;
  const Dialect& dialect;
  MsgpackWriter& out;
};

void WriteHash(const Scope& scope, EngineHash hash) {
  if (scope.dialect.signed_hashes) {
    scope.out.Int(static_cast<std::int64_t>(Raw(hash)));
  } else {
    scope.out.Uint(Raw(hash));
  }
}

void WriteTokens(const Scope& scope) {
  const auto tokens = scope.batch.TokensOf(scope.event);
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

enum class Field {
  kHashes,
  kParent,
  kTokens,
  kBlockSize,
  kLoraId,
  kMedium,
  kLoraName,
  kExtraKeys,
  kGroup,
  kKind,
  kWindow,
  kLocality,
  kOwnership,
  kSessionId,
  kCacheSalt,
  kMmInfos,
  kCopiesLeft,
};

constexpr std::array<std::string_view, 17> kKeys = {"block_hashes",
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
                                                    "remaining_copy_counts"};

// In the order of positions; what has none comes last.
constexpr std::array<Field, 16> kStoredFields = {
    Field::kHashes,    Field::kParent,    Field::kTokens,    Field::kBlockSize,
    Field::kLoraId,    Field::kMedium,    Field::kLoraName,  Field::kExtraKeys,
    Field::kGroup,     Field::kKind,      Field::kWindow,    Field::kLocality,
    Field::kOwnership, Field::kCacheSalt, Field::kSessionId, Field::kMmInfos};
constexpr std::array<Field, 9> kRemovedFields = {
    Field::kHashes,   Field::kMedium,    Field::kGroup,     Field::kKind,      Field::kWindow,
    Field::kLocality, Field::kOwnership, Field::kSessionId, Field::kCopiesLeft};
constexpr std::array<Field, 1> kClearedFields = {Field::kOwnership};

bool Present(Field field, const EngineEvent& event) {
  switch (field) {
    case Field::kHashes:
    case Field::kTokens:
    case Field::kBlockSize:
      return true;
    case Field::kParent:
      return event.parent.has_value();
    case Field::kLoraId:
      return event.lora_id.has_value();
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
      return scope.out.Uint(*event.lora_id);
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
  }
}

// What the schema of one event type says in one dialect.
struct Layout {
  std::string_view tag;
  std::span<const Field> fields;
  std::size_t length;  // as Dialect::stored_length
};

Layout LayoutOf(EventType type, const Dialect& dialect) {
  switch (type) {
    case EventType::kStored:
      return {"BlockStored", kStoredFields, dialect.stored_length};
    case EventType::kRemoved:
      return {"BlockRemoved", kRemovedFields, dialect.removed_length};
    case EventType::kCleared:
      return {"AllBlocksCleared", kClearedFields, dialect.cleared_length};
    case EventType::kIgnored:
      break;
  }
  return {"Ignored", {}, 1};
}

void WriteMap(const Scope& scope, const Layout& layout) {
  const auto written = [&](std::size_t i) {
    return i + 1 < layout.length || Present(layout.fields[i], scope.event);
  };
  std::size_t pairs = 1;
  for (std::size_t i = 0; i < layout.fields.size(); ++i)
    pairs += std::size_t{written(i)};
  scope.out.Map(pairs);
  scope.out.Text("type");
  scope.out.Text(layout.tag);
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (!written(i)) continue;
    const Field field = layout.fields[i];
    scope.out.Text(kKeys[static_cast<std::size_t>(field)]);
    if (Present(field, scope.event)) {
      Write(field, scope);
    } else {
      scope.out.Nil();
    }
  }
}

constexpr std::array<Field, 3> kMetadata = {Field::kCacheSalt, Field::kSessionId, Field::kLoraName};

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

void WriteArray(const Scope& scope, const Layout& layout) {
  const bool metadata = NeedsMetadata(scope.event, scope.dialect);
  const std::size_t length = metadata ? std::max<std::size_t>(layout.length, 8) : layout.length;
  scope.out.Array(length);
  scope.out.Text(layout.tag);
  for (std::size_t i = 0; i + 1 < length; ++i) {
    const Field field = layout.fields[i];
    if (metadata && field == Field::kLoraName) {
      WriteMetadata(scope);
    } else if (Present(field, scope.event)) {
      Write(field, scope);
    } else {
      scope.out.Nil();
    }
  }
}

}  // namespace

std::span<const Dialect> Dialects() {
  return kDialects;
}

const Dialect* DialectByName(std::string_view name) {
  const auto found = std::find_if(kDialects.begin(), kDialects.end(),
                                  [&](const Dialect& dialect) { return dialect.name == name; });
  return found == kDialects.end() ? nullptr : &*found;
}

void EncodeEventBatch(const EventBatch& batch, const Dialect& dialect, std::string& out) {
  MsgpackWriter writer(out);
  writer.Array(dialect.bare_batch && !batch.dp_rank ? 2 : 3);
  writer.Double(batch.ts);
  writer.Array(batch.events.size());
  for (const EngineEvent& event : batch.events) {
    const Scope scope{batch, event, dialect, writer};
    const Layout layout = LayoutOf(event.type, dialect);
    if (dialect.maps) {
      WriteMap(scope, layout);
    } else {
      WriteArray(scope, layout);
    }
  }
  if (batch.dp_rank) {
    writer.Uint(*batch.dp_rank);
  } else if (!dialect.bare_batch) {
    writer.Nil();
  }
}

}  // namespace kvr::wire
