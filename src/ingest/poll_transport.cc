#include "ingest/poll_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
constexpr std::string_view kPost = "POST";
constexpr std::string_view kGet = "GET";

// "No such path", "not so" and "never heard of it".
bool IsWrongMethod(int status) {
  return status == 404 || status == 405 || status == 501;
}

// While messages wait for their reader; far below what a peer takes for silence.
constexpr Millis kRoomPause{5};
// For the rest of an answer that nobody wants.
constexpr Millis kRestMax{1'000};
// Engines close what is idle for about 5 s. A connection that is closed just when it is used again
// costs whatever the request drained.
constexpr Millis kIdleMax{2'000};

// What became of requests. The names label a counter.
enum class Outcome : std::uint8_t {
  kList,
  kUnreachable,  // it was not sent
  kStatus,       // answered with a status that is not 200; nothing was drained
  kBroken,       // the answer broke off, or none came
  kSilent,       // likewise, for the peer was silent or endless
  kNoList,       // it is no list
};
constexpr std::array<std::string_view, 6> kOutcomeNames = {"list",       "unreachable", "status",
                                                           "broken_off", "silent",      "no_list"};

// The counters of all tasks; null without a registry.
struct PollCounters {
  std::array<metrics::Counter*, kOutcomeNames.size()> answers{};
  metrics::Counter* too_long = nullptr;

  explicit PollCounters(metrics::Registry* registry) {
    if (registry == nullptr) return;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      answers[i] = &registry->AddCounter(
          "kvr_ingest_poll_answers_total",
          "Requests for the events of engines that are asked for them, by what came of them",
          {{"outcome", std::string(kOutcomeNames[i])}});
    }
    too_long =
        &registry->AddCounter("kvr_ingest_poll_events_too_long_total",
                              "Events of such engines that were longer than a decoder takes");
  }
  void Count(Outcome outcome) const {
    if (auto* const counter = answers[static_cast<std::size_t>(outcome)]) counter->Add();
  }
  void CountTooLong(std::uint64_t events) const {
    if (too_long != nullptr) too_long->Add(events);
  }
};

// What the asking task and the reading thread share: one queue of messages and link events, so that
// the reader sees a message of another engine never before the break between the two. The task ends
// by itself once `closed`.
class PollState {
 public:
  PollState(const PollOptions& options, net::EventPoller& poller)
      : messages_max_(options.messages_max), bytes_max_(options.bytes_max), poller_(&poller) {}

  // --- for the task -----------------------------------------------------------------------------

  [[nodiscard]] bool closed() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return poller_ == nullptr;
  }
  [[nodiscard]] bool full() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return queue_.size() >= messages_max_ || bytes_ >= bytes_max_;
  }
  // The engine answers as it should.
  void SetUp() KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    fault_.clear();
    SetLink(net::LinkEvent::kConnected);
  }
  // It does not, and why.
  void SetDown(net::LinkEvent how, std::string fault) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    const bool news = fault_ != fault;
    fault_ = std::move(fault);
    // Of a link that never was up nothing needs to be told.
    if (link_ || how != net::LinkEvent::kDisconnected) SetLink(how);
    if (news) Wake();
  }
  // What the last message is about.
  void NoteLoss(std::string loss) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    loss_ = std::move(loss);
  }
  void Push(std::vector<TrtllmNumbers::Message> messages) KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    for (TrtllmNumbers::Message& message : messages) {
      // Behind a new link the reader takes a lower number for what it is.
      if (message.restart) {
        PushLink(net::LinkEvent::kDisconnected);
        PushLink(net::LinkEvent::kConnected);
        loss_.clear();
      }
      bytes_ += message.payload.size();
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
    bytes_ -= message.payload.size();
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
  [[nodiscard]] std::string note() const KVR_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return fault_.empty() ? loss_ : fault_;
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

  void SetLink(net::LinkEvent event) KVR_REQUIRES(mutex_) {
    if (std::exchange(link_, event) == event) return;
    PushLink(event);
    Wake();
  }
  void PushLink(net::LinkEvent event) KVR_REQUIRES(mutex_) { queue_.push_back({event, {}}); }
  void Wake() KVR_REQUIRES(mutex_) {
    if (poller_ != nullptr) poller_->Wake();
  }

  const std::size_t messages_max_;
  const std::size_t bytes_max_;
  mutable Mutex mutex_;
  net::EventPoller* poller_ KVR_GUARDED_BY(mutex_);            // null once the socket is gone
  std::optional<net::LinkEvent> link_ KVR_GUARDED_BY(mutex_);  // told last
  bool links_due_ KVR_GUARDED_BY(mutex_) = true;
  // While it is full nothing is read, so that the messages of a piece are all it can grow by.
  std::deque<Item> queue_ KVR_GUARDED_BY(mutex_);
  std::size_t bytes_ KVR_GUARDED_BY(mutex_) = 0;  // of its messages
  std::string fault_ KVR_GUARDED_BY(mutex_);      // why the link is down
  std::string loss_ KVR_GUARDED_BY(mutex_);       // the last one since the engine began
};

