// Any bytes as an engine's payload: nothing crashes, what was decoded stays within its limits,
// both forms of an event mean the same, and no translation invents blocks.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "placement/event_translator.h"
#include "wire/event_decoder.h"
#include "wire/event_encoder.h"
#include "wire/trtllm_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::wire::EngineEvent;
using kvr::wire::EventBatch;
using kvr::wire::ExtraKey;

// Small, so that inputs reach them.
kvr::wire::DecodeLimits Limits() {
  kvr::wire::DecodeLimits limits;
  limits.events_max = 64;
  limits.blocks_max = 256;
  limits.tokens_max = 1024;
  limits.extra_keys_max = 64;
  limits.depth_max = 8;
  return limits;
}

void CheckLimits(const EventBatch& batch, const kvr::wire::DecodeLimits& limits) {
  KVR_CHECK(batch.events.size() + batch.bad.size() <= 4 * limits.events_max);  // JSON moves a block
  KVR_CHECK(batch.hashes.size() <= limits.blocks_max);
  KVR_CHECK(batch.tokens.size() <= limits.tokens_max);
  KVR_CHECK(batch.extra_blocks.size() <= limits.blocks_max);
  KVR_CHECK(batch.extra_keys.size() <= limits.extra_keys_max);
  KVR_CHECK(batch.mm_blocks.size() <= limits.blocks_max);
  KVR_CHECK(batch.mm_hashes.size() <= limits.extra_keys_max);
}

void CheckSameKeys(const EventBatch& a, const EngineEvent& x, const EventBatch& b,
                   const EngineEvent& y) {
  KVR_CHECK(x.extra_blocks.count == y.extra_blocks.count);
  for (std::size_t i = 0; i < x.extra_blocks.count; ++i) {
    const auto left = a.ExtraKeysOf(x, i);
    const auto right = b.ExtraKeysOf(y, i);
    KVR_CHECK(std::equal(left.begin(), left.end(), right.begin(), right.end(),
                         [](const ExtraKey& p, const ExtraKey& q) {
                           return p.kind == q.kind && p.text == q.text && p.raw == q.raw;
                         }));
  }
}

// What has no fixed place in the positional form.
void CheckSameMapFields(const EventBatch& a, const EngineEvent& x, const EventBatch& b,
                        const EngineEvent& y) {
  KVR_CHECK(x.session_id == y.session_id);
  KVR_CHECK(x.token_offset == y.token_offset);
  KVR_CHECK(x.backend == y.backend);
  KVR_CHECK(x.has_mm_infos == y.has_mm_infos && x.mm_blocks.count == y.mm_blocks.count);
  for (std::size_t i = 0; i < x.mm_blocks.count; ++i)
    KVR_CHECK(std::ranges::equal(a.MmHashesOf(x, i), b.MmHashesOf(y, i)));
  KVR_CHECK(x.copies_left.count == y.copies_left.count);
  for (std::size_t i = 0; i < x.copies_left.count; ++i)
    KVR_CHECK(a.CopiesLeftOf(x, i) == b.CopiesLeftOf(y, i));
}

void CheckSameEvent(const EventBatch& a, const EngineEvent& x, const EventBatch& b,
                    const EngineEvent& y) {
  KVR_CHECK(x.type == y.type);
  KVR_CHECK(std::ranges::equal(a.HashesOf(x), b.HashesOf(y)));
  KVR_CHECK(x.parent == y.parent);
  KVR_CHECK(std::ranges::equal(a.TokensOf(x), b.TokensOf(y)));
  KVR_CHECK(x.eagle == y.eagle);
  KVR_CHECK(x.block_size == y.block_size);
  KVR_CHECK(x.lora_id == y.lora_id && x.odd_lora_id == y.odd_lora_id);
  KVR_CHECK(x.lora_name == y.lora_name);
  KVR_CHECK(x.cache_salt == y.cache_salt);
  KVR_CHECK(x.medium == y.medium);
  KVR_CHECK(x.group == y.group);
  KVR_CHECK(x.window == y.window);
  KVR_CHECK(x.kind == y.kind && x.kind_name == y.kind_name);
  KVR_CHECK(x.locality == y.locality && x.locality_name == y.locality_name);
  KVR_CHECK(x.ownership == y.ownership && x.ownership_name == y.ownership_name);
  CheckSameKeys(a, x, b, y);
}

// Writes the batch in a dialect, reads it back and compares.
void CheckRoundTrip(const EventBatch& batch, std::string_view dialect,
                    const kvr::wire::DecodeLimits& limits) {
  std::string bytes;
  EncodeEventBatch(batch, *kvr::wire::DialectByName(dialect), bytes);
  EventBatch again;
  KVR_CHECK(DecodeEventBatch(std::as_bytes(std::span(bytes)), limits, again).has_value());
  KVR_CHECK(again.bad.empty());
  KVR_CHECK(again.trailing_bytes == 0 && again.legacy_layouts == 0);
  KVR_CHECK(std::bit_cast<std::uint64_t>(again.ts) == std::bit_cast<std::uint64_t>(batch.ts));
  KVR_CHECK(again.dp_rank == batch.dp_rank);
  KVR_CHECK(again.events.size() == batch.events.size());
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    KVR_CHECK(again.events[i].index == i);  // bad siblings are not written
    KVR_CHECK(batch.events[i].index >= i);
    CheckSameEvent(batch, batch.events[i], again, again.events[i]);
    if (dialect == "maps") CheckSameMapFields(batch, batch.events[i], again, again.events[i]);
  }
}

