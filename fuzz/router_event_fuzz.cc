// RouterEvents in MessagePack and JSON: decoding keeps its limits, what is encoded is decoded to
// the same, with structs as maps or as arrays, and a translator takes whatever comes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/json_writer.h"
#include "model/tier.h"
#include "placement/event_translator.h"
#include "wire/json_to_msgpack.h"
#include "wire/msgpack_writer.h"
#include "wire/placement_event.h"
#include "wire/residency.h"
#include "wire/router_event.h"
#include "wire/router_event_json.h"
#include "wire/trtllm_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::wire::RouterBatch;
using kvr::wire::RouterBlock;
using kvr::wire::RouterEvent;

// Small, so that inputs reach them.
kvr::wire::DecodeLimits Limits() {
  kvr::wire::DecodeLimits limits;
  limits.events_max = 64;
  limits.blocks_max = 256;
  limits.extra_keys_max = 64;
  limits.depth_max = 8;
  return limits;
}

void CheckSameObjects(const RouterBatch& a, const RouterBlock& x, const RouterBatch& b,
                      const RouterBlock& y) {
  KVR_CHECK(x == y);
  for (std::uint32_t i = 0; i < x.mm_objects.count; ++i) {
    const auto& left = a.mm_objects[x.mm_objects.begin + i];
    const auto& right = b.mm_objects[y.mm_objects.begin + i];
    KVR_CHECK(left.hash == right.hash && left.offsets.count == right.offsets.count);
    for (std::uint32_t k = 0; k < left.offsets.count; ++k)
      KVR_CHECK(a.mm_offsets[left.offsets.begin + k] == b.mm_offsets[right.offsets.begin + k]);
  }
}

void CheckSame(const RouterBatch& a, const RouterEvent& x, const RouterBatch& b,
               const RouterEvent& y) {
  KVR_CHECK(x.type == y.type && x.worker_id == y.worker_id && x.dp_rank == y.dp_rank);
  KVR_CHECK(x.event_id == y.event_id && x.tier == y.tier && x.domain == y.domain);
  KVR_CHECK(x.domain_name == y.domain_name);
  KVR_CHECK(x.session_id == y.session_id && x.eligible == y.eligible);
  KVR_CHECK(x.parent == y.parent && x.start_position == y.start_position);
  KVR_CHECK(x.blocks.count == y.blocks.count && x.removed.count == y.removed.count);
  for (std::uint32_t i = 0; i < x.blocks.count; ++i)
    CheckSameObjects(a, a.blocks[x.blocks.begin + i], b, b.blocks[y.blocks.begin + i]);
  for (std::uint32_t i = 0; i < x.removed.count; ++i)
    KVR_CHECK(a.removed[x.removed.begin + i] == b.removed[y.removed.begin + i]);
}

// Written as JSON and read back, an event is the same. What `state_source` holds nobody but its
// writer knows, and JSON has no words for some of it.
void CheckJson(const RouterBatch& batch, const RouterEvent& event,
               const kvr::wire::DecodeLimits& limits) {
  std::string text;
  kvr::JsonWriter json(text);
  kvr::wire::WriteRouterEvent(batch, event, json);
  std::string packed;
  kvr::wire::JsonToMsgpack converter;
  KVR_CHECK(converter.Convert(std::as_bytes(std::span(text)), limits, packed).has_value());
  RouterBatch again;
  KVR_CHECK(
      kvr::wire::DecodeRouterEvents(std::as_bytes(std::span(packed)), limits, again).has_value());
  KVR_CHECK(again.bad.empty() && again.events.size() == 1);
  CheckSame(batch, event, again, again.events.front());
}

// The encoders write structs as maps; here they are arrays, all of them.
void WriteArrays(const RouterBatch& batch, const RouterBlock& block,
                 kvr::wire::MsgpackWriter& out) {
  out.Array(3);
  out.Uint(Raw(block.engine));
  out.Uint(Raw(block.local));
  if (!block.has_mm) return out.Nil();
  out.Array(1);
  out.Array(block.mm_objects.count);
  for (std::uint32_t i = 0; i < block.mm_objects.count; ++i) {
    const auto& object = batch.mm_objects[block.mm_objects.begin + i];
    out.Array(2);
    out.Uint(object.hash);
    out.Array(object.offsets.count);
    for (std::uint32_t k = 0; k < object.offsets.count; ++k) {
      out.Array(2);
      for (const auto place : batch.mm_offsets[object.offsets.begin + k])
        out.Uint(place);
    }
  }
}

void WriteData(const RouterBatch& batch, const RouterEvent& event, kvr::wire::MsgpackWriter& out) {
  if (event.type == kvr::wire::EventType::kCleared) return out.Text("cleared");
  out.Map(1);
  if (event.type == kvr::wire::EventType::kRemoved) {
    out.Text("removed");
    out.Array(1);
    out.Array(event.removed.count);
    for (std::uint32_t i = 0; i < event.removed.count; ++i)
      out.Uint(Raw(batch.removed[event.removed.begin + i]));
    return;
  }
  out.Text("stored");
  out.Array(event.start_position ? 3 : 2);  // where there is none it may be left out
  if (event.parent) {
    out.Uint(Raw(*event.parent));
  } else {
    out.Nil();
  }
  if (event.start_position) out.Uint(*event.start_position);
  out.Array(event.blocks.count);
  for (std::uint32_t i = 0; i < event.blocks.count; ++i)
    WriteArrays(batch, batch.blocks[event.blocks.begin + i], out);
}