// Asks one engine until its socket is gone or the runtime stops.
class PollTask {
 public:
  PollTask(net::Url url, const PollOptions& options, std::shared_ptr<net::HttpClient> client,
           std::shared_ptr<const PollCounters> counters, std::shared_ptr<PollState> state)
      : url_(std::move(url)),
        options_(options),
        client_(std::move(client)),
        counters_(std::move(counters)),
        state_(std::move(state)) {}

  net::Task<void> Run() {
    Millis pause{0};
    while (!state_->closed()) {
      Millis wait = options_.interval;
      if (!state_->full()) {
        const bool good = co_await Ask();
        pause = good ? Millis{0} : std::clamp(pause * 2, options_.retry_first, options_.retry_max);
        if (!good) wait = pause;
        if (good && brought_) continue;
      }
      const bool slept = co_await net::Sleep(wait);
      if (!slept) co_return;
    }
  }

 private:
  // Engines register the path for POST, stand-ins for GET; the one that was not refused last is
  // asked first. False when the engine did not answer as it should.
  net::Task<bool> Ask() {
    std::array<int, 2> refusals{};
    for (int& refusal : refusals) {
      const std::optional<int> status = co_await AskOnce();
      if (!status) co_return false;
      if (*status == 200) co_return true;
      refusal = *status;
      if (!IsWrongMethod(refusal)) {
        state_->SetDown(
            net::LinkEvent::kRefused,
            fmt::format("{} {} is answered with the status {}", method_, kPath, refusal));
        co_return false;
      }
      method_ = method_ == kPost ? kGet : kPost;
    }
    state_->SetDown(
        net::LinkEvent::kRefused,
        fmt::format("{} {} is answered with the status {}, {} with {}; is it trtllm-serve?",
                    method_, kPath, refusals[0], method_ == kPost ? kGet : kPost, refusals[1]));
    co_return false;
  }

  // The status of the answer; none when there was none, or one that is no list, which has been
  // told.
  net::Task<std::optional<int>> AskOnce() {
    brought_ = false;
    net::HttpRequest request;
    request.method = method_;
    request.target = kPath;
    const auto begin = std::chrono::steady_clock::now();
    auto opened = co_await client_->Open(url_, request);
    if (!opened) {
      Fail(opened.error());
      co_return std::nullopt;
    }
    net::HttpStream& stream = **opened;
    if (stream.status() != 200) {
      counters_->Count(Outcome::kStatus);
      const int status = stream.status();
      co_await stream.ReadOut(kRestMax);
      co_return status;
    }
    std::uint64_t bytes = 0;
    std::uint64_t events = numbers_.events();
    auto last_event = begin;
    while (true) {
      const auto piece = co_await stream.Read();
      if (!piece) {
        Fail(piece.error(), bytes);
        co_return std::nullopt;
      }
      if (piece->empty()) break;
      bytes += piece->size();
      if (!Take(*piece)) {
        Lose(Outcome::kNoList,
             fmt::format("{} {} answered with what is no list of events, of which "
                         "{} bytes had come",
                         method_, kPath, bytes));
        co_return std::nullopt;
      }
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(events, numbers_.events()) != numbers_.events()) last_event = now;
      // Bytes that end no event tell nothing: who sends them is as good as silent.
      if (now - last_event > options_.timeout) {
        Lose(Outcome::kSilent,
             fmt::format("no event ended for {} ms (`ingest.poll_timeout_ms`), after {} bytes",
                         options_.timeout.count(), bytes));
        co_return std::nullopt;
      }
      if (now - begin > options_.answer_max) {
        Lose(Outcome::kSilent, fmt::format("an answer of {} bytes was not at its end after {} s",
                                           bytes, options_.answer_max.count() / 1'000));
        co_return std::nullopt;
      }
      while (state_->full() && !state_->closed()) {
        const bool slept = co_await net::Sleep(kRoomPause);
        if (!slept) co_return std::nullopt;
        last_event = std::chrono::steady_clock::now();
      }
      if (state_->closed()) co_return std::nullopt;
    }
    std::vector<TrtllmNumbers::Message> messages;
    if (!numbers_.End(messages)) {
      Lose(Outcome::kNoList, fmt::format("{} {} answered with a list of {} bytes that has no end",
                                         method_, kPath, bytes));
      co_return std::nullopt;
    }
    counters_->Count(Outcome::kList);
    // Before what came, so that the reader knows of the link first.
    state_->SetUp();
    Push(std::move(messages));
    co_return 200;
  }

  bool Take(std::string_view piece) {
    const std::uint64_t too_long = numbers_.events_too_long();
    std::vector<TrtllmNumbers::Message> messages;
    const bool good = numbers_.Take(piece, messages);
    if (const std::uint64_t more = numbers_.events_too_long() - too_long; more > 0) {
      counters_->CountTooLong(more);
      state_->NoteLoss(fmt::format("an event of more than {} MiB was left out",
                                   TrtllmNumbers::kEventBytesMax >> 20));
    }
    if (!messages.empty()) state_->SetUp();
    Push(std::move(messages));
    return good;
  }
  void Push(std::vector<TrtllmNumbers::Message> messages) {
    if (messages.empty()) return;
    brought_ = true;
    state_->Push(std::move(messages));
  }

  // A request that never left drains nothing; of any other the answer is lost.
  void Fail(const Error& error, std::uint64_t bytes = 0) {
    if (error.code == ErrorCode::kCancelled) return;
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOverloaded ||
        error.code == ErrorCode::kInvalidArgument) {
      counters_->Count(Outcome::kUnreachable);
      state_->SetDown(net::LinkEvent::kDisconnected, error.message);
      return;
    }
    const bool silent = error.code == ErrorCode::kTimeout;
    std::string why = error.message;
    if (silent) why += fmt::format(" (`ingest.poll_timeout_ms` is {})", options_.timeout.count());
    if (bytes > 0) why += fmt::format(", after {} bytes", bytes);
    Lose(silent ? Outcome::kSilent : Outcome::kBroken, std::move(why));
  }
  void Lose(Outcome outcome, std::string why) {
    counters_->Count(outcome);
    std::vector<TrtllmNumbers::Message> messages;
    numbers_.Lose(messages);
    state_->NoteLoss(fmt::format("what was drained is lost: {}", why));
    if (!messages.empty()) state_->Push(std::move(messages));
    state_->SetDown(
        outcome == Outcome::kNoList ? net::LinkEvent::kRefused : net::LinkEvent::kDisconnected,
        std::move(why));
  }

