#include "net/event_publisher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zmq.hpp>

#include "base/big_endian.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_name.h"
#include "net/event_socket.h"
#include "net/replay_socket.h"
#include "net/wake_fd.h"
#include "net/zmq_publishing.h"

namespace kvr::net {
namespace {

constexpr std::size_t kSliceMessages = 64;  // taken from the queue at once
constexpr int kTurnSlices = 16;             // before a look at the replay socket
// The transport may take note of room at a peer without telling.
constexpr Millis kAnswerPause{10};

class ZmqEventPublisher final : public EventPublisher {
 public:
  explicit ZmqEventPublisher(const Options& options)
      : options_(options), next_sequence_(options.first_sequence) {
    live_ = zmq::socket_t(context_, zmq::socket_type::pub);
    live_.set(zmq::sockopt::sndhwm, options.send_high_water);
    live_.set(zmq::sockopt::xpub_nodrop, true);  // tells when a subscriber is at its mark
    BindSocket(live_, options.endpoint, options.linger);
    endpoint_ = live_.get(zmq::sockopt::last_endpoint);
    if (options.replay_endpoint) replay_ = std::make_unique<ReplaySocket>(context_, options);
    thread_ = std::thread([this] { Run(); });
  }

  ~ZmqEventPublisher() override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    not_full_.NotifyAll();
    wake_.Wake();
    thread_.join();
  }

  const std::string& endpoint() const override { return endpoint_; }
  const std::string& replay_endpoint() const override {
    static const std::string none;
    return replay_ ? replay_->endpoint() : none;
  }

  std::uint64_t Publish(std::span<const std::byte> payload) override {
    Job job(payload);
    return NumberAndEnqueue(job);
  }
  void PublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override {
    Job job(payload);
    const Lock lock(mutex_);
    Number(job, sequence);
    Enqueue(std::move(job));
  }
  bool TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override {
    Job job(payload);
    const Lock lock(mutex_);
    Number(job, sequence);
    if (HasRoom(job, 0, 0)) {
      Push(std::move(job));
      return true;
    }
    job.left_out = true;
    if (HasRoom(job, options_.replay_messages_max, options_.replay_bytes_max)) {
      Push(std::move(job));
    } else {
      Count(job);
      last_lost_ = std::move(job);
      wake_.Wake();
    }
    return false;
  }
  std::uint64_t Lose(std::span<const std::byte> payload, bool keep_for_replay) override {
    Job job(payload);
    job.fault = keep_for_replay ? Fault::kUnsent : Fault::kUnkept;
    return NumberAndEnqueue(job);
  }

  void SendRaw(std::span<const std::span<const std::byte>> frames) override {
    Job job({});
    for (const auto& frame : frames)
      job.raw.emplace_back(frame.data(), frame.size());
    const Lock lock(mutex_);
    Enqueue(std::move(job));
  }

  void SetAnswers(AnswerSource* source) override {
    const Lock lock(mutex_);
    answers_ = source;
  }

  void SetReplaySilent(bool silent) override {
    const Lock lock(mutex_);
    silent_ = silent;
  }
  void CutReplays(std::uint64_t answers, std::uint64_t after) override {
    const Lock lock(mutex_);
    cut_ = {answers, after};
  }
  void SetHeld(bool held) override {
    const Lock lock(mutex_);
    held_ = held;
    wake_.Wake();
  }

  void Flush() override {
    const Lock lock(mutex_);
    const std::uint64_t target = enqueued_;
    while (done_ < target && !stopping_)
      progress_.Wait(mutex_);
  }

  Stats stats() const override {
    const Lock lock(mutex_);
    return stats_;
  }

 private:
  enum class Fault : std::uint8_t { kNone, kUnsent, kUnkept };
  struct Job {
    explicit Job(std::span<const std::byte> bytes) : payload(bytes.data(), bytes.size()) {}
    [[nodiscard]] std::size_t bytes() const {
      std::size_t sum = payload.size();
      for (const zmq::message_t& part : raw)
        sum += part.size();
      return sum;
    }

    std::vector<zmq::message_t> raw;  // when not empty: send these frames and nothing else
    std::uint64_t sequence = 0;
    zmq::message_t payload;
    Fault fault = Fault::kNone;
    bool left_out = false;  // of the live stream, as the queue was full
    bool new_life = false;  // what is kept for replay was another engine's
  };