// As arrays an event is the same. A domain cannot be missing from one.
void CheckArrays(const RouterBatch& batch, const RouterEvent& event,
                 const kvr::wire::DecodeLimits& limits) {
  using kvr::wire::ResidencyDomain;
  if (event.domain == ResidencyDomain::kMissing) return;
  std::string bytes;
  kvr::wire::MsgpackWriter out(bytes);
  out.Array(1);
  out.Array(7);
  out.Uint(event.worker_id);
  out.Text(kvr::TierName(event.tier));
  if (event.domain == ResidencyDomain::kInvalid) {
    out.Nil();
  } else if (event.domain == ResidencyDomain::kUnknown) {
    out.Text(event.domain_name);
  } else {
    out.Text(event.domain == ResidencyDomain::kWorker ? "worker" : "cache_owner");
  }
  out.Array(3);
  out.Uint(event.event_id);
  WriteData(batch, event, out);
  out.Uint(event.dp_rank);
  if (event.state_source.empty()) {
    out.Nil();
  } else {
    out.Raw(event.state_source);
  }
  out.Text(event.session_id);
  out.Bool(event.eligible);
  RouterBatch again;
  KVR_CHECK(
      kvr::wire::DecodeRouterEvents(std::as_bytes(std::span(bytes)), limits, again).has_value());
  KVR_CHECK(again.bad.empty() && again.events.size() == 1);
  KVR_CHECK(again.events.front().state_source == event.state_source);
  CheckSame(batch, event, again, again.events.front());
}

void Decode(std::span<const std::byte> payload) {
  const auto limits = Limits();
  RouterBatch batch;
  if (!kvr::wire::DecodeRouterEvents(payload, limits, batch)) {
    KVR_CHECK(batch.events.empty() && batch.bad.empty() && batch.blocks.empty());
    return;
  }
  KVR_CHECK(batch.events.size() + batch.bad.size() <= limits.events_max);
  KVR_CHECK(batch.blocks.size() <= limits.blocks_max);
  KVR_CHECK(batch.removed.size() <= limits.blocks_max);
  KVR_CHECK(batch.mm_objects.size() <= limits.extra_keys_max);
  KVR_CHECK(batch.mm_offsets.size() <= limits.extra_keys_max);
  if (batch.events.empty()) return;
  std::string bytes;
  kvr::wire::EncodeRouterEvents(batch, bytes);
  RouterBatch again;
  KVR_CHECK(
      kvr::wire::DecodeRouterEvents(std::as_bytes(std::span(bytes)), limits, again).has_value());
  KVR_CHECK(again.bad.empty());
  KVR_CHECK(again.events.size() == batch.events.size());
  for (std::size_t i = 0; i < batch.events.size(); ++i) {
    KVR_CHECK(again.events[i].index == i && batch.events[i].index >= i);
    KVR_CHECK(again.events[i].state_source == batch.events[i].state_source);
    CheckSame(batch, batch.events[i], again, again.events[i]);
    CheckJson(batch, batch.events[i], limits);
    CheckArrays(batch, batch.events[i], limits);
  }
}

// A placement that becomes a RouterEvent is one, good or bad, to the decoder.
void Place(std::span<const std::byte> payload) {
  std::string bytes;
  const auto owner = kvr::wire::RouterEventFromPlacement(payload, Limits(), bytes);
  const bool local = owner && *owner == kvr::wire::PlacementOwner::kLocalWorker;
  KVR_CHECK(local || bytes.empty());
  if (local) Decode(std::as_bytes(std::span(bytes)));
}

void Translate(std::span<const std::byte> payload) {
  kvr::placement::TranslatorOptions options;
  options.limits = Limits();
  options.any_worker = true;
  kvr::placement::EventTranslator translator(options);
  kvr::placement::PlacementBatch out;
  if (!translator.Translate(payload, out)) {
    KVR_CHECK(out.events.empty() && out.dropped.empty());
    return;
  }
  KVR_CHECK(out.events.size() == out.event_index.size());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto payload = std::as_bytes(std::span(data, size));
  static_cast<void>(kvr::wire::UnframeRouterEvents(payload));
  static_cast<void>(kvr::wire::ReadEnvelopeIds(payload));
  static_cast<void>(kvr::wire::DecodeResetScope(payload));
  Place(payload);
  if (kvr::wire::LooksLikeJson(payload)) {
    std::string packed;
    kvr::wire::JsonToMsgpack json;
    if (json.Convert(payload, Limits(), packed)) Decode(std::as_bytes(std::span(packed)));
  } else {
    Decode(payload);
  }
  Translate(payload);
  return 0;
}
