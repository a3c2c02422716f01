// TensorRT-LLM's event lists. Byte 0 chooses the block size, 0 for whatever the first block has;
// the rest is the payload. Limits hold, every event is whole, a decoder that was reset is as new,
// and what was decoded, written and read again, is the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "wire/event_decoder.h"
#include "wire/event_encoder.h"
#include "wire/trtllm_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::wire::EngineEvent;
using kvr::wire::EventBatch;
using kvr::wire::EventType;
using kvr::wire::ExtraKey;
using kvr::wire::GroupKind;

// Small, so that inputs reach them.
kvr::wire::DecodeLimits Limits() {
  kvr::wire::DecodeLimits limits;
  limits.events_max = 64;
  limits.blocks_max = 64;
  limits.tokens_max = 256;
  limits.extra_keys_max = 32;
  return limits;
}

void CheckStored(const EventBatch& batch, const EngineEvent& event) {
  const std::size_t blocks = event.hashes.count;
  const std::size_t tokens = event.tokens.count;
  if (event.block_size == 0) {
    KVR_CHECK(tokens == 0);  // by name only, or of blocks without tokens
    return;
  }
  // Full blocks; or one partial block, which is all the event has.
  KVR_CHECK(tokens == blocks * event.block_size || (blocks == 1 && tokens < event.block_size));
  KVR_CHECK(event.extra_blocks.count == blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    for (const ExtraKey& key : batch.ExtraKeysOf(event, i)) {
      KVR_CHECK(key.kind != ExtraKey::Kind::kText);
      const bool token = key.kind == ExtraKey::Kind::kBytes;
      KVR_CHECK(!token || (key.offset >= 0 && key.offset < std::int64_t{event.block_size}));
    }
  }
}

void CheckEvent(const EventBatch& batch, const EngineEvent& event) {
  KVR_CHECK(event.index < Limits().events_max);
  if (event.type == EventType::kIgnored) {
    KVR_CHECK(event.hashes.count == 0 && event.tokens.count == 0);
    return;
  }
  const bool removed = event.type == EventType::kRemoved;
  KVR_CHECK(event.sole == !removed || event.hashes.count == 0);
  KVR_CHECK(removed || !event.every_tier);
  KVR_CHECK(event.every_tier
                ? event.medium.empty()
                : event.medium == "GPU" || event.medium == "CPU" || event.medium == "DISK");
  if (event.type == EventType::kStored) return CheckStored(batch, event);
  KVR_CHECK(event.type == EventType::kRemoved);  // there is no event that clears
  KVR_CHECK(event.tokens.count == 0 && !event.parent);
}

void CheckBatch(const EventBatch& batch, std::span<const std::byte> payload) {
  const auto limits = Limits();
  for (const kvr::wire::BadEvent& bad : batch.bad)
    KVR_CHECK(bad.begin < payload.size() && bad.error.offset == bad.begin);
  KVR_CHECK(std::is_sorted(batch.bad.begin(), batch.bad.end(),
                           [](const auto& a, const auto& b) { return a.begin < b.begin; }));
  KVR_CHECK(batch.hashes.size() <= limits.blocks_max);
  KVR_CHECK(batch.tokens.size() <= limits.tokens_max);
  KVR_CHECK(batch.extra_keys.size() <= limits.extra_keys_max);
  KVR_CHECK(batch.digests.size() <= limits.blocks_max + 8 * limits.events_max);
  KVR_CHECK(batch.bad.size() <= limits.events_max);
  for (const EngineEvent& event : batch.events) {
    CheckEvent(batch, event);
    // An item is good or bad as a whole.
    KVR_CHECK(std::none_of(batch.bad.begin(), batch.bad.end(),
                           [&](const auto& bad) { return bad.index == event.index; }));
  }
  KVR_CHECK(std::is_sorted(batch.events.begin(), batch.events.end(),
                           [](const auto& a, const auto& b) { return a.index < b.index; }));
}

