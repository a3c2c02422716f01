// The publishing side of the simulated network: what net::EventPublisher promises, without sockets
// and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "net/event_publisher.h"
#include "simulation/network.h"

namespace kvr::simulation {

class Publisher final : public net::EventPublisher {
 public:
  struct Options {
    std::string endpoint;
    std::string replay_endpoint;  // empty: none
    std::string topic;
    net::ReplayLayout layout = net::ReplayLayout::kTopicSeqPayload;
    std::optional<std::uint64_t> publisher_id;
    std::size_t replay_messages_max = 10'000;
    std::size_t queue_max = 10'000;
    std::size_t unread_max = 10'000;  // of one subscriber
    bool repeats = true;              // the newest message, after a subscriber was at its mark
    std::uint64_t first_sequence = 0;
  };

  Publisher(Network& network, const Options& options);
  ~Publisher() override;

  [[nodiscard]] const std::string& endpoint() const override { return options_.endpoint; }
  [[nodiscard]] const std::string& replay_endpoint() const override {
    return options_.replay_endpoint;
  }
  std::uint64_t Publish(std::span<const std::byte> payload) override;
  void PublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override;
  bool TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override;
  void SetAnswers(net::AnswerSource* source) override { answers_ = source; }
  std::uint64_t Lose(std::span<const std::byte> payload, bool keep_for_replay) override;
  void SendRaw(std::span<const std::span<const std::byte>> frames) override;
  void SetReplaySilent(bool silent) override { silent_ = silent; }
  void CutReplays(std::uint64_t, std::uint64_t) override {}  // Faults::cut_answer
  void SetHeld(bool held) override;
  void Flush() override {}
  [[nodiscard]] Stats stats() const override { return stats_; }

  [[nodiscard]] std::size_t unread_max() const { return options_.unread_max; }
  [[nodiscard]] std::uint64_t next_sequence() const { return next_sequence_; }
  // Whether every message since the first one is kept for replay.
  [[nodiscard]] bool keeps_all() const { return keeps_all_; }
  // Answers a request of the replay socket: messages, or what else is wanted.
  void Answer(const std::weak_ptr<Link>& to, std::uint64_t first, const std::string& wanted);

 private:
  struct Job {
    std::uint64_t sequence = 0;
    std::vector<std::byte> payload;
    bool left_out = false;  // of the live stream
  };
  struct Reply {
    std::weak_ptr<Link> to;
    std::uint64_t next = 0;
    std::uint64_t last = 0;
    bool complete = false;
    std::optional<std::uint64_t> left;        // messages before it is cut
    std::shared_ptr<net::AnswerParts> parts;  // instead of messages
    std::uint64_t number = 0;                 // of the next message
  };

  void SendQueued();
  void SendOne(Job& job);
  void SendNewest(bool first_time);
  void PlanRepeat();
  void Keep(Job job);
  void Advance(Reply reply);
  // The next message of the reply. False when it was the last.
  bool SendNext(Reply& reply);
  bool SendPart(Reply& reply);
  [[nodiscard]] Message LiveFrames(const Job& job) const;
  [[nodiscard]] Message ReplayFrames(std::uint64_t sequence,
                                     std::span<const std::byte> payload) const;

  Network& network_;
  const Options options_;
  std::uint64_t next_sequence_;
  std::deque<Job> queue_;
  std::optional<Job> last_lost_;
  std::deque<Job> ring_;
  Job newest_;
  net::AnswerSource* answers_ = nullptr;
  bool held_ = false;
  bool silent_ = false;
  bool keeps_all_ = true;
  int repeats_left_ = 0;
  Nanos repeat_pause_{0};
  std::uint64_t repeat_plan_ = 0;  // the one that counts
  std::set<std::uint64_t> holes_;  // messages that an answer left out; each once
  Stats stats_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace kvr::simulation
