#include "net/event_publisher.h"

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zmq.hpp>

#include "base/mutex.h"
#include "base/thread_name.h"
#include "net/event_socket.h"
#include "net/wake_fd.h"

namespace kvr::net {
namespace {

using Bytes = std::vector<std::byte>;

std::array<std::byte, 8> BigEndian(std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<std::byte>(value >> (56 - 8 * i));
  return bytes;
}

zmq::socket_t Bind(zmq::context_t& context, zmq::socket_type type, const std::string& endpoint,
                   int send_high_water) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, send_high_water);
  if (endpoint.starts_with("tcp://[")) socket.set(zmq::sockopt::ipv6, 1);
  socket.bind(endpoint);
  return socket;
}

class ZmqEventPublisher final : public EventPublisher {
 public:
  explicit ZmqEventPublisher(const Options& options)
      : options_(options), next_sequence_(options.first_sequence) {
    live_ = Bind(context_, zmq::socket_type::pub, options.endpoint, options.send_high_water);
    endpoint_ = live_.get(zmq::sockopt::last_endpoint);
    if (options.replay_endpoint) {
      // Unlimited: a ROUTER at its mark drops answers in silence, and the ring bounds them anyway.
      replay_ = Bind(context_, zmq::socket_type::router, *options.replay_endpoint, 0);
      replay_endpoint_ = replay_.get(zmq::sockopt::last_endpoint);
    }
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
  const std::string& replay_endpoint() const override { return replay_endpoint_; }

  std::uint64_t Publish(std::span<const std::byte> payload) override {
    return Number(payload, true, true);
  }
  void PublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override {
    Job job;
    job.payload.assign(payload.begin(), payload.end());
    job.sequence = sequence;
    const Lock lock(mutex_);
    job.new_life = sequence < next_sequence_;
    next_sequence_ = sequence + 1;
    Enqueue(std::move(job));
  }
  bool TryPublishAt(std::uint64_t sequence, std::span<const std::byte> payload) override {
    Job job;
    job.payload.assign(payload.begin(), payload.end());
    job.sequence = sequence;
    const Lock lock(mutex_);
    job.new_life = sequence < next_sequence_;
    next_sequence_ = sequence + 1;
    job.send = jobs_.size() < options_.queue_max;
    const bool sent = job.send;
    if (jobs_.size() < options_.queue_max + options_.replay_messages_max) Push(std::move(job));
    return sent;
  }
  std::uint64_t Lose(std::span<const std::byte> payload, bool keep_for_replay) override {
    return Number(payload, false, keep_for_replay);
  }

  void SendRaw(std::span<const std::span<const std::byte>> frames) override {
    Job job;
    for (const auto& frame : frames)
      job.raw.emplace_back(frame.begin(), frame.end());
    const Lock lock(mutex_);
    Enqueue(std::move(job));
  }

  void SetReplaySilent(bool silent) override {
    const Lock lock(mutex_);
    silent_ = silent;
  }

  void Flush() override {
    const Lock lock(mutex_);
    const std::uint64_t target = enqueued_;
    while (done_ < target && !stopping_)
      progress_.Wait(mutex_);
  }

 private:
  struct Job {
    std::vector<Bytes> raw;  // when not empty: send these frames and nothing else
    std::uint64_t sequence = 0;
    Bytes payload;
    bool send = true;
    bool keep = true;
    bool new_life = false;  // what is kept for replay was another engine's
  };
  struct Kept {
    std::uint64_t sequence;
    Bytes payload;
  };

  std::uint64_t Number(std::span<const std::byte> payload, bool send, bool keep) {
    Job job;
    job.payload.assign(payload.begin(), payload.end());
    job.send = send;
    job.keep = keep;
    const Lock lock(mutex_);
    const std::uint64_t sequence = next_sequence_++;
    job.sequence = sequence;
    Enqueue(std::move(job));
    return sequence;
  }

  // Numbering and queueing under one lock keeps the stream in sequence whoever publishes.
  void Enqueue(Job job) KVR_REQUIRES(mutex_) {
    while (jobs_.size() >= options_.queue_max && !stopping_)
      not_full_.Wait(mutex_);
    Push(std::move(job));
  }
  void Push(Job job) KVR_REQUIRES(mutex_) {
    jobs_.push_back(std::move(job));
    ++enqueued_;
    wake_.Wake();
  }

  void Run() {
    SetThreadName("publisher");
    std::array<zmq_pollitem_t, 2> items{{{nullptr, wake_.fd(), ZMQ_POLLIN, 0},
                                         {replay_ ? replay_.handle() : nullptr, 0, ZMQ_POLLIN, 0}}};
    while (!Stopping()) {
      zmq_poll(items.data(), replay_ ? 2 : 1, -1);
      wake_.Clear();
      SendQueued();
      if (replay_) AnswerOne();
    }
  }

  bool Stopping() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return stopping_;
  }

