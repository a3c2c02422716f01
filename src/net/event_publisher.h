// The sending side of the event wire: a PUB socket with a numbered stream, and the ROUTER that
// replays its last messages. Used by agents, by the mock engine and by tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace kvr::net {

// How replies of the replay socket are laid out.
enum class ReplayLayout : std::uint8_t {
  kSeqPayload,       // ["", seq, payload]: vLLM up to 0.25, SGLang
  kTopicSeqPayload,  // ["", topic, seq, payload]: vLLM since 0.26
};

// Thread-safe. Sockets live on a thread of the publisher's own.
class EventPublisher {
 public:
  struct Options {
    std::string endpoint = "tcp://127.0.0.1:*";
    std::optional<std::string> replay_endpoint = "tcp://127.0.0.1:*";
    std::string topic{};
    std::size_t replay_messages_max = 10'000;
    std::size_t replay_bytes_max = std::size_t{1} << 30;  // of payloads
    ReplayLayout layout = ReplayLayout::kTopicSeqPayload;
    std::size_t queue_max = 100'000;  // messages waiting for the thread; beyond it Publish blocks
    std::uint64_t first_sequence = 0;
    // Messages a subscriber may leave unread, as vLLM has it; beyond it that one loses messages.
    int send_high_water = 100'000;
    // Live messages are an event plane's: [topic, publisher, sequence, frame of the payload].
    std::optional<std::uint64_t> publisher_id{};
  };

  // Binds. kIo names the endpoint and the reason.
  static Result<std::unique_ptr<EventPublisher>> Create(const Options& options);
  virtual ~EventPublisher() = default;

  [[nodiscard]] virtual const std::string& endpoint() const = 0;         // bound, with its port
  [[nodiscard]] virtual const std::string& replay_endpoint() const = 0;  // empty without replay

  // Sends the next message of the stream and keeps it for replay. Returns its sequence number.
  virtual std::uint64_t Publish(std::span<const std::byte> payload) = 0;
  // The same under a number of the caller's choice, after which the stream goes on. A number that
  // is not above all before it begins another life: the messages kept for replay are forgotten.
  virtual void PublishAt(std::uint64_t sequence, std::span<const std::byte> payload) = 0;
  // The same, and never waits. False when the queue was full: the message is then kept for replay
  // only and shows as a gap in the live stream; once as many more wait as are kept for replay, it
  // is lost there, too.
  virtual bool TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) = 0;

  // Faults, for tests. Numbers the next message but loses it: on the live socket, or in the ring
  // too.
  virtual std::uint64_t Lose(std::span<const std::byte> payload, bool keep_for_replay) = 0;
  // Sends a message exactly as given, outside the stream.
  virtual void SendRaw(std::span<const std::span<const std::byte>> frames) = 0;
  // Stops or resumes answering replay requests.
  virtual void SetReplaySilent(bool silent) = 0;
  // Waits until everything published so far was handed to the transport.
  virtual void Flush() = 0;
};

}  // namespace kvr::net