  // Numbering and queueing under one lock keeps the stream in sequence whoever publishes.
  std::uint64_t NumberAndEnqueue(Job& job) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    const std::uint64_t sequence = next_sequence_;
    Number(job, sequence);
    Enqueue(std::move(job));
    return sequence;
  }
  void Number(Job& job, std::uint64_t sequence) KVR_REQUIRES(mutex_) {
    job.sequence = sequence;
    job.new_life = sequence < next_sequence_;
    next_sequence_ = sequence + 1;
  }
  [[nodiscard]] bool HasRoom(const Job& job, std::size_t more, std::size_t more_bytes) const
      KVR_REQUIRES(mutex_) {
    if (waiting_ >= options_.queue_max + more) return false;
    return waiting_ == 0 || waiting_bytes_ + job.bytes() <= options_.queue_bytes_max + more_bytes;
  }
  void Enqueue(Job job) KVR_REQUIRES(mutex_) {
    while (!HasRoom(job, 0, 0) && !stopping_)
      not_full_.Wait(mutex_);
    Push(std::move(job));
  }
  void Push(Job job) KVR_REQUIRES(mutex_) {
    Count(job);
    last_lost_.reset();
    ++waiting_;
    waiting_bytes_ += job.bytes();
    jobs_.push_back(std::move(job));
    wake_.Wake();
  }
  // A job takes the place of the lost one before it.
  void Count(Job& job) KVR_REQUIRES(mutex_) {
    if (!last_lost_) {
      ++enqueued_;
    } else {
      job.new_life = job.new_life || last_lost_->new_life;
    }
  }

  void Run() {
    SetThreadName("publisher");
    std::array<zmq_pollitem_t, 3> items{
        {{nullptr, wake_.fd(), ZMQ_POLLIN, 0},
         {nullptr, static_cast<int>(live_.get(zmq::sockopt::fd)), ZMQ_POLLIN, 0},
         {nullptr, replay_ ? replay_->fd() : -1, ZMQ_POLLIN, 0}}};
    bool more = true;
    while (!Stopping()) {
      zmq_poll(items.data(), replay_ ? 3 : 2, more ? 0 : Pause());
      wake_.Clear();
      // Subscribers come and go, which costs memory until the socket takes note of it.
      static_cast<void>(live_.get(zmq::sockopt::events));
      more = SendQueued();
      RepeatNewest();
      if (!replay_) continue;
      if (const auto cut = TakeCut()) replay_->CutNext(cut->first, cut->second);
      // Not with the lock held: the source may wait for somebody who publishes.
      more = replay_->Turn(clock_.Now(), Silent(), Answers()) || more;
      const Lock lock(mutex_);
      stats_.replay_requests = replay_->stats().requests;
      stats_.replays_given_up = replay_->stats().given_up;
      stats_.source_answers = replay_->stats().source_answers;
      stats_.source_answer_bytes = replay_->stats().source_answer_bytes;
    }
  }

  // Milliseconds; -1: until something comes.
  [[nodiscard]] int Pause() const {
    std::optional<Millis> pause;
    if (replay_ && replay_->answering()) pause = kAnswerPause;
    if (repeats_left_ > 0) {
      const Nanos left = std::max(repeat_at_ - clock_.Now(), Nanos{0});
      pause = std::min(pause.value_or(Millis::max()), std::chrono::ceil<Millis>(left));
    }
    return pause ? static_cast<int>(std::min<Millis::rep>(pause->count(), INT_MAX)) : -1;
  }