void Decode(std::span<const std::byte> payload) {
  const auto limits = Limits();
  EventBatch batch;
  if (!DecodeEventBatch(payload, limits, batch)) {
    KVR_CHECK(batch.events.empty() && batch.bad.empty() && batch.tokens.empty());
    return;
  }
  CheckLimits(batch, limits);
  CheckRoundTrip(batch, "maps", limits);
  // What else only maps say has no fixed place in the positional form.
  CheckRoundTrip(batch, "positional", limits);
}

void DecodeJson(std::span<const std::byte> payload) {
  const auto limits = Limits();
  EventBatch batch;
  kvr::wire::TrtllmJsonDecoder decoder;
  if (decoder.Decode(payload, limits, 4, batch)) CheckLimits(batch, limits);
}

kvr::placement::TranslatorOptions Options(bool lenient_media) {
  kvr::placement::TranslatorOptions options;
  options.block_size = 4;
  options.lenient_media = lenient_media;  // which expects chunks
  options.limits = Limits();
  options.ranks_max = 2;
  options.memory.counted_blocks_max = 16;
  options.memory.groups_max = 3;
  options.memory.held_names_max = 4;
  options.memory.chunk_blocks_max = 4;
  options.memory.chunks_max = 2;
  options.memory.partial_blocks_max = 2;
  options.memory.digests_max = 2;
  options.image_token = 9;
  return options;
}

// However many frames came, and whatever they said; of one rank.
void CheckRemembered(const kvr::placement::EventTranslator& translator) {
  const kvr::placement::MemoryLimits& memory = translator.options().memory;
  const std::size_t rank_max = memory.counted_blocks_max + memory.groups_max +
                               memory.held_names_max + 2 * memory.chunk_blocks_max +
                               3 * memory.chunks_max;
  KVR_CHECK(translator.remembered() <= rank_max + memory.partial_blocks_max + memory.digests_max);
}

void CheckPlaced(const kvr::placement::PlacementBatch& out, std::size_t hashes) {
  std::size_t blocks = 0;
  for (const kvr::PlacementEvent& event : out.events) {
    blocks += event.blocks.size() + event.removed.size();
    KVR_CHECK(event.kind == kvr::PlacementKind::kCleared ||
              !event.blocks.empty() != !event.removed.empty());
  }
  // Removals of a JSON list repeat per tier. Blocks of a group that turns out not to be the main
  // one are removed again, as often as they were stored, and those of another come by name.
  constexpr std::size_t kKnownMax = 2 * (16 + 4) * 32;
  KVR_CHECK(blocks <= 6 * hashes + kKnownMax);
  KVR_CHECK(out.events.size() == out.event_index.size());
}

// The same events of other blocks: of a long stream each frame brings blocks that are new.
std::string WithOtherBlocks(EventBatch& batch) {
  for (kvr::EngineHash& hash : batch.hashes)
    hash = kvr::EngineHash{kvr::Raw(hash) + 0x10'0001};
  for (EngineEvent& event : batch.events) {
    if (event.parent) event.parent = kvr::EngineHash{kvr::Raw(*event.parent) + 0x10'0001};
  }
  for (kvr::TokenId& token : batch.tokens)
    token += 0x101;
  std::string bytes;
  EncodeEventBatch(batch, *kvr::wire::DialectByName("maps"), bytes);
  return bytes;
}

void Translate(std::span<const std::byte> payload, bool lenient_media) {
  kvr::placement::EventTranslator translator(Options(lenient_media));
  kvr::placement::PlacementBatch out;
  for (int round = 0; round < 2; ++round) {  // the second meets what the first taught
    if (!translator.Translate(payload, out)) {
      KVR_CHECK(out.events.empty() && out.dropped.empty());
      return;
    }
    CheckPlaced(out, translator.decoded().hashes.size());
    CheckRemembered(translator);
  }
}

// A long stream, in little memory.
void TranslateMany(std::span<const std::byte> payload) {
  EventBatch batch;
  if (!DecodeEventBatch(payload, Limits(), batch)) return;
  auto options = Options(true);
  options.memory.counted_blocks_max = 3;
  options.memory.groups_max = 1;
  options.memory.held_names_max = 1;
  options.memory.chunk_blocks_max = 2;
  options.memory.chunks_max = 1;
  options.memory.digests_max = 1;
  kvr::placement::EventTranslator translator(options);
  kvr::placement::PlacementBatch out;
  constexpr int kRounds = 20;  // more than there is room for
  for (int round = 0; round < kRounds; ++round) {
    const std::string other = WithOtherBlocks(batch);
    if (!translator.Translate(std::as_bytes(std::span(other)), out)) return;
    CheckPlaced(out, translator.decoded().hashes.size());
    CheckRemembered(translator);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto payload = std::as_bytes(std::span(data, size));
  if (kvr::wire::LooksLikeJson(payload)) {
    DecodeJson(payload);
  } else {
    Decode(payload);
    TranslateMany(payload);
  }
  Translate(payload, false);
  Translate(payload, true);
  return 0;
}
