#include "placement/block_keys.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "hashing/cache_salt.h"
#include "hashing/xxh3.h"
#include "wire/hex_digest.h"
#include "wire/msgpack_reader.h"

namespace kvr::placement {
namespace {

using wire::EngineEvent;
using wire::EventBatch;
using wire::ExtraKey;

// How a client may tell its salt from all the other texts among the keys.
using hashing::kSaltTag;
constexpr std::uint64_t kMmNameSeed = 0;
constexpr std::uint64_t kUnmappedSeed = 2;

// What the key adds to the seed. The encoded form names its own type and length, so that two
// different keys never give the same bytes.
std::uint64_t UnmappedMix(std::string_view raw) {
  const std::uint64_t mix = hashing::Xxh3(raw, kUnmappedSeed);
  return mix == 0 ? 1 : mix;
}

// A key as it is meant. Untyped texts stay kText: their meaning depends on what stands beside them.
struct Meaning {
  enum class Kind : std::uint8_t { kText, kMm, kLora, kSalt, kBytes, kOther };

  Kind kind = Kind::kOther;
  std::string_view text;
};

Meaning::Kind KindOfType(std::string_view type) {
  if (type == "lora") return Meaning::Kind::kLora;
  if (type == "mm") return Meaning::Kind::kMm;
  if (type == "cache_salt") return Meaning::Kind::kSalt;
  if (type == "prompt_embeds") return Meaning::Kind::kBytes;
  return Meaning::Kind::kOther;
}

std::string_view ValueFieldOf(Meaning::Kind kind) {
  if (kind == Meaning::Kind::kLora) return "name";
  return kind == Meaning::Kind::kSalt ? "salt" : "hash";
}

// The untyped value at the cursor.
Meaning MeaningOfValue(wire::MsgpackReader& in) {
  using Item = wire::MsgpackItem;
  Item item;
  if (!in.Read(item)) return {};
  const bool utf8 = wire::IsUtf8(item.bytes);
  if (item.kind == Item::Kind::kBin) {
    return {utf8 ? Meaning::Kind::kText : Meaning::Kind::kBytes, item.bytes};
  }
  if (item.kind == Item::Kind::kString && utf8) return {Meaning::Kind::kText, item.bytes};
  if (item.kind != Item::Kind::kArray || item.number != 2) return {};
  Item name;
  Item place;
  if (!in.Read(name) || !in.Read(place)) return {};
  if (name.kind != Item::Kind::kString || !wire::IsUtf8(name.bytes) || !place.is_integer()) {
    return {};
  }
  return {Meaning::Kind::kMm, name.bytes};
}

// Moves the cursor from the first of `pairs` to the value of the key `name`, if there is one.
bool SeekField(wire::MsgpackReader& in, std::size_t pairs, std::string_view name) {
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return false;
    if (key == name) return true;
    if (!in.SkipAnyDepth()) return false;
  }
  return false;
}

// {"type": ..., ...}: what a key is, said by the engine. A type we do not know, or one without its
// value, is a key without a name.
Meaning MeaningOfTyped(std::string_view raw) {
  wire::MsgpackReader in(std::as_bytes(std::span(raw)));
  std::size_t pairs = 0;
  if (!in.ReadMap(pairs)) return {};
  const std::size_t body = in.offset();
  std::string_view type;
  if (!SeekField(in, pairs, "type") || !in.ReadText(type)) return {};
  const bool legacy = type == "legacy";
  const Meaning::Kind kind = KindOfType(type);
  if (kind == Meaning::Kind::kOther && !legacy) return {};
  in.Seek(body);
  if (!SeekField(in, pairs, legacy ? "value" : ValueFieldOf(kind))) return {};
  const Meaning value = MeaningOfValue(in);
  if (legacy) return value;
  if (value.kind == Meaning::Kind::kText) return {kind, value.text};
  const bool digest = value.kind == kind && kind == Meaning::Kind::kBytes;
  return digest ? value : Meaning{};
}

Meaning MeaningOf(const ExtraKey& key) {
  switch (key.kind) {
    case ExtraKey::Kind::kText:
      return {Meaning::Kind::kText, key.text};
    case ExtraKey::Kind::kTextOffset:
      return {Meaning::Kind::kMm, key.text};
    case ExtraKey::Kind::kBytes:
      return {Meaning::Kind::kBytes, key.text};
    case ExtraKey::Kind::kOther:
      break;
  }
  return MeaningOfTyped(key.raw);
}

// Passes over the LoRA name, once.
class LoraSkipper {
 public:
  explicit LoraSkipper(std::string_view name) : name_(name), done_(name.empty()) {}

