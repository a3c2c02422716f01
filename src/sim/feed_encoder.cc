// What a release, or a connector beside it, does beside its encoding.
#include "sim/feed_encoder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kvr::sim {
namespace {

using wire::EventField;

bool Says(const wire::Dialect& dialect, EventField field) {
  return std::ranges::find(dialect.stored.fields, field) != dialect.stored.fields.end();
}

// The connectors that keep copies beside an engine's own.
struct Connector {
  std::string_view dialect;
  std::string_view medium;
  bool placeholders;
};
constexpr std::array<Connector, 4> kConnectors = {{{"vllm-offload", "CPU", true},
                                                   {"vllm-lmcache", "cpu", false},
                                                   {"vllm-mooncake-store", "cpu", false},
                                                   {"vllm-llm-d-fs", "SHARED_STORAGE", true}}};

// What a release does beside its encoding.
FeedDialect DialectOf(const wire::Dialect& encoding) {
  using Form = wire::Dialect::Form;
  const std::string_view name = encoding.name;
  const bool vllm = name.starts_with("vllm-");
  const bool sglang = name.starts_with("sglang-");
  FeedDialect dialect;
  dialect.encoding = &encoding;
  if (Says(encoding, EventField::kMedium) || encoding.form == Form::kPool) {
    dialect.device_medium = "GPU";
    // TensorRT-LLM's own publisher speaks of the device only.
    if (name != "trtllm-zmq") dialect.host_medium = sglang ? "CPU_PINNED" : "CPU";
  }
  dialect.one_block_events = sglang && encoding.form == Form::kArrays;
  dialect.host_placeholders = vllm;
  for (const Connector& connector : kConnectors) {
    if (connector.dialect != name) continue;
    dialect.host_medium = connector.medium;
    dialect.host_placeholders = connector.placeholders;
  }
  dialect.group = Says(encoding, EventField::kGroup);
  static constexpr std::array<std::string_view, 4> kWithTopic = {"vllm-0.26", "vllm-0.29",
                                                                 "vllm-main", "vllm-map-batch"};
  if (std::ranges::find(kWithTopic, name) != kWithTopic.end()) {
    dialect.layout = net::ReplayLayout::kTopicSeqPayload;
  }
  return dialect;
}

}  // namespace

Result<FeedDialect> FeedDialectByName(std::string_view name) {
  if (const wire::Dialect* encoding = wire::DialectByName(name)) return DialectOf(*encoding);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no event dialect `{}`; there are {}", name, FeedDialectNames()));
}

std::string FeedDialectNames() {
  std::vector<std::string_view> names;
  for (const wire::Dialect& dialect : wire::Dialects())
    names.push_back(dialect.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string_view FeedEncoder::Encode(std::span<const KvEvent> events, Nanos wall) {
  batch_.Clear();
  batch_.ts = std::chrono::duration<double>(wall).count();
  batch_.dp_rank = dp_rank_;
  Fill(events);
  payload_.clear();
  wire::EncodeEventBatch(batch_, *dialect_.encoding, payload_, &event_id_);
  return payload_;
}

std::string_view FeedEncoder::Begin(std::uint32_t blocks) {
  event_id_ = 0;
  held_names_.clear();
  payload_.clear();
  const std::array<std::uint64_t, 2> levels = {blocks, 0};
  wire::EncodeTrtllmCreated(levels, dp_rank_, *dialect_.encoding, event_id_, payload_);
  return payload_;
}

void FeedEncoder::Fill(std::span<const KvEvent> events) {
  for (const KvEvent& event : events) {
    if (dialect_.pulled()) FollowNames(event);
    if (event.kind == PlacementKind::kStored) {
      AddStored(event);
    } else if (event.kind == PlacementKind::kRemoved) {
      batch_.AddRemoved(event.hashes).medium =
          event.tier == Tier::kDevice ? dialect_.device_medium : dialect_.host_medium;
    } else if (dialect_.pulled()) {
      AddRemovals();  // there is no other word for a clear
      continue;
    } else {
      batch_.AddCleared();
      continue;
    }
    if (dialect_.group) batch_.events.back().group = 0;
  }
}

void FeedEncoder::FollowNames(const KvEvent& event) {
  if (event.kind == PlacementKind::kStored) {
    held_names_.insert(event.hashes.begin(), event.hashes.end());
  } else if (event.kind == PlacementKind::kRemoved) {
    for (const EngineHash hash : event.hashes)
      held_names_.erase(hash);
  }
}

void FeedEncoder::AddRemovals() {
  const std::vector<EngineHash> names(held_names_.begin(), held_names_.end());
  held_names_.clear();
  if (!names.empty()) batch_.AddRemoved(names);
}

void FeedEncoder::AddStored(const KvEvent& event) {
  const bool host = event.tier != Tier::kDevice;
  const bool placeholder = host && dialect_.host_placeholders;
  const std::size_t block_size = block_size_;
  const std::size_t step = placeholder || dialect_.one_block_events ? 1 : event.hashes.size();
  const std::span<const EngineHash> hashes(event.hashes);
  const std::span<const TokenId> tokens(event.tokens);
  for (std::size_t i = 0; i < hashes.size(); i += step) {
    wire::EngineEvent* stored = nullptr;
    if (placeholder) {
      stored = &batch_.AddStored(hashes.subspan(i, step), std::nullopt, {}, 0);
    } else {
      const auto parent = i == 0 ? event.parent : std::optional(hashes[i - 1]);
      stored = &batch_.AddStored(hashes.subspan(i, step), parent,
                                 tokens.subspan(i * block_size, step * block_size), block_size_);
      if (dialect_.group) {
        stored->kind = wire::GroupKind::kMain;
        stored->kind_name = "full_attention";
      }
    }
    stored->medium = host ? dialect_.host_medium : dialect_.device_medium;
    if (dialect_.group) stored->group = 0;
  }
}

}  // namespace kvr::sim
