// The sending side of the event wire: a PUB socket with a numbered stream, and the ROUTER that
// replays its last messages. Used by agents, by the mock engine and by tests.
//
// Nobody who publishes or subscribes waits for a slow subscriber: that one loses messages, which
// the numbers show. The newest message always goes out, so that a loss shows also before a quiet
// time; see TryPublishAt and Options::repeat_first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::net {

// How replies of the replay socket are laid out.
enum class ReplayLayout : std::uint8_t {
  kSeqPayload,       // ["", seq, payload]: vLLM up to 0.25, SGLang
  kTopicSeqPayload,  // ["", topic, seq, payload]: vLLM since 0.26
};

// An answer that is no replay, message by message.
class AnswerParts {
 public:
  virtual ~AnswerParts() = default;
  // Replaces `kind` and `body` by those of the next message; false when there is none.
  virtual bool Next(std::string& kind, std::string& body) = 0;
};

// Answers what a replay socket is asked with a further frame, ["", start, wanted]. An answer is
// ["", kind, number, body] a message, numbered 0, 1, 2 and so on.
class AnswerSource {
 public:
  virtual ~AnswerSource() = default;
  // The answer; null when there is none to that, which is then not answered. Called, as the answer
  // is, by the publisher's thread, which sends nothing meanwhile.
  virtual std::unique_ptr<AnswerParts> Answer(std::string_view wanted) = 0;
};

// Thread-safe. Sockets live on a thread of the publisher's own.
class EventPublisher {
 public:
  struct Options {
    std::string endpoint = "tcp://127.0.0.1:*";
    std::optional<std::string> replay_endpoint = "tcp://127.0.0.1:*";
    std::string topic{};
    std::size_t replay_messages_max = 10'000;
    std::size_t replay_bytes_max = std::size_t{1} << 30;  // of payloads; the newest is kept
    ReplayLayout layout = ReplayLayout::kTopicSeqPayload;
    // Messages and bytes of payloads that wait for the thread; beyond them Publish blocks. A larger
    // message waits alone.
    std::size_t queue_max = 100'000;
    std::size_t queue_bytes_max = std::size_t{256} << 20;
    std::uint64_t first_sequence = 0;
    // Messages a subscriber may leave unread, as vLLM has it. Beyond it that one loses messages,
    // until it has taken half of them.
    int send_high_water = 100'000;
    // After a message found a subscriber at its mark, the newest message is sent again, as it was,
    // once nothing was published for so long, then after twice that and so on: whoever missed it
    // sees the gap, others a number that they know.
    Millis repeat_first{1'000};
    int repeats_max = 6;
    Millis linger{1'000};  // how long the end waits for subscribers to take what was sent
    // Messages of an answer that may wait for one peer; the rest of it follows as the peer takes
    // them. They share the bytes that are kept for replay.
    int replay_high_water = 256;
    // Answers under way, one a peer; beyond it the one whose peer was idle longest has no end. Of
    // what a peer asks meanwhile, the last is answered next.
    std::size_t replay_peers_max = 64;
    Millis replay_stall_max{30'000};  // after which a peer that takes nothing gets no end either
    // Of the answers under way so many may be an AnswerSource's, each with replay_high_water
    // messages of its own on their way. Others wait for them, and are told so every `wait_interval`
    // with a message of kind `wait_kind` that is not numbered.
    std::size_t source_answers_max = 4;
    Millis wait_interval{1'000};
    std::string wait_kind = "wait";
    // Live messages are an event plane's: [topic, publisher, sequence, frame of the payload]; so is
    // the end of a replay: ["", topic, publisher, end marker, ""].
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
  // only and shows as a gap in the live stream; once as many more wait as are kept for replay
  // (messages or bytes), it is lost there, too. The last of such messages goes out all the same
  // when the queue has been sent, so that the gap shows at once.
  virtual bool TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) = 0;

  // Answers come from `source`, which must outlive the publisher; without one, requests with a
  // further frame are ignored, as engines do.
  virtual void SetAnswers(AnswerSource* source) = 0;

  // Faults, for tests. Numbers the next message but loses it: on the live socket, or in the ring
  // too.
  virtual std::uint64_t Lose(std::span<const std::byte> payload, bool keep_for_replay) = 0;
  // Sends a message exactly as given, outside the stream.
  virtual void SendRaw(std::span<const std::span<const std::byte>> frames) = 0;
  // Stops or resumes answering replay requests. Answers under way have no end.
  virtual void SetReplaySilent(bool silent) = 0;
  // The next so many answers of messages break off after so many of them.
  virtual void CutReplays(std::uint64_t answers, std::uint64_t after) = 0;
  // Leaves everything in the queue, or lets it go.
  virtual void SetHeld(bool held) = 0;
  // Waits until everything published so far was handed to the transport.
  virtual void Flush() = 0;

  struct Stats {
    // Messages that found a subscriber at its mark. With each begins a loss, whose further messages
    // the transport does not tell.
    std::uint64_t at_mark = 0;
    std::uint64_t repeats = 0;              // of the newest message, for whoever lost it
    std::uint64_t replay_requests = 0;      // read
    std::uint64_t replays_given_up = 0;     // answers without an end
    std::uint64_t source_answers = 0;       // begun, of the AnswerSource
    std::uint64_t source_answer_bytes = 0;  // sent in them
  };
  [[nodiscard]] virtual Stats stats() const = 0;  // includes all that Flush waits for
};

}  // namespace kvr::net