  bool Skips(const Meaning& key) {
    const bool text = key.kind == Meaning::Kind::kText || key.kind == Meaning::Kind::kLora;
    if (done_ || !text || key.text != name_) return false;
    return done_ = true;
  }

 private:
  std::string_view name_;
  bool done_;
};

// An image that an adapter has seen first goes by "<adapter>:<digest>".
std::string_view WithoutAdapter(std::string_view text, std::string_view lora) {
  const bool prefixed = !lora.empty() && text.size() == lora.size() + 65 &&
                        text.starts_with(lora) && text[lora.size()] == ':';
  return prefixed ? text.substr(lora.size() + 1) : text;
}

std::optional<std::uint64_t> MmHashOf(const Meaning& key, std::string_view lora) {
  if (key.kind != Meaning::Kind::kMm && key.kind != Meaning::Kind::kText) return std::nullopt;
  if (const auto digest = wire::HexDigestHead(WithoutAdapter(key.text, lora))) return digest;
  if (key.kind == Meaning::Kind::kMm && !key.text.empty())
    return hashing::Xxh3(key.text, kMmNameSeed);
  return std::nullopt;
}

// A text that says by itself that it is a salt. Engines have the salt in the first block only.
bool IsSaltTagged(const Meaning& key) {
  return key.kind == Meaning::Kind::kSalt ||
         (key.kind == Meaning::Kind::kText && key.text.starts_with(kSaltTag));
}

// What an IsSaltTagged key names; may be empty.
std::string_view TaggedSalt(const Meaning& key) {
  return key.kind == Meaning::Kind::kSalt ? key.text : hashing::NamedSalt(key.text);
}

}  // namespace

std::string_view SaltOf(const EventBatch& batch, const EngineEvent& event) {
  if (event.cache_salt) return hashing::NamedSalt(*event.cache_salt);
  LoraSkipper lora(event.lora_name);
  std::string_view untagged;
  std::size_t untagged_count = 0;
  for (const ExtraKey& extra : batch.ExtraKeysOf(event, 0)) {
    const Meaning key = MeaningOf(extra);
    if (lora.Skips(key)) continue;
    if (IsSaltTagged(key)) {
      if (const std::string_view named = TaggedSalt(key); !named.empty()) return named;
    } else if (key.kind == Meaning::Kind::kText && !MmHashOf(key, event.lora_name)) {
      untagged = key.text;
      ++untagged_count;
    }
  }
  return !event.parent && untagged_count == 1 ? untagged : std::string_view();
}

void ReadBlockKeys(const EventBatch& batch, const EngineEvent& event, std::size_t i,
                   std::string_view salt, BlockKeys& keys) {
  const auto explicit_mm = batch.MmHashesOf(event, i);
  keys.mm.assign(explicit_mm.begin(), explicit_mm.end());
  keys.unmapped_bytes = 0;
  keys.unmapped_other = 0;
  keys.unmapped = false;
  keys.overruled = false;
  LoraSkipper lora(event.lora_name);
  // Only where a chain begins engines mix the salt in; the same text elsewhere is another thing's.
  bool salt_is_due = i == 0 && !event.parent && !salt.empty();
  for (const ExtraKey& extra : batch.ExtraKeysOf(event, i)) {
    const Meaning key = MeaningOf(extra);
    if (lora.Skips(key)) continue;
    if (i == 0 && IsSaltTagged(key)) {
      const std::string_view named = TaggedSalt(key);
      if (named.empty() || named == salt) continue;
      if (event.cache_salt) {  // which overrules it, as the reference has it
        keys.overruled = true;
        continue;
      }
    }
    if (salt_is_due && key.kind == Meaning::Kind::kText && key.text == salt) {
      salt_is_due = false;
      continue;
    }
    if (const auto mm = MmHashOf(key, event.lora_name)) {
      if (explicit_mm.empty()) keys.mm.push_back(*mm);
      continue;
    }
    keys.unmapped = true;
    (key.kind == Meaning::Kind::kBytes ? keys.unmapped_bytes : keys.unmapped_other) +=
        UnmappedMix(extra.raw);
  }
}

}  // namespace kvr::placement