  bool Stopping() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return stopping_;
  }
  std::optional<std::pair<std::uint64_t, std::uint64_t>> TakeCut() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return std::exchange(cut_, std::nullopt);
  }
  bool Silent() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return silent_;
  }

  AnswerSource* Answers() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return answers_;
  }

  // True when more waits.
  bool SendQueued() KVR_EXCLUDES(mutex_) {
    for (int i = 0; i < kTurnSlices; ++i) {
      const std::size_t bytes = TakeSlice();
      if (slice_.empty()) return false;
      for (Job& job : slice_)
        SendOne(job);
      const std::uint64_t count = slice_.size();
      slice_.clear();
      {
        const Lock lock(mutex_);
        waiting_ -= count;
        waiting_bytes_ -= bytes;
        done_ += count;
        stats_.at_mark = at_mark_;
      }
      not_full_.NotifyAll();
      progress_.NotifyAll();
    }
    return true;
  }

  // Returns its bytes.
  std::size_t TakeSlice() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    if (held_) return 0;
    std::size_t bytes = 0;
    while (!jobs_.empty() && slice_.size() < kSliceMessages) {
      bytes += jobs_.front().bytes();
      slice_.push_back(std::move(jobs_.front()));
      jobs_.pop_front();
    }
    if (!jobs_.empty()) return bytes;
    if (last_lost_) {
      ++waiting_;
      waiting_bytes_ += last_lost_->bytes();
      bytes += last_lost_->bytes();
      slice_.push_back(std::move(*last_lost_));
      last_lost_.reset();
    }
    // The last of all goes out, though it found the queue full: it shows that others did not.
    if (!slice_.empty()) slice_.back().left_out = false;
    return bytes;
  }

  void SendOne(Job& job) {
    if (!job.raw.empty()) {
      const bool refused = !SendFirst(Span(job.raw[0]), job.raw.size() > 1);
      for (std::size_t i = 1; i < job.raw.size(); ++i)
        SendPart(live_, Span(job.raw[i]), i + 1 < job.raw.size());
      if (refused) live_.set(zmq::sockopt::xpub_nodrop, true);
      return;
    }
    if (job.fault == Fault::kNone) {
      newest_sequence_ = job.sequence;
      newest_.copy(job.payload);
      if (!job.left_out) SendNewest(true);
    }
    if (!replay_) return;
    if (job.new_life) replay_->Forget();
    if (job.fault != Fault::kUnkept) replay_->Keep(job.sequence, job.payload);
  }

  // Only the first part of a message can be refused, when a subscriber is at its mark. The message
  // then goes to the others, until the option is set again; the transport does not tell of that
  // subscriber once more before it has taken half of its mark.
  bool SendFirst(std::span<const std::byte> part, bool more) {
    if (SendPart(live_, part, more)) return true;
    live_.set(zmq::sockopt::xpub_nodrop, false);
    SendPart(live_, part, more);
    return false;
  }

  void SendNewest(bool first_time) {
    const bool refused = !SendFirst(std::as_bytes(std::span(options_.topic)), true);
    SendRest();
    if (refused) live_.set(zmq::sockopt::xpub_nodrop, true);
    if (!first_time) return;
    if (refused) {
      ++at_mark_;
      repeats_left_ = options_.repeats_max;
    }
    if (repeats_left_ > 0) {
      repeat_pause_ = options_.repeat_first;
      repeat_at_ = clock_.Now() + repeat_pause_;
    }
  }

  void SendRest() {
    if (!options_.publisher_id) {
      SendPart(live_, BigEndian(newest_sequence_), true);
      SendShared(live_, newest_, false);
      return;
    }
    SendPart(live_, BigEndian(*options_.publisher_id), true);
    SendPart(live_, BigEndian(newest_sequence_), true);
    // A byte of version, four of length, then the payload.
    constexpr std::size_t kHeadBytes = 5;
    const auto payload = Span(newest_);
    frame_.resize(kHeadBytes);
    frame_[0] = std::byte{1};
    for (std::size_t i = 0; i < 4; ++i)
      frame_[1 + i] = static_cast<std::byte>(payload.size() >> (24 - 8 * i));
    frame_.insert(frame_.end(), payload.begin(), payload.end());
    SendPart(live_, frame_, false);
  }

  void RepeatNewest() KVR_EXCLUDES(mutex_) {
    if (repeats_left_ == 0 || clock_.Now() < repeat_at_) return;
    --repeats_left_;
    repeat_pause_ *= 2;
    repeat_at_ = clock_.Now() + repeat_pause_;
    SendNewest(false);
    const Lock lock(mutex_);
    ++stats_.repeats;
  }

  static std::span<const std::byte> Span(const zmq::message_t& part) {
    return {static_cast<const std::byte*>(part.data()), part.size()};
  }

  const Options options_;
  const SystemClock clock_;
  zmq::context_t context_;
  std::string endpoint_;
  // The thread's.
  zmq::socket_t live_;
  std::unique_ptr<ReplaySocket> replay_;
  std::vector<Job> slice_;
  std::uint64_t newest_sequence_ = 0;
  zmq::message_t newest_;
  std::vector<std::byte> frame_;  // of the message at hand
  std::uint64_t at_mark_ = 0;
  int repeats_left_ = 0;
  Millis repeat_pause_{};
  Nanos repeat_at_{};
  WakeFd wake_;

  mutable Mutex mutex_;
  CondVar not_full_;
  CondVar progress_;
  std::deque<Job> jobs_ KVR_GUARDED_BY(mutex_);
  // The newest message, when it was beyond all limits. Sent when nothing else is left.
  std::optional<Job> last_lost_ KVR_GUARDED_BY(mutex_);
  std::size_t waiting_ KVR_GUARDED_BY(mutex_) = 0;  // in the queue and at hand
  std::size_t waiting_bytes_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_sequence_ KVR_GUARDED_BY(mutex_);
  std::uint64_t enqueued_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ KVR_GUARDED_BY(mutex_) = 0;
  Stats stats_ KVR_GUARDED_BY(mutex_);
  AnswerSource* answers_ KVR_GUARDED_BY(mutex_) = nullptr;
  bool silent_ KVR_GUARDED_BY(mutex_) = false;
  // Answers to be cut, after how many messages; not yet the replay socket's.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> cut_ KVR_GUARDED_BY(mutex_);
  bool held_ KVR_GUARDED_BY(mutex_) = false;
  bool stopping_ KVR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<EventPublisher>> EventPublisher::Create(const Options& options) {
  KVR_TRY_VOID(CheckEndpoint(options.endpoint, false));
  if (options.replay_endpoint) KVR_TRY_VOID(CheckEndpoint(*options.replay_endpoint, false));
  try {
    return std::unique_ptr<EventPublisher>(std::make_unique<ZmqEventPublisher>(options));
  } catch (const zmq::error_t& error) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot publish on `{}`{}: {}", options.endpoint,
                            options.replay_endpoint ? " and `" + *options.replay_endpoint + "`"
                                                    : std::string(),
                            error.what()));
  }
}

}  // namespace kvr::net
