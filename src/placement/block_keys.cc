#include "placement/block_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "hashing/xxh3.h"

namespace kvr::placement {
namespace {

using wire::EngineEvent;
using wire::EventBatch;
using wire::ExtraKey;

// How a client may tell its salt from all the other texts among the keys.
constexpr std::string_view kSaltTag = "dynamo-cache-salt:";
constexpr std::uint64_t kMmNameSeed = 0;
constexpr std::uint64_t kUnmappedSeed = 2;

// The first 16 of 64 hex digits.
std::optional<std::uint64_t> DigestHash(std::string_view text) {
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (text.size() != 64 || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + 16, value, 16);
  return value;
}

// What the key adds to the seed. The encoded form names its own type and length, so that two
// different keys never give the same bytes.
std::uint64_t UnmappedMix(std::string_view raw) {
  const std::uint64_t mix = hashing::Xxh3(raw, kUnmappedSeed);
  return mix == 0 ? 1 : mix;
}

// Passes over the LoRA name, once.
class LoraSkipper {
 public:
  explicit LoraSkipper(std::string_view name) : name_(name), done_(name.empty()) {}

  bool Skips(const ExtraKey& key) {
    if (done_ || key.kind != ExtraKey::Kind::kText || key.text != name_) return false;
    return done_ = true;
  }

 private:
  std::string_view name_;
  bool done_;
};

std::optional<std::uint64_t> MmHashOf(const ExtraKey& key) {
  const bool pair = key.kind == ExtraKey::Kind::kTextOffset;
  if (!pair && key.kind != ExtraKey::Kind::kText) return std::nullopt;
  if (const auto digest = DigestHash(key.text)) return digest;
  if (pair && !key.text.empty()) return hashing::Xxh3(key.text, kMmNameSeed);
  return std::nullopt;
}

}  // namespace

std::string_view SaltOf(const EventBatch& batch, const EngineEvent& event) {
  if (event.cache_salt) return *event.cache_salt;
  LoraSkipper lora(event.lora_name);
  std::string_view untagged;
  std::size_t untagged_count = 0;
  for (const ExtraKey& key : batch.ExtraKeysOf(event, 0)) {
    if (lora.Skips(key) || key.kind != ExtraKey::Kind::kText) continue;
    if (key.text.starts_with(kSaltTag)) {
      if (key.text.size() > kSaltTag.size()) return key.text.substr(kSaltTag.size());
    } else if (!DigestHash(key.text)) {
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
  LoraSkipper lora(event.lora_name);
  for (const ExtraKey& key : batch.ExtraKeysOf(event, i)) {
    if (lora.Skips(key)) continue;
    const bool text = key.kind == ExtraKey::Kind::kText;
    if (text && i == 0 && key.text.starts_with(kSaltTag)) continue;  // SaltOf has seen it
    if (text && !salt.empty() && key.text == salt) continue;
    if (const auto mm = MmHashOf(key)) {
      if (!event.has_mm_infos) keys.mm.push_back(*mm);
      continue;
    }
    keys.unmapped = true;
    (key.kind == ExtraKey::Kind::kBytes ? keys.unmapped_bytes : keys.unmapped_other) +=
        UnmappedMix(key.raw);
  }
}

}  // namespace kvr::placement
