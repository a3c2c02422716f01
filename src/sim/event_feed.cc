#include "sim/event_feed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "wire/event_encoder.h"

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

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
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

Result<EventFeed> EventFeed::Create(const Options& options) {
  EventFeed feed(options);
  KVR_TRY_VOID(feed.Bind());
  return feed;
}

Result<void> EventFeed::Bind() {
  if (options_.dialect.pulled()) {
    options_.publisher.endpoint.clear();
    options_.publisher.replay_endpoint.reset();
    lists_.clear();
    event_id_ = 0;
    const std::array<std::uint64_t, 2> blocks = {options_.blocks, 0};
    wire::EncodeTrtllmCreated(blocks, options_.dp_rank, *options_.dialect.encoding, event_id_,
                              lists_.emplace_back());
    held_names_.clear();
    return {};
  }
  KVR_TRY(publisher_, net::EventPublisher::Create(options_.publisher));
  // A restart comes back to where readers look for it.
  options_.publisher.endpoint = publisher_->endpoint();
  if (options_.publisher.replay_endpoint) {
    options_.publisher.replay_endpoint = publisher_->replay_endpoint();
  }
  return {};
}

void EventFeed::Publish(std::span<const KvEvent> events, Nanos now, Nanos wall) {
  if (events.empty()) return;
  Fill(events, wall);
  payload_.clear();
  wire::EncodeEventBatch(batch_, *options_.dialect.encoding, payload_, &event_id_);
  if (delay_ <= Nanos{0} && held_.empty()) return Send(payload_);
  // What was delayed before stays ahead also after the delay was taken away.
  const Nanos after_others = held_.empty() ? now : held_.back().due;
  held_.push_back({.due = std::max(now + delay_, after_others), .payload = payload_});
  if (held_.size() > options_.delayed_max) {
    Send(held_.front().payload);
    held_.pop_front();
  }
}

std::optional<Nanos> EventFeed::next_due() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().due;
}

void EventFeed::SendDue(Nanos now) {
  while (!held_.empty() && held_.front().due <= now) {
    Send(held_.front().payload);
    held_.pop_front();
  }
}

void EventFeed::LoseNext(std::uint64_t messages, bool keep) {
  lose_ = messages;
  keep_lost_ = keep;
}

void EventFeed::SetReplaySilent(bool silent) {
  if (publisher_) publisher_->SetReplaySilent(silent);
}

Result<void> EventFeed::Restart() {
  publisher_.reset();
  held_.clear();
  published_ = 0;
  return Bind();
}

std::string EventFeed::Drain() {
  std::string all;
  for (const std::string& list : std::exchange(lists_, {})) {
    const std::string_view events = std::string_view(list).substr(1, list.size() - 2);
    if (events.empty()) continue;
    if (!all.empty()) all += ',';
    all += events;
  }
  return all;
}

void EventFeed::Send(std::string_view payload) {
  if (options_.dialect.pulled()) {
    ++published_;
    if (lose_ > 0) {
      --lose_;
      return;
    }
    lists_.emplace_back(payload);
    if (lists_.size() > options_.lists_max) lists_.pop_front();
    return;
  }
  if (!publisher_) return;  // a restart that could not bind again
  ++published_;
  if (lose_ == 0) {
    publisher_->Publish(Bytes(payload));
    return;
  }
  --lose_;
  publisher_->Lose(Bytes(payload), keep_lost_);
}

void EventFeed::Fill(std::span<const KvEvent> events, Nanos wall) {
  batch_.Clear();
  batch_.ts = std::chrono::duration<double>(wall).count();
  batch_.dp_rank = options_.dp_rank;
  for (const KvEvent& event : events) {
    if (options_.dialect.pulled()) FollowNames(event);
    if (event.kind == PlacementKind::kStored) {
      AddStored(event);
    } else if (event.kind == PlacementKind::kRemoved) {
      batch_.AddRemoved(event.hashes).medium = event.tier == Tier::kDevice
                                                   ? options_.dialect.device_medium
                                                   : options_.dialect.host_medium;
    } else if (options_.dialect.pulled()) {
      AddRemovals();  // there is no other word for a clear
      continue;
    } else {
      batch_.AddCleared();
      continue;
    }
    if (options_.dialect.group) batch_.events.back().group = 0;
  }
}

void EventFeed::FollowNames(const KvEvent& event) {
  if (event.kind == PlacementKind::kStored) {
    held_names_.insert(event.hashes.begin(), event.hashes.end());
  } else if (event.kind == PlacementKind::kRemoved) {
    for (const EngineHash hash : event.hashes)
      held_names_.erase(hash);
  }
}

void EventFeed::AddRemovals() {
  const std::vector<EngineHash> names(held_names_.begin(), held_names_.end());
  held_names_.clear();
  if (!names.empty()) batch_.AddRemoved(names);
}

void EventFeed::AddStored(const KvEvent& event) {
  const FeedDialect& dialect = options_.dialect;
  const bool host = event.tier != Tier::kDevice;
  const bool placeholder = host && dialect.host_placeholders;
  const std::size_t block_size = options_.block_size;
  const std::size_t step = placeholder || dialect.one_block_events ? 1 : event.hashes.size();
  const std::span<const EngineHash> hashes(event.hashes);
  const std::span<const TokenId> tokens(event.tokens);
  for (std::size_t i = 0; i < hashes.size(); i += step) {
    wire::EngineEvent* stored = nullptr;
    if (placeholder) {
      stored = &batch_.AddStored(hashes.subspan(i, step), std::nullopt, {}, 0);
    } else {
      const auto parent = i == 0 ? event.parent : std::optional(hashes[i - 1]);
      stored =
          &batch_.AddStored(hashes.subspan(i, step), parent,
                            tokens.subspan(i * block_size, step * block_size), options_.block_size);
      if (dialect.group) {
        stored->kind = wire::GroupKind::kMain;
        stored->kind_name = "full_attention";
      }
    }
    stored->medium = host ? dialect.host_medium : dialect.device_medium;
    if (dialect.group) stored->group = 0;
  }
}

}  // namespace kvr::sim