  const net::Url url_;
  const PollOptions options_;
  const std::shared_ptr<net::HttpClient> client_;
  const std::shared_ptr<const PollCounters> counters_;
  const std::shared_ptr<PollState> state_;
  TrtllmNumbers numbers_;
  std::string_view method_ = kPost;
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
                const PollOptions& options, std::shared_ptr<net::HttpClient> client,
                std::shared_ptr<const PollCounters> counters)
      : direct_(std::move(direct)),
        runtime_(runtime),
        options_(options),
        client_(std::move(client)),
        counters_(std::move(counters)) {}

  Result<std::unique_ptr<net::EventSocket>> Subscribe(const std::string& endpoint,
                                                      const std::string& topic_prefix) override {
    if (!net::IsPolled(endpoint)) return direct_->Subscribe(endpoint, topic_prefix);
    KVR_TRY(auto url, net::PolledUrl(endpoint));
    const auto state = std::make_shared<PollState>(options_, *direct_);
    const auto task =
        std::make_shared<PollTask>(std::move(url), options_, client_, counters_, state);
    std::erase_if(states_, [](const auto& entry) { return entry.second.expired(); });
    states_[endpoint] = state;
    runtime_.Spawn([task]() { return Keep(task); });
    return std::unique_ptr<net::EventSocket>(std::make_unique<PollSocket>(state));
  }
  Result<std::unique_ptr<net::EventSocket>> Dealer(const std::string& endpoint) override {
    return direct_->Dealer(endpoint);
  }
  void Wait(Nanos timeout) override { direct_->Wait(timeout); }
  void Wake() override { direct_->Wake(); }
  std::string NoteOf(const std::string& endpoint) override {
    const auto found = states_.find(endpoint);
    const auto state = found == states_.end() ? nullptr : found->second.lock();
    return state == nullptr ? direct_->NoteOf(endpoint) : state->note();
  }

 private:
  static net::Task<void> Keep(std::shared_ptr<PollTask> task) { co_await task->Run(); }

  const std::unique_ptr<net::EventPoller> direct_;
  net::IoRuntime& runtime_;
  const PollOptions options_;
  const std::shared_ptr<net::HttpClient> client_;
  const std::shared_ptr<const PollCounters> counters_;
  std::map<std::string, std::weak_ptr<PollState>> states_;  // by endpoint; the newest
};

class PollTransport final : public net::EventTransport {
 public:
  PollTransport(net::EventTransport& direct, net::IoRuntime& runtime, const PollOptions& options,
                metrics::Registry* registry)
      : direct_(direct),
        runtime_(runtime),
        options_(options),
        counters_(std::make_shared<const PollCounters>(registry)) {
    net::HttpClient::Options client;
    client.read_timeout = options.timeout;
    client.idle_timeout = kIdleMax;
    // What a request drained is gone, whether its answer comes or not.
    client.send_again = false;
    client_ = std::make_shared<net::HttpClient>(runtime, client);
  }

  std::unique_ptr<net::EventPoller> MakePoller() override {
    return std::make_unique<PollingPoller>(direct_.MakePoller(), runtime_, options_, client_,
                                           counters_);
  }

 private:
  net::EventTransport& direct_;
  net::IoRuntime& runtime_;
  const PollOptions options_;
  const std::shared_ptr<const PollCounters> counters_;
  std::shared_ptr<net::HttpClient> client_;
};

}  // namespace

std::unique_ptr<net::EventTransport> MakePollTransport(net::EventTransport& direct,
                                                       net::IoRuntime& runtime,
                                                       const PollOptions& options,
                                                       metrics::Registry* registry) {
  return std::make_unique<PollTransport>(direct, runtime, options, registry);
}

}  // namespace kvr::ingest
