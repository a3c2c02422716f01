// The ROUTER beside a publisher: keeps the last messages of a stream and sends them to who asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
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

  // Reads requests and sends the next part of every answer; `silent` drops both. True when there is
  // more to do at once.
  bool Turn(Nanos now, bool silent);
  // Some peer waits for more; look after it now and then even when fd() says nothing.
  [[nodiscard]] bool answering() const { return !answers_.empty(); }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  struct Kept {
    std::uint64_t sequence;
    zmq::message_t payload;
  };
  struct Answer {
    std::string peer;
    std::uint64_t next = 0;  // the first message still to send
    std::uint64_t last =
        0;                  // the newest when it was asked for: an answer ends though others follow
    bool complete = false;  // but for the end marker
    Nanos moved{};          // when the peer last took something
    std::optional<std::uint64_t> again;  // the start that it asked for meanwhile
  };
  enum class Sent : std::uint8_t { kYes, kFull, kGone };
  enum class Step : std::uint8_t { kMoved, kStuck, kOver };

  // Where a request wants to begin; none when nothing is there.
  bool TakeRequest(std::string& peer, std::optional<std::uint64_t>& start);
  void Accept(std::string peer, std::uint64_t start, Nanos now);
  void Begin(Answer& answer, std::uint64_t start) const;
  Step Advance(Answer& answer, Nanos now);
  Sent Send(const std::string& peer, std::uint64_t sequence, zmq::message_t* payload);

  const EventPublisher::Options options_;
  zmq::socket_t socket_;
  std::string endpoint_;
  int fd_ = -1;
  std::deque<Kept> ring_;
  std::size_t ring_bytes_ = 0;
  std::vector<Answer> answers_;
  Stats stats_;
};

}  // namespace kvr::net
