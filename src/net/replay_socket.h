// The ROUTER beside a publisher: keeps the last messages of a stream and sends them to who asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <zmq.hpp>

#include "base/clock.h"
#include "net/event_publisher.h"

namespace kvr::net {

// A peer's answer goes out in parts, as the peer takes them: what waits for it are the messages of
// its mark, whose bytes are those of the ring. Other work goes on between the parts.
//
// Used by one thread, but for its creation.
class ReplaySocket {
 public:
  struct Stats {
    std::uint64_t requests = 0;  // that are some, answered or not
    std::uint64_t given_up = 0;  // answers without an end: too many peers, or one that took nothing
    std::uint64_t source_answers = 0;  // see EventPublisher::Stats
    std::uint64_t source_answer_bytes = 0;
  };

  // Binds to options.replay_endpoint. Throws zmq::error_t.
  ReplaySocket(zmq::context_t& context, const EventPublisher::Options& options);

  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }
  // Readable when a turn may have something to do. A turn must have been made since it was not.
  [[nodiscard]] int fd() const { return fd_; }

  // Keeps the message behind all others, whose numbers are lower. Shares its bytes.
  void Keep(std::uint64_t sequence, zmq::message_t& payload);
  // Another engine's stream begins. Answers under way end here.
  void Forget();

  // The next so many answers of messages break off after so many of them.
  void CutNext(std::uint64_t answers, std::uint64_t after) {
    cuts_ = answers;
    cut_after_ = after;
  }

  // Reads requests and sends the next part of every answer; `silent` drops both. What is wanted
  // beside messages is had from `source`, which may be null. True when there is more to do at once.
  bool Turn(Nanos now, bool silent, AnswerSource* source);
  // Some peer waits for more; look after it now and then even when fd() says nothing.
  [[nodiscard]] bool answering() const { return !answers_.empty(); }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  struct Kept {
    std::uint64_t sequence;
    zmq::message_t payload;
  };
  struct Request {
    std::uint64_t start = 0;
    std::string wanted;  // empty: messages
  };
  struct Answer {
    std::string peer;
    std::uint64_t next = 0;  // the first message still to send; of a source's answer, its number
    std::uint64_t last =
        0;                  // the newest when it was asked for: an answer ends though others follow
    bool complete = false;  // but for the end marker
    Nanos moved{};          // when the peer last took something
    std::optional<std::uint64_t> left;  // messages before it breaks off
    std::optional<Request> again;       // what it asked for meanwhile
    // Of a source's answer.
    std::string wanted;                  // not begun yet
    std::unique_ptr<AnswerParts> parts;  // begun
    std::string kind;                    // of the message at hand
    std::string body;
  };
  enum class Sent : std::uint8_t { kYes, kFull, kGone };
  enum class Step : std::uint8_t { kMoved, kStuck, kOver };

  // What a peer asks for; none when it is no request. False when nothing is there.
  bool TakeRequest(std::string& peer, std::optional<Request>& request);
  void Accept(std::string peer, Request request, Nanos now);
  void Begin(Answer& answer, Request request);
  Step Advance(Answer& answer, Nanos now, AnswerSource* source);
  Step AdvanceMessages(Answer& answer, Nanos now);
  Step AdvanceParts(Answer& answer, Nanos now, AnswerSource* source);
  // Its turn has not come.
  Step TellToWait(Answer& answer, Nanos now);
  // The peer has no room: whether to wait for it.
  Step Stuck(const Answer& answer, Nanos now);
  // The answer ends here; another one may be due.
  Step End(Answer& answer);
  Sent Send(const std::string& peer, std::uint64_t sequence, zmq::message_t* payload);
  Sent SendPartOf(const Answer& answer, std::string_view kind, std::uint64_t number,
                  std::string_view body);

  const EventPublisher::Options options_;
  zmq::socket_t socket_;
  std::string endpoint_;
  int fd_ = -1;
  std::deque<Kept> ring_;
  std::size_t ring_bytes_ = 0;
  std::vector<Answer> answers_;
  std::uint64_t cuts_ = 0;
  std::uint64_t cut_after_ = 0;
  Stats stats_;
};

}  // namespace kvr::net
