// One rank's publisher with its sockets, for several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "net/event_publisher.h"
#include "publish/rank_publisher.h"

namespace kvr::service {

// Thread-safe. Each source's events come from one thread at a time. Whoever asks for events or a
// snapshot waits for the end of the list under way, and the next list for the answer: a snapshot
// that has to be built holds it up for the time of O(blocks).
class PublishedRank final : private publish::Outlet, private net::AnswerSource {
 public:
  struct Options {
    publish::RankPublisher::Options publisher;
    net::EventPublisher::Options socket;
    // Of messages that one router leaves unread. As the transport counts messages, so many wait for
    // one as are full in so many bytes, and socket.send_high_water at most.
    std::size_t send_bytes_max = std::size_t{64} << 20;

    // The mark that comes of it.
    [[nodiscard]] int send_high_water() const;
  };

  struct Stats {
    publish::RankPublisher::Stats publisher;
    publish::Coalescer::Stats coalescer;
    publish::BlockBook::Stats book;
    std::uint64_t refused_events = 0;
    net::EventPublisher::Stats socket;
  };

  // Binds. kIo and kInvalidArgument as EventPublisher::Create. `clock` must outlive the object.
  static Result<std::unique_ptr<PublishedRank>> Open(const Options& options, const Clock& clock);
  // Over a socket of the caller's, which has the publisher's id and topic.
  PublishedRank(const publish::RankPublisher::Options& options, const Clock& clock,
                std::unique_ptr<net::EventPublisher> socket);

  [[nodiscard]] Rank rank() const { return rank_; }
  [[nodiscard]] std::uint64_t publisher_id() const { return publisher_id_; }
  [[nodiscard]] const std::string& endpoint() const { return socket_->endpoint(); }
  // Empty without replay.
  [[nodiscard]] const std::string& replay_endpoint() const { return socket_->replay_endpoint(); }

  void Apply(std::size_t source, const PlacementEvent& event) KVR_EXCLUDES(mutex_);
  void EndList(std::size_t source) KVR_EXCLUDES(mutex_);
  // Takes back what the source told of, and takes nothing of it until Accept; false when it was so
  // before. Unlike an empty source's, its rank is not complete.
  bool Refuse(std::size_t source) KVR_EXCLUDES(mutex_);
  void Accept(std::size_t source) KVR_EXCLUDES(mutex_);
  [[nodiscard]] bool refuses() const KVR_EXCLUDES(mutex_);
  // Sends what has waited long enough. Waits for nobody: when the rank is busy, the next call will
  // do. After how long that is due, which is not more than `most`, the longest that an event may
  // wait.
  Nanos OnTick(Nanos most) KVR_EXCLUDES(mutex_);
  // Sends what is pending and waits until the transport has it.
  void Flush() KVR_EXCLUDES(mutex_);

  publish::RankPublisher::EventsAnswer Query(std::optional<std::uint64_t> start,
                                             std::optional<std::uint64_t> end) KVR_EXCLUDES(mutex_);
  Result<publish::RankPublisher::SnapshotAnswer> TakeSnapshot() KVR_EXCLUDES(mutex_);
  publish::RankPublisher::Position Locate() KVR_EXCLUDES(mutex_);
  // What the replay socket is asked beside messages, `answers` answer from now on; null: nobody.
  // Those that were there before are not called after the return.
  void SetAnswers(net::AnswerSource* answers) KVR_EXCLUDES(answers_mutex_);
  [[nodiscard]] Stats stats() const KVR_EXCLUDES(mutex_);

 private:
  bool Send(std::uint64_t sequence, std::span<const std::byte> envelope) override;
  std::unique_ptr<net::AnswerParts> Answer(std::string_view wanted) override
      KVR_EXCLUDES(answers_mutex_);
  // Around a question, which is answered between lists.
  void BeginAsking() KVR_REQUIRES(mutex_);
  void EndAsking() KVR_REQUIRES(mutex_);

  const Rank rank_;
  const std::uint64_t publisher_id_;
  const Clock& clock_;
  // Held while they are called, so before mutex_.
  Mutex answers_mutex_;
  net::AnswerSource* answers_ KVR_GUARDED_BY(answers_mutex_) = nullptr;
  mutable Mutex mutex_;
  CondVar list_ended_;
  CondVar asked_;
  std::uint8_t refused_ KVR_GUARDED_BY(mutex_) = 0;  // sources, a bit each
  std::uint64_t refused_events_ KVR_GUARDED_BY(mutex_) = 0;
  std::size_t askers_ KVR_GUARDED_BY(mutex_) = 0;  // waiting or being answered
  publish::RankPublisher publisher_ KVR_GUARDED_BY(mutex_);
  const std::unique_ptr<net::EventPublisher> socket_;  // last: its thread asks this object
};

}  // namespace kvr::service