  void SendQueued() KVR_EXCLUDES(mutex_) {
    std::deque<Job> jobs;
    {
      const Lock lock(mutex_);
      jobs.swap(jobs_);
    }
    not_full_.NotifyAll();
    const std::uint64_t count = jobs.size();
    for (Job& job : jobs)
      SendOne(job);
    {
      const Lock lock(mutex_);
      done_ += count;
    }
    progress_.NotifyAll();
  }

  void SendOne(Job& job) {
    if (!job.raw.empty()) {
      for (std::size_t i = 0; i < job.raw.size(); ++i)
        SendPart(live_, job.raw[i], i + 1 < job.raw.size());
      return;
    }
    if (job.send) SendLive(job);
    if (job.new_life) {
      ring_.clear();
      ring_bytes_ = 0;
    }
    if (!job.keep || options_.replay_messages_max == 0) return;
    ring_bytes_ += job.payload.size();
    ring_.push_back({job.sequence, std::move(job.payload)});
    while (ring_.size() > options_.replay_messages_max || ring_bytes_ > options_.replay_bytes_max) {
      ring_bytes_ -= ring_.front().payload.size();
      ring_.pop_front();
    }
  }

  void SendLive(const Job& job) {
    SendPart(live_, std::as_bytes(std::span(options_.topic)), true);
    if (!options_.publisher_id) {
      SendPart(live_, BigEndian(job.sequence), true);
      SendPart(live_, job.payload, false);
      return;
    }
    SendPart(live_, BigEndian(*options_.publisher_id), true);
    SendPart(live_, BigEndian(job.sequence), true);
    // A byte of version, four of length, then the payload.
    constexpr std::size_t kHeadBytes = 5;
    frame_.resize(kHeadBytes);
    frame_[0] = std::byte{1};
    for (std::size_t i = 0; i < 4; ++i)
      frame_[1 + i] = static_cast<std::byte>(job.payload.size() >> (24 - 8 * i));
    frame_.insert(frame_.end(), job.payload.begin(), job.payload.end());
    SendPart(live_, frame_, false);
  }

  // One request a turn, as vLLM does; another one keeps the socket readable.
  void AnswerOne() {
    std::vector<zmq::message_t> request;
    for (bool more = true; more;) {
      zmq::message_t part;
      if (zmq_msg_recv(part.handle(), replay_.handle(), ZMQ_DONTWAIT) < 0) break;
      more = part.more();
      request.push_back(std::move(part));
    }
    bool silent = false;
    {
      const Lock lock(mutex_);
      silent = silent_;
    }
    // [identity, "", start]; vLLM ignores anything else.
    if (silent || request.size() != 3 || !request[1].empty() || request[2].size() != 8) return;
    std::uint64_t start = 0;
    for (std::size_t i = 0; i < 8; ++i)
      start = start << 8 | static_cast<const std::uint8_t*>(request[2].data())[i];
    const std::span identity(static_cast<const std::byte*>(request[0].data()), request[0].size());
    const auto topic = std::as_bytes(std::span(options_.topic));
    for (const Kept& kept : ring_) {
      if (kept.sequence >= start) Answer(identity, topic, kept.sequence, kept.payload);
    }
    Answer(identity, {}, ~std::uint64_t{0}, {});
  }

  void Answer(std::span<const std::byte> identity, std::span<const std::byte> topic,
              std::uint64_t sequence, std::span<const std::byte> payload) {
    SendPart(replay_, identity, true);
    SendPart(replay_, {}, true);
    if (options_.layout == ReplayLayout::kTopicSeqPayload) SendPart(replay_, topic, true);
    SendPart(replay_, BigEndian(sequence), true);
    SendPart(replay_, payload, false);
  }

  // A PUB or ROUTER never waits: what it cannot send it drops, which is what the tests are about.
  static void SendPart(zmq::socket_t& socket, std::span<const std::byte> part, bool more) {
    zmq_send(socket.handle(), part.data(), part.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
  }

  const Options options_;
  zmq::context_t context_;
  zmq::socket_t live_;    // the thread's
  zmq::socket_t replay_;  // the thread's; empty without replay
  std::string endpoint_;
  std::string replay_endpoint_;
  std::deque<Kept> ring_;  // the thread's
  std::size_t ring_bytes_ = 0;
  Bytes frame_;  // the thread's; of the message at hand
  WakeFd wake_;

  Mutex mutex_;
  CondVar not_full_;
  CondVar progress_;
  std::deque<Job> jobs_ KVR_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ KVR_GUARDED_BY(mutex_);
  std::uint64_t enqueued_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ KVR_GUARDED_BY(mutex_) = 0;
  bool silent_ KVR_GUARDED_BY(mutex_) = false;
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