// Whether the encoder has words for all that the batch is of: the main window, blocks of the
// registered size, no parent of the name that means the root, and no second number of a token.
bool CanBeWritten(const EventBatch& batch, std::uint32_t block_size) {
  const auto event_can = [&](const EngineEvent& event) {
    if (event.type == EventType::kIgnored || event.kind != GroupKind::kAbsent) return false;
    if (event.type == EventType::kRemoved) return true;
    const std::size_t tokens = event.tokens.count;
    return event.hashes.count > 0 && event.parent != kvr::EngineHash{0} &&
           (event.block_size == 0 ||
            (event.block_size == block_size && tokens == event.hashes.count * block_size));
  };
  return block_size > 0 && batch.bad.empty() && !batch.events.empty() &&
         std::all_of(batch.events.begin(), batch.events.end(), event_can) &&
         std::none_of(batch.extra_keys.begin(), batch.extra_keys.end(),
                      [](const ExtraKey& key) { return key.kind == ExtraKey::Kind::kOther; });
}

void CheckSameKeys(const EventBatch& a, const EngineEvent& x, const EventBatch& b,
                   const EngineEvent& y) {
  KVR_CHECK(x.extra_blocks.count == y.extra_blocks.count);
  for (std::size_t i = 0; i < x.extra_blocks.count; ++i) {
    KVR_CHECK(std::ranges::equal(
        a.ExtraKeysOf(x, i), b.ExtraKeysOf(y, i), [](const ExtraKey& p, const ExtraKey& q) {
          return p.kind == q.kind && p.text == q.text && p.offset == q.offset;
        }));
  }
}

void CheckRoundTrip(const EventBatch& batch, std::uint32_t block_size) {
  if (!CanBeWritten(batch, block_size)) return;
  std::string text;
  EncodeEventBatch(batch, *kvr::wire::DialectByName("trtllm-json"), text);
  kvr::wire::TrtllmJsonDecoder decoder;
  EventBatch again;
  KVR_CHECK(decoder.Decode(std::as_bytes(std::span(text)), Limits(), block_size, again));
  KVR_CHECK(again.bad.empty() && again.dp_rank == batch.dp_rank);
  KVR_CHECK(again.events.size() == batch.events.size());
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    const EngineEvent& x = batch.events[i];
    const EngineEvent& y = again.events[i];
    KVR_CHECK(x.type == y.type && x.medium == y.medium && x.every_tier == y.every_tier);
    KVR_CHECK(x.parent == y.parent && x.block_size == y.block_size && x.kind == y.kind);
    KVR_CHECK(x.lora_name == y.lora_name && x.cache_salt == y.cache_salt);
    KVR_CHECK(std::ranges::equal(batch.HashesOf(x), again.HashesOf(y)));
    KVR_CHECK(std::ranges::equal(batch.TokensOf(x), again.TokensOf(y)));
    CheckSameKeys(batch, x, again, y);
  }
}

void CheckSame(const EventBatch& a, const EventBatch& b) {
  KVR_CHECK(a.dp_rank == b.dp_rank && a.hashes == b.hashes && a.tokens == b.tokens);
  KVR_CHECK(a.bad.size() == b.bad.size());
  KVR_CHECK(std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(),
                       [](const EngineEvent& x, const EngineEvent& y) {
                         return x.type == y.type && x.index == y.index && x.medium == y.medium &&
                                x.parent == y.parent && x.kind == y.kind && x.window == y.window &&
                                x.block_size == y.block_size && x.hashes.count == y.hashes.count;
                       }));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint32_t block_size = data[0] % 8;
  const auto payload = std::as_bytes(std::span(data + 1, size - 1));
  constexpr std::size_t kPartialBlocksMax = 4;
  kvr::wire::TrtllmJsonDecoder decoder(kPartialBlocksMax);
  EventBatch batch;
  if (!decoder.Decode(payload, Limits(), block_size, batch)) {
    KVR_CHECK(batch.events.empty() && batch.bad.empty() && batch.tokens.empty());
    return 0;
  }
  CheckBatch(batch, payload);
  CheckRoundTrip(batch, block_size);
  EventBatch again;
  KVR_CHECK(decoder.Decode(payload, Limits(), block_size, again).has_value());
  CheckBatch(again, payload);  // with what the first taught
  decoder.Reset();
  KVR_CHECK(decoder.Decode(payload, Limits(), block_size, again).has_value());
  CheckBatch(again, payload);  // with the main window that stays after a reset
  kvr::wire::TrtllmJsonDecoder fresh(kPartialBlocksMax);
  KVR_CHECK(fresh.Decode(payload, Limits(), block_size, again).has_value());
  CheckSame(batch, again);
  return 0;
}
