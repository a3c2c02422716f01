#include "sim/event_feed.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/big_endian.h"
#include "wire/event_encoder.h"

namespace kvr::sim {
namespace {

// No engine has so many ranks.
constexpr std::uint32_t kForeignRank = 1'000'000;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Result<EventFeed> EventFeed::Create(const Options& options) {
  EventFeed feed(options);
  KVR_TRY_VOID(feed.Bind());
  return feed;
}

Result<void> EventFeed::Bind() {
  if (options_.dialect.pulled()) {
    options_.publisher.endpoint.clear();
    options_.publisher.replay_endpoint.reset();
    lists_ = {std::string(encoder_.Begin(options_.blocks))};
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
  const std::string_view payload = encoder_.Encode(events, wall);
  if (delay_ <= Nanos{0} && held_.empty()) return Send(payload);
  // What was delayed before stays ahead also after the delay was taken away.
  const Nanos after_others = held_.empty() ? now : held_.back().due;
  held_.push_back({.due = std::max(now + delay_, after_others), .payload = std::string(payload)});
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

void EventFeed::SetHeld(bool held) {
  if (publisher_) publisher_->SetHeld(held);
}

void EventFeed::CutReplays(std::uint64_t answers, std::uint64_t after) {
  if (publisher_) publisher_->CutReplays(answers, after);
}

void EventFeed::SendForeign(std::uint64_t messages, Nanos wall) {
  if (!publisher_ || options_.dialect.encoding->rank == wire::Dialect::RankPlace::kNone) return;
  FeedEncoder encoder(options_.dialect, kForeignRank, options_.block_size);
  KvEvent event;
  event.tokens.assign(options_.block_size, TokenId{1});
  for (std::uint64_t i = 1; i <= messages; ++i) {
    event.hashes = {EngineHash{i}};
    Send(encoder.Encode(std::span(&event, 1), wall));
  }
}

void EventFeed::SendGarbage(std::uint64_t messages) {
  if (!publisher_) return;
  const std::array frames{Bytes(options_.publisher.topic), Bytes("garbage")};
  for (std::uint64_t i = 0; i < messages; ++i)
    publisher_->SendRaw(frames);
}

Result<void> EventFeed::Restart(bool keep_numbers) {
  publisher_.reset();
  held_.clear();
  overtaken_.reset();
  if (!keep_numbers) next_sequence_ = 0;
  options_.publisher.first_sequence = next_sequence_;
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
  const std::uint64_t sequence = next_sequence_++;
  if (lose_ > 0) {
    --lose_;
    publisher_->Lose(Bytes(payload), keep_lost_);
    return;
  }
  if (swap_ > 0 && !overtaken_) {
    --swap_;
    publisher_->Lose(Bytes(payload), true);
    overtaken_ = {sequence, std::string(payload)};
    return;
  }
  publisher_->Publish(Bytes(payload));
  if (repeat_ > 0) {
    --repeat_;
    SendToSubscribers(sequence, payload);
  }
  if (overtaken_) SendToSubscribers(overtaken_->sequence, overtaken_->payload);
  overtaken_.reset();
}

void EventFeed::SendToSubscribers(std::uint64_t sequence, std::string_view payload) {
  const auto number = BigEndian(sequence);
  const std::array<std::span<const std::byte>, 3> frames{Bytes(options_.publisher.topic), number,
                                                         Bytes(payload)};
  publisher_->SendRaw(frames);
}

}  // namespace kvr::sim
