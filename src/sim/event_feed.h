// What one engine rank says about its cache on the wire, and the faults that can be asked of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_publisher.h"
#include "sim/feed_encoder.h"
#include "sim/kv_event.h"

namespace kvr::sim {

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
  // They go out twice, or behind the message after them; the replay socket has them in order.
  void RepeatNext(std::uint64_t messages) { repeat_ = messages; }
  void SwapNext(std::uint64_t messages) { swap_ = messages; }
  // At once: messages of the stream that speak of a rank which is none of the engine's, and things
  // on the live socket that are no messages. Nothing where the dialect names no ranks.
  void SendForeign(std::uint64_t messages, Nanos wall);
  void SendGarbage(std::uint64_t messages);
  // What is published waits, 100,000 messages at most, for which the engine then waits.
  void SetHeld(bool held);
  void SetReplaySilent(bool silent);
  // The next so many answers of the replay socket break off after so many messages.
  void CutReplays(std::uint64_t answers, std::uint64_t after);
  // Messages made from now on go out so much later, in order.
  void SetDelay(Nanos delay) { delay_ = delay; }
  // As when the engine's process was replaced: the stream starts again at 0, or where it was, on
  // the same endpoints, without a past; delayed messages are gone. On kIo the feed is silent from
  // then on.
  Result<void> Restart(bool keep_numbers);

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

  explicit EventFeed(const Options& options)
      : options_(options), encoder_(options.dialect, options.dp_rank, options.block_size) {}
  Result<void> Bind();
  void Send(std::string_view payload);
  void SendToSubscribers(std::uint64_t sequence, std::string_view payload);

  // A message that has its number and waits for the next one to overtake it.
  struct Overtaken {
    std::uint64_t sequence;
    std::string payload;
  };

  Options options_;
  std::unique_ptr<net::EventPublisher> publisher_;
  FeedEncoder encoder_;
  std::deque<Held> held_;
  Nanos delay_{};
  std::uint64_t lose_ = 0;
  bool keep_lost_ = true;
  std::uint64_t repeat_ = 0;
  std::uint64_t swap_ = 0;
  std::optional<Overtaken> overtaken_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t published_ = 0;
  std::deque<std::string> lists_;  // of a pulled dialect
};

}  // namespace kvr::sim
