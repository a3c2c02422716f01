#include "ingest/poll_transport.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/big_endian.h"
#include "base/mutex.h"
#include "ingest/trtllm_numbers.h"
#include "net/event_endpoint.h"
#include "net/http.h"

namespace kvr::ingest {
namespace {

constexpr std::string_view kPath = "/kv_cache_events";

// What the asking task and the reading thread share: one queue of messages and link events, so that
// the reader sees a message of another engine never before the break between the two. The task ends
// by itself once `closed`.
class PollState {
 public:
  PollState(const PollOptions& options, net::EventPoller& poller)
      : messages_max_(options.messages_max), poller_(&poller) {}

  // --- for the task -----------------------------------------------------------------------------

  [[nodiscard]] bool closed() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return poller_ == nullptr;
  }
  [[nodiscard]] bool full() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return queue_.size() >= messages_max_;
  }
  void SetLink(bool up) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    if (std::exchange(up_, up) == up) return;
    PushLink(up ? net::LinkEvent::kConnected : net::LinkEvent::kDisconnected);
    Wake();
  }
  void Push(std::vector<TrtllmNumbers::Message> messages) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    for (TrtllmNumbers::Message& message : messages) {
      // Behind a new link the reader takes a lower number for what it is.
      if (message.restart) {
        PushLink(net::LinkEvent::kDisconnected);
        PushLink(net::LinkEvent::kConnected);
      }
      queue_.push_back({{}, std::move(message)});
    }
    Wake();
  }

  // --- for the reader ---------------------------------------------------------------------------

  // False also when a link event comes first.
  bool PopMessage(TrtllmNumbers::Message& message) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    links_due_ = queue_.empty() || queue_.front().link.has_value();
    if (links_due_) return false;
    message = std::move(queue_.front().message);
    queue_.pop_front();
    return true;
  }
  // Those after the message that was taken last stay until it has been used.
  bool PopLink(net::LinkEvent& event) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    if (!links_due_ || queue_.empty() || !queue_.front().link) return false;
    event = *queue_.front().link;
    queue_.pop_front();
    Wake();  // for what is behind it
    return true;
  }
  void Close() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    poller_ = nullptr;
  }

 private:
  struct Item {
    std::optional<net::LinkEvent> link;  // none: a message
    TrtllmNumbers::Message message;
  };

  void PushLink(net::LinkEvent event) KVR_REQUIRES(mutex_) { queue_.push_back({event, {}}); }
  void Wake() KVR_REQUIRES(mutex_) {
    if (poller_ != nullptr) poller_->Wake();
  }

  const std::size_t messages_max_;
  mutable Mutex mutex_;
  net::EventPoller* poller_ KVR_GUARDED_BY(mutex_);  // null once the socket is gone
  bool up_ KVR_GUARDED_BY(mutex_) = false;
  bool links_due_ KVR_GUARDED_BY(mutex_) = true;
  // While it is full nobody asks, so that an answer's messages are all it can grow by.
  std::deque<Item> queue_ KVR_GUARDED_BY(mutex_);
};

// Asks one engine until its socket is gone or the runtime stops.
class PollTask {
 public:
  PollTask(net::Url url, const PollOptions& options, std::shared_ptr<net::HttpClient> client,
           std::shared_ptr<PollState> state)
      : url_(std::move(url)),
        options_(options),
        client_(std::move(client)),
        state_(std::move(state)) {
    limits_.payload_bytes_max = options.body_bytes_max;
  }

  net::Task<void> Run() {
    Millis pause{0};
    while (!state_->closed()) {
      Millis wait = options_.interval;
      if (!state_->full()) {
        const bool good = co_await Ask();
        state_->SetLink(good);
        pause = good ? Millis{0} : std::clamp(pause * 2, options_.retry_first, options_.retry_max);
        if (!good) wait = pause;
        if (good && brought_) continue;
      }
      const bool slept = co_await net::Sleep(wait);
      if (!slept) co_return;
    }
  }

 private:
  // False when the engine did not answer as it should.
  net::Task<bool> Ask() {
    brought_ = false;
    net::HttpRequest request;
    request.target = kPath;
    const auto answer = co_await client_->FetchWithin(options_.timeout, url_, request);
    if (!answer) {
      // A request that never left drains nothing; of any other the answer is lost.
      if (answer.error().code != ErrorCode::kUnavailable) numbers_.NoteLoss();
      co_return false;
    }
    if (answer->status != 200) co_return false;
    auto messages = numbers_.Take(std::as_bytes(std::span(answer->body)), limits_);
    if (!messages) {
      numbers_.NoteLoss();
      co_return false;
    }
    brought_ = !messages->empty();
    // Before what came, so that the reader knows of the link first.
    state_->SetLink(true);
    state_->Push(*std::move(messages));
    co_return true;
  }

