#include "sim/event_feed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace kvr::sim {
namespace {

struct Named {
  std::string_view name;
  FeedDialect dialect;  // but for `encoding`
};

constexpr std::array<Named, 4> kDialects = {{
    {"vllm-0.9", {}},
    {"vllm-0.14", {.device_medium = "GPU", .host_medium = "CPU", .host_placeholders = true}},
    {"vllm-0.24",
     {.device_medium = "GPU", .host_medium = "CPU", .host_placeholders = true, .group = true}},
    {"sglang", {.device_medium = "GPU", .host_medium = "CPU_PINNED", .one_block_events = true}},
}};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Result<FeedDialect> FeedDialectByName(std::string_view name) {
  for (const Named& known : kDialects) {
    if (known.name != name) continue;
    FeedDialect dialect = known.dialect;
    dialect.encoding = wire::DialectByName(name);
    KVR_CHECK(dialect.encoding != nullptr);
    return dialect;
  }
  std::array<std::string_view, kDialects.size()> names;
  std::transform(kDialects.begin(), kDialects.end(), names.begin(),
                 [](const Named& known) { return known.name; });
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no event dialect `{}`; there are {}", name, fmt::join(names, ", ")));
}

Result<EventFeed> EventFeed::Create(const Options& options) {
  EventFeed feed(options);
  KVR_TRY_VOID(feed.Bind());
  return feed;
}

Result<void> EventFeed::Bind() {
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
  wire::EncodeEventBatch(batch_, *options_.dialect.encoding, payload_);
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

void EventFeed::Send(std::string_view payload) {
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
    if (event.kind == PlacementKind::kStored) {
      AddStored(event);
    } else if (event.kind == PlacementKind::kRemoved) {
      batch_.AddRemoved(event.hashes).medium = event.tier == Tier::kDevice
                                                   ? options_.dialect.device_medium
                                                   : options_.dialect.host_medium;
    } else {
      batch_.AddCleared();
      continue;
    }
    if (options_.dialect.group) batch_.events.back().group = 0;
  }
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
