#include "wire/msgpack_writer.h"
#include "wire/placement_event.h"
#include "wire/router_event.h"

namespace kvr::wire {
namespace {

void WriteMm(const RouterBatch& batch, const RouterBlock& block, MsgpackWriter& out) {
  if (!block.has_mm) return out.Nil();
  out.Map(1);
  out.Text("mm_objects");
  out.Array(block.mm_objects.count);
  for (std::size_t i = 0; i < block.mm_objects.count; ++i) {
    const RouterMmObject& object = batch.mm_objects[block.mm_objects.begin + i];
    out.Map(2);
    out.Text("mm_hash");
    out.Uint(object.hash);
    out.Text("offsets");
    out.Array(object.offsets.count);
    for (std::size_t k = 0; k < object.offsets.count; ++k) {
      const auto& range = batch.mm_offsets[object.offsets.begin + k];
      out.Array(2);
      out.Uint(range[0]);
      out.Uint(range[1]);
    }
  }
}

void WriteStored(const RouterBatch& batch, const RouterEvent& event, MsgpackWriter& out) {
  out.Map(1);
  out.Text("stored");
  out.Map(3);
  out.Text("parent_hash");
  if (event.parent) {
    out.Uint(Raw(*event.parent));
  } else {
    out.Nil();
  }
  out.Text("start_position");
  if (event.start_position) {
    out.Uint(*event.start_position);
  } else {
    out.Nil();
  }
  out.Text("blocks");
  out.Array(event.blocks.count);
  for (std::size_t i = 0; i < event.blocks.count; ++i) {
    const RouterBlock& block = batch.blocks[event.blocks.begin + i];
    out.Map(3);
    out.Text("block_hash");
    out.Uint(Raw(block.engine));
    out.Text("tokens_hash");
    out.Uint(Raw(block.local));
    out.Text("mm_extra_info");
    WriteMm(batch, block, out);
  }
}

void WriteRemoved(const RouterBatch& batch, const RouterEvent& event, MsgpackWriter& out) {
  out.Map(1);
  out.Text("removed");
  out.Map(1);
  out.Text("block_hashes");
  out.Array(event.removed.count);
  for (std::size_t i = 0; i < event.removed.count; ++i)
    out.Uint(Raw(batch.removed[event.removed.begin + i]));
}

void WriteDomain(const RouterEvent& event, MsgpackWriter& out) {
  if (event.domain == ResidencyDomain::kInvalid) return out.Nil();
  if (event.domain == ResidencyDomain::kUnknown) return out.Text(event.domain_name);
  out.Text(event.domain == ResidencyDomain::kWorker ? "worker" : "cache_owner");
}

}  // namespace

void EncodeKvCacheEvent(const RouterBatch& batch, const RouterEvent& event, std::string& bytes) {
  MsgpackWriter out(bytes);
  out.Map(3);
  out.Text("event_id");
  out.Uint(event.event_id);
  out.Text("data");
  if (event.type == EventType::kStored) {
    WriteStored(batch, event, out);
  } else if (event.type == EventType::kRemoved) {
    WriteRemoved(batch, event, out);
  } else {
    out.Text("cleared");
  }
  out.Text("dp_rank");
  out.Uint(event.dp_rank);
}

void EncodeRouterEvent(const RouterBatch& batch, const RouterEvent& event, std::string& bytes) {
  MsgpackWriter out(bytes);
  const bool domain = event.domain != ResidencyDomain::kMissing;
  out.Map(3 + std::size_t{domain} + std::size_t{!event.state_source.empty()} +
          std::size_t{!event.session_id.empty()} + std::size_t{event.eligible});
  out.Text("worker_id");
  out.Uint(event.worker_id);
  out.Text("storage_tier");
  out.Text(TierName(event.tier));
  if (domain) {
    out.Text("residency_domain");
    WriteDomain(event, out);
  }
  out.Text("event");
  EncodeKvCacheEvent(batch, event, bytes);
  if (!event.state_source.empty()) {
    out.Text("state_source");
    out.Raw(event.state_source);
  }
  if (!event.session_id.empty()) {
    out.Text("session_id");
    out.Text(event.session_id);
  }
  if (event.eligible) {
    out.Text("sce");
    out.Bool(true);
  }
}

void EncodeRouterEvents(const RouterBatch& batch, std::string& out) {
  MsgpackWriter(out).Array(batch.events.size());
  for (const RouterEvent& event : batch.events)
    EncodeRouterEvent(batch, event, out);
}

void EncodeRouterEnvelope(const RouterEnvelope& envelope, std::string& bytes) {
  MsgpackWriter out(bytes);
  out.Map(5);
  out.Text("publisher_id");
  out.Uint(envelope.publisher_id);
  out.Text("sequence");
  out.Uint(envelope.sequence);
  out.Text("published_at");
  out.Uint(envelope.published_at);
  out.Text("topic");
  out.Text(envelope.topic);
  out.Text("payload");
  out.Bin(envelope.payload);
}

void FrameRouterEvents(std::string_view envelope, std::string& out) {
  out.push_back('\x01');
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(envelope.size() >> shift));
  out.append(envelope);
}

}  // namespace kvr::wire