  const net::Url url_;
  const PollOptions options_;
  const std::shared_ptr<net::HttpClient> client_;
  const std::shared_ptr<PollState> state_;
  wire::DecodeLimits limits_;
  TrtllmNumbers numbers_;
  bool brought_ = false;  // the last answer had events; there may be more
};

class PollSocket final : public net::EventSocket {
 public:
  explicit PollSocket(std::shared_ptr<PollState> state) : state_(std::move(state)) {}
  ~PollSocket() override { state_->Close(); }
  PollSocket(const PollSocket&) = delete;
  PollSocket& operator=(const PollSocket&) = delete;

  bool Receive(net::Frames& frames) override {
    frames.Clear();
    TrtllmNumbers::Message message;
    if (!state_->PopMessage(message)) return false;
    frames.Add();  // no topic
    const auto sequence = BigEndian(message.sequence);
    frames.Add().assign(sequence.begin(), sequence.end());
    const auto payload = std::as_bytes(std::span(message.payload));
    frames.Add().assign(payload.begin(), payload.end());
    return true;
  }
  bool Send(std::span<const std::span<const std::byte>> /*parts*/) override { return false; }
  bool NextLinkEvent(net::LinkEvent& event) override { return state_->PopLink(event); }

 private:
  const std::shared_ptr<PollState> state_;
};

class PollingPoller final : public net::EventPoller {
 public:
  PollingPoller(std::unique_ptr<net::EventPoller> direct, net::IoRuntime& runtime,
                const PollOptions& options, std::shared_ptr<net::HttpClient> client)
      : direct_(std::move(direct)),
        runtime_(runtime),
        options_(options),
        client_(std::move(client)) {}

  Result<std::unique_ptr<net::EventSocket>> Subscribe(const std::string& endpoint,
                                                      const std::string& topic_prefix) override {
    if (!net::IsPolled(endpoint)) return direct_->Subscribe(endpoint, topic_prefix);
    KVR_TRY(auto url, net::PolledUrl(endpoint));
    const auto state = std::make_shared<PollState>(options_, *direct_);
    const auto task = std::make_shared<PollTask>(std::move(url), options_, client_, state);
    runtime_.Spawn([task]() { return Keep(task); });
    return std::unique_ptr<net::EventSocket>(std::make_unique<PollSocket>(state));
  }
  Result<std::unique_ptr<net::EventSocket>> Dealer(const std::string& endpoint) override {
    return direct_->Dealer(endpoint);
  }
  void Wait(Nanos timeout) override { direct_->Wait(timeout); }
  void Wake() override { direct_->Wake(); }

 private:
  static net::Task<void> Keep(std::shared_ptr<PollTask> task) { co_await task->Run(); }

  const std::unique_ptr<net::EventPoller> direct_;
  net::IoRuntime& runtime_;
  const PollOptions options_;
  const std::shared_ptr<net::HttpClient> client_;
};

class PollTransport final : public net::EventTransport {
 public:
  PollTransport(net::EventTransport& direct, net::IoRuntime& runtime, const PollOptions& options)
      : direct_(direct), runtime_(runtime), options_(options) {
    net::HttpClient::Options client;
    client.read_timeout = options.timeout;
    client.response_bytes_max = options.body_bytes_max;
    client_ = std::make_shared<net::HttpClient>(runtime, client);
  }

  std::unique_ptr<net::EventPoller> MakePoller() override {
    return std::make_unique<PollingPoller>(direct_.MakePoller(), runtime_, options_, client_);
  }

 private:
  net::EventTransport& direct_;
  net::IoRuntime& runtime_;
  const PollOptions options_;
  std::shared_ptr<net::HttpClient> client_;
};

}  // namespace

std::unique_ptr<net::EventTransport> MakePollTransport(net::EventTransport& direct,
                                                       net::IoRuntime& runtime,
                                                       const PollOptions& options) {
  return std::make_unique<PollTransport>(direct, runtime, options);
}

}  // namespace kvr::ingest
