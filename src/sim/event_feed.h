// What one engine rank says about its cache on the wire, and the faults that can be asked of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_publisher.h"
#include "sim/kv_event.h"
#include "wire/event_batch.h"
#include "wire/event_encoder.h"

namespace kvr::sim {

// The words one engine release uses: encoding, media, and what it leaves unsaid.
struct FeedDialect {
  const wire::Dialect* encoding = nullptr;
  std::string_view device_medium;  // empty: the dialect has no media
  std::string_view host_medium;    // empty: it cannot speak of a host tier
  bool one_block_events = false;   // one Stored for each block, not for each run
  bool host_placeholders = false;  // host copies are announced by hash alone
  bool group = false;              // events name cache group 0 and its kind
  net::ReplayLayout layout = net::ReplayLayout::kSeqPayload;

  // Readers ask for the events over HTTP; there is no socket.
  [[nodiscard]] bool pulled() const { return encoding->form == wire::Dialect::Form::kJson; }
};

// Any of wire::Dialects(). kInvalidArgument lists them.
Result<FeedDialect> FeedDialectByName(std::string_view name);
// Their names, for people.
std::string FeedDialectNames();

// Publishes the events of one rank, one message for each call that has any.
//
// Used by one thread.
class EventFeed {
 public:
  struct Options {
    net::EventPublisher::Options publisher;
    FeedDialect dialect;
    std::uint32_t dp_rank = 0;
    std::uint32_t block_size = 64;
    std::uint32_t blocks = 0;           // of the pool, as a pulled dialect announces it
    std::size_t lists_max = 100'000;    // of a pulled dialect; then the oldest is lost
    std::size_t delayed_max = 100'000;  // messages held back by SetDelay; then the oldest goes out
  };

  // Binds. kIo names the endpoint and the reason.
  static Result<EventFeed> Create(const Options& options);

  // `now` is monotonic, for delays; `wall` is the time stamp that readers see.
  void Publish(std::span<const KvEvent> events, Nanos now, Nanos wall);

  // When the next message that is held back is due.
  [[nodiscard]] std::optional<Nanos> next_due() const;
  // Sends what is due.
  void SendDue(Nanos now);

  // Faults. The next `messages` messages get their numbers but never reach subscribers; without
  // `keep` the replay socket has forgotten them as well.
  void LoseNext(std::uint64_t messages, bool keep);
  void SetReplaySilent(bool silent);
  // Messages made from now on go out so much later, in order.
  void SetDelay(Nanos delay) { delay_ = delay; }
  // As when the engine's process was replaced: the stream starts again at 0 on the same endpoints,
  // without a past; delayed messages are gone. On kIo the feed is silent from then on.
  Result<void> Restart();

  [[nodiscard]] bool pulled() const { return options_.dialect.pulled(); }
  // Of a pulled dialect: the events since the last call, separated by commas; they are gone then.
  [[nodiscard]] std::string Drain();

  [[nodiscard]] const std::string& endpoint() const { return options_.publisher.endpoint; }
  // Empty without replay.
  [[nodiscard]] std::string replay_endpoint() const {
    return options_.publisher.replay_endpoint.value_or("");
  }
  [[nodiscard]] std::uint64_t published() const { return published_; }  // messages since the start

 private:
  struct Held {
    Nanos due;
    std::string payload;
  };

  explicit EventFeed(const Options& options) : options_(options) {}
  Result<void> Bind();
  void Fill(std::span<const KvEvent> events, Nanos wall);
  void AddStored(const KvEvent& event);
  void FollowNames(const KvEvent& event);
  void AddRemovals();
  void Send(std::string_view payload);

  Options options_;
  std::unique_ptr<net::EventPublisher> publisher_;
  wire::EventBatch batch_;
  std::string payload_;
  std::deque<Held> held_;
  Nanos delay_{};
  std::uint64_t lose_ = 0;
  bool keep_lost_ = true;
  std::uint64_t published_ = 0;
  std::uint64_t event_id_ = 0;
  // Of a pulled dialect.
  std::deque<std::string> lists_;
  std::set<EngineHash> held_names_;
};

}  // namespace kvr::sim
