#include "net/event_socket.h"

#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "net/event_publisher.h"

namespace kvr::net {
namespace {

constexpr std::chrono::seconds kDeadline{10};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string Text(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes)
    text.push_back(static_cast<char>(b));
  return text;
}

std::uint64_t Sequence(std::span<const std::byte> bytes) {
  EXPECT_EQ(bytes.size(), 8u);
  std::uint64_t value = 0;
  for (const std::byte b : bytes)
    value = value << 8 | static_cast<std::uint8_t>(b);
  return value;
}

std::string BigEndian(std::uint64_t value) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    text[i] = static_cast<char>(value >> (56 - 8 * i));
  return text;
}

// Turns the poller's loop until `done`, or fails after the deadline.
bool Until(EventPoller& poller, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    poller.Wait(Millis{10});
  }
  return true;
}

bool ReceiveOne(EventPoller& poller, EventSocket& socket, Frames& frames) {
  return Until(poller, [&] { return socket.Receive(frames); });
}

bool AwaitLink(EventPoller& poller, EventSocket& socket, LinkEvent wanted) {
  return Until(poller, [&] {
    LinkEvent event{};
    return socket.NextLinkEvent(event) && event == wanted;
  });
}

// A subscription reaches the publisher some time after the handshake: publish markers until one
// arrives, so that nothing sent afterwards can be lost.
void Settle(EventPoller& poller, EventSocket& socket, EventPublisher& publisher) {
  Frames frames;
  ASSERT_TRUE(Until(poller, [&] {
    const std::array parts{Bytes(""), Bytes("marker")};
    publisher.SendRaw(parts);
    return socket.Receive(frames);
  }));
  const std::array last{Bytes(""), Bytes("settled")};
  publisher.SendRaw(last);
  ASSERT_TRUE(
      Until(poller, [&] { return socket.Receive(frames) && Text(frames[1]) == "settled"; }));
  publisher.Flush();
}

std::unique_ptr<EventPublisher> MakePublisher(EventPublisher::Options options = {}) {
  auto made = EventPublisher::Create(options);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

void SendRequest(EventSocket& dealer, std::uint64_t from) {
  const std::string start = BigEndian(from);
  const std::array parts{Bytes(""), Bytes(start)};
  ASSERT_TRUE(dealer.Send(parts));
}

TEST(EventSocket, LiveMessagesHaveThreeFramesAndBigEndianNumbers) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher({.topic = "kv@pod"});
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kConnected));
  Settle(*poller, *socket, *publisher);
  EXPECT_EQ(publisher->Publish(Bytes("a")), 0u);
  EXPECT_EQ(publisher->Publish(Bytes("b")), 1u);
  Frames frames;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(ReceiveOne(*poller, *socket, frames));
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(Text(frames[0]), "kv@pod");
    EXPECT_EQ(Sequence(frames[1]), i);
    EXPECT_EQ(Text(frames[2]), i == 0 ? "a" : "b");
  }
}

TEST(EventSocket, TheTopicIsAPrefixFilter) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher({.topic = "kv@b"});
  const auto other = std::move(*poller->Subscribe(publisher->endpoint(), "kv@a"));
  const auto all = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *all, *publisher);
  publisher->Publish(Bytes("x"));
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *all, frames));
  EXPECT_FALSE(other->Receive(frames));
}

TEST(EventSocket, T12ConnectingBeforeTheEngineBindsWorks) {
  const auto transport = MakeZmqTransport({.reconnect_first = Millis{10}});
  const auto poller = transport->MakePoller();
  auto first = MakePublisher();
  const std::string endpoint = first->endpoint();
  first.reset();  // now a port that nobody listens on
  const auto socket = std::move(*poller->Subscribe(endpoint, ""));
  LinkEvent event{};
  EXPECT_FALSE(socket->NextLinkEvent(event)) << "no link, no event";
  const auto publisher = MakePublisher({.endpoint = endpoint, .replay_endpoint = std::nullopt});
  EXPECT_EQ(publisher->replay_endpoint(), "");
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kConnected));
  Settle(*poller, *socket, *publisher);
}

TEST(EventSocket, ALossAndReturnOfTheEngineAreReported) {
  const auto transport = MakeZmqTransport({.reconnect_first = Millis{10}});
  const auto poller = transport->MakePoller();
  auto publisher = MakePublisher();
  const std::string endpoint = publisher->endpoint();
  const auto socket = std::move(*poller->Subscribe(endpoint, ""));
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kConnected));
  publisher.reset();
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kDisconnected));
  publisher = MakePublisher({.endpoint = endpoint});
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kConnected));
}

class ReplayLayouts : public testing::TestWithParam<ReplayLayout> {};

TEST_P(ReplayLayouts, AnswersFromTheRingAndEndsWithAMarker) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher =
      MakePublisher({.topic = "t", .replay_messages_max = 3, .layout = GetParam()});
  for (const char* payload : {"0", "1", "2", "3", "4"})
    publisher->Publish(Bytes(payload));
  publisher->Lose(Bytes("5"), false);
  publisher->Lose(Bytes("6"), true);
  publisher->Flush();
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*dealer, 1);
  const bool topic = GetParam() == ReplayLayout::kTopicSeqPayload;
  Frames frames;
  // The ring kept 3, 4 and 6.
  for (const std::uint64_t expected : {3u, 4u, 6u}) {
    ASSERT_TRUE(ReceiveOne(*poller, *dealer, frames));
    ASSERT_EQ(frames.size(), topic ? 4u : 3u);
    EXPECT_EQ(frames[0].size(), 0u);
    if (topic) {
      EXPECT_EQ(Text(frames[1]), "t");
    }
    EXPECT_EQ(Sequence(frames[frames.size() - 2]), expected);
    EXPECT_EQ(Text(frames[frames.size() - 1]), std::to_string(expected));
  }
  ASSERT_TRUE(ReceiveOne(*poller, *dealer, frames));
  ASSERT_EQ(frames.size(), topic ? 4u : 3u);
  EXPECT_EQ(Sequence(frames[frames.size() - 2]), ~std::uint64_t{0});
  EXPECT_EQ(frames[frames.size() - 1].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, ReplayLayouts,
                         testing::Values(ReplayLayout::kSeqPayload,
                                         ReplayLayout::kTopicSeqPayload));

TEST(EventSocket, ASilentReplayEndpointAnswersAgainWhenToldTo) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher();
  publisher->SetReplaySilent(true);
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*dealer, 0);
  const auto other = std::move(*poller->Dealer(publisher->replay_endpoint()));
  publisher->SetReplaySilent(false);
  SendRequest(*other, 0);
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *other, frames)) << "answered after the silence";
}

TEST(EventSocket, RequestsThatAreNoneGetNoAnswer) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher();
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  const std::array bare{Bytes("12345678")};
  ASSERT_TRUE(dealer->Send(bare));
  const std::array narrow{Bytes(""), Bytes("1234")};
  ASSERT_TRUE(dealer->Send(narrow));
  SendRequest(*dealer, 0);
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *dealer, frames));
  EXPECT_EQ(Sequence(frames[2]), ~std::uint64_t{0}) << "the first answer is to the third request";
  EXPECT_FALSE(dealer->Receive(frames));
}

TEST(EventSocket, AnOversizedMessageNeverArrivesAndTheStreamGoesOn) {
  const auto transport =
      MakeZmqTransport({.message_bytes_max = 1024, .reconnect_first = Millis{10}});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher();
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kConnected));
  Settle(*poller, *socket, *publisher);
  publisher->Publish(Bytes(std::string(100'000, 'x')));
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kDisconnected));
  Settle(*poller, *socket, *publisher);
}

TEST(EventSocket, APeerThatSpeaksAnotherProtocolIsTriedAgain) {
  const auto transport = MakeZmqTransport({.reconnect_first = Millis{10}});
  const auto poller = transport->MakePoller();
  auto publisher = MakePublisher();
  const std::string endpoint = publisher->replay_endpoint();
  const auto socket = std::move(*poller->Subscribe(endpoint, ""));
  Frames frames;
  const auto dealer = std::move(*poller->Dealer(endpoint));
  SendRequest(*dealer, 0);
  ASSERT_TRUE(ReceiveOne(*poller, *dealer, frames));
  LinkEvent event{};
  ASSERT_TRUE(AwaitLink(*poller, *socket, LinkEvent::kRefused)) << "a ROUTER is no publisher";
  publisher.reset();
  publisher = MakePublisher({.endpoint = endpoint});
  ASSERT_TRUE(Until(*poller, [&] {
    return !socket->Receive(frames) && socket->NextLinkEvent(event) &&
           event == LinkEvent::kConnected;
  }));
  Settle(*poller, *socket, *publisher);
}

TEST(EventSocket, ManyFramesAreBoundedAndStillCountAsWrong) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher();
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *socket, *publisher);
  const std::vector<std::span<const std::byte>> parts(1'000, Bytes("x"));
  publisher->SendRaw(parts);
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *socket, frames));
  EXPECT_GT(frames.size(), 4u);
  EXPECT_LT(frames.size(), 100u);
  publisher->Publish(Bytes("a"));
  ASSERT_TRUE(ReceiveOne(*poller, *socket, frames));
  EXPECT_EQ(frames.size(), 3u) << "the rest of the long message is gone";
}

TEST(EventSocket, WakeEndsAWaitFromAnotherThread) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  std::jthread waker([&] { poller->Wake(); });
  poller->Wait(std::chrono::duration_cast<Nanos>(std::chrono::hours(1)));
}

TEST(EventSocket, ABadEndpointIsRefused) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  EXPECT_EQ(poller->Subscribe("tcp://*:1", "").error().code, ErrorCode::kInvalidArgument);
  // The grammar lets these pass; ZeroMQ does not.
  for (const std::string& endpoint :
       {std::string("tcp://host name:1"), "ipc://" + std::string(300, 'x')}) {
    const auto refused = poller->Subscribe(endpoint, "");
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << endpoint;
    EXPECT_EQ(refused.error().message.find("invalid ZMQ endpoint `" + endpoint), 0u);
  }
  EXPECT_EQ(poller->Dealer("x").error().message,
            "invalid ZMQ endpoint `x`: missing scheme; "
            "write tcp://HOST:PORT");
}

// "0=a 1=b", or what a replay from message 0 has.
std::string Replayed(EventPoller& poller, const EventPublisher& publisher) {
  const auto dealer = std::move(*poller.Dealer(publisher.replay_endpoint()));
  SendRequest(*dealer, 0);
  std::string all;
  Frames frames;
  while (ReceiveOne(poller, *dealer, frames) && frames.size() >= 4) {
    if (frames.size() == 5) return all + "end of " + std::to_string(Sequence(frames[2]));
    if (frames[3].empty()) return all;
    all += std::to_string(Sequence(frames[2])) + "=" + Text(frames[3]) + " ";
  }
  return all + "without an end";
}

TEST(EventPublisher, MessagesOfAnEventPlaneHaveFourFrames) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher({.topic = "kv", .publisher_id = 0x0102030405060708u});
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *socket, *publisher);
  EXPECT_TRUE(publisher->TryPublishAt(0, Bytes("envelope")));
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *socket, frames));
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(Text(frames[0]), "kv");
  EXPECT_EQ(Sequence(frames[1]), 0x0102030405060708u);
  EXPECT_EQ(Sequence(frames[2]), 0u);
  EXPECT_EQ(Text(frames[3]), std::string("\1\0\0\0\x08", 5) + "envelope");
  EXPECT_EQ(Replayed(*poller, *publisher), "0=envelope end of 72623859790382856");
  const auto silent = MakePublisher({.topic = "kv", .publisher_id = 7});
  EXPECT_EQ(Replayed(*poller, *silent), "end of 7") << "it says who it is without a message, too";
}

// "0=a", or what the next live message is.
std::string NextLive(EventPoller& poller, EventSocket& socket) {
  Frames frames;
  if (!ReceiveOne(poller, socket, frames)) return "nothing";
  if (frames.size() != 3) return "no message";
  return std::to_string(Sequence(frames[1])) + "=" + Text(frames[2]);
}

TEST(EventPublisher, P34AFullQueueLeavesMessagesOutOfTheLiveStream) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  EventPublisher::Options by_number;
  by_number.queue_max = 2;
  by_number.replay_messages_max = 2;
  EventPublisher::Options by_bytes;
  by_bytes.queue_bytes_max = 5;  // two messages of two bytes
  by_bytes.replay_bytes_max = 4;
  for (const EventPublisher::Options& options : {by_number, by_bytes}) {
    const auto publisher = MakePublisher(options);
    const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
    Settle(*poller, *socket, *publisher);
    publisher->SetHeld(true);
    EXPECT_TRUE(publisher->TryPublishAt(0, Bytes("aa")));
    EXPECT_TRUE(publisher->TryPublishAt(1, Bytes("bb")));
    EXPECT_FALSE(publisher->TryPublishAt(2, Bytes("cc"))) << "kept for replay";
    EXPECT_FALSE(publisher->TryPublishAt(3, Bytes("dd"))) << "kept for replay";
    EXPECT_FALSE(publisher->TryPublishAt(4, Bytes("ee"))) << "lost";
    EXPECT_FALSE(publisher->TryPublishAt(5, Bytes("ff"))) << "the last of all";
    publisher->SetHeld(false);
    publisher->Flush();
    EXPECT_EQ(NextLive(*poller, *socket), "0=aa");
    EXPECT_EQ(NextLive(*poller, *socket), "1=bb");
    EXPECT_EQ(NextLive(*poller, *socket), "5=ff") << "shows the gap, though nothing follows";
    EXPECT_EQ(Replayed(*poller, *publisher), "3=dd 5=ff ");
    EXPECT_TRUE(publisher->TryPublishAt(6, Bytes("gg")));
    EXPECT_EQ(NextLive(*poller, *socket), "6=gg");
  }
}

TEST(EventPublisher, P34TheLastMessageGoesOutAlsoWhenItIsOnlyKeptForReplay) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher({.queue_max = 1});
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *socket, *publisher);
  publisher->SetHeld(true);
  EXPECT_TRUE(publisher->TryPublishAt(0, Bytes("a")));
  EXPECT_FALSE(publisher->TryPublishAt(1, Bytes("b")));
  EXPECT_FALSE(publisher->TryPublishAt(2, Bytes("c")));
  publisher->SetHeld(false);
  EXPECT_EQ(NextLive(*poller, *socket), "0=a");
  EXPECT_EQ(NextLive(*poller, *socket), "2=c");
  EXPECT_EQ(Replayed(*poller, *publisher), "0=a 1=b 2=c ");
}

TEST(EventPublisher, AnotherLifeThatBeginsBeyondAllLimitsForgetsTheFormer) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  const auto publisher = MakePublisher({.replay_messages_max = 2, .queue_max = 1});
  publisher->PublishAt(7, Bytes("old"));
  publisher->Flush();
  publisher->SetHeld(true);
  EXPECT_TRUE(publisher->TryPublishAt(8, Bytes("old")));
  EXPECT_FALSE(publisher->TryPublishAt(9, Bytes("old")));
  EXPECT_FALSE(publisher->TryPublishAt(10, Bytes("old")));
  EXPECT_FALSE(publisher->TryPublishAt(0, Bytes("lost")));
  EXPECT_FALSE(publisher->TryPublishAt(1, Bytes("new")));
  publisher->SetHeld(false);
  publisher->Flush();
  EXPECT_EQ(Replayed(*poller, *publisher), "1=new ");
}

TEST(EventPublisher, ASubscriberAtItsMarkIsCountedAndSeesTheGapInAQuietTime) {
  const auto transport = MakeZmqTransport({.receive_high_water = 1});
  const auto poller = transport->MakePoller();
  const auto publisher =
      MakePublisher({.send_high_water = 1, .repeat_first = Millis{20}, .repeats_max = 12});
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Frames frames;
  ASSERT_TRUE(Until(*poller, [&] {
    publisher->Publish(Bytes("marker"));
    return socket->Receive(frames);
  }));
  const std::string large(1 << 20, 'x');
  std::uint64_t last = 0;
  publisher->Flush();
  const std::uint64_t before = publisher->stats().at_mark;
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (publisher->stats().at_mark == before && std::chrono::steady_clock::now() < end) {
    last = publisher->Publish(Bytes(large));
    publisher->Flush();
  }
  ASSERT_GT(publisher->stats().at_mark, before);
  // Nothing is published any more, yet the newest number comes.
  std::uint64_t seen = 0;
  ASSERT_TRUE(Until(*poller,
                    [&] {
                      if (socket->Receive(frames)) seen = Sequence(frames[1]);
                      return seen == last;
                    }))
      << seen << " of " << last;
  EXPECT_EQ(Text(frames[2]), large);
  EXPECT_TRUE(Until(*poller, [&] { return publisher->stats().repeats > 0; }));
}

TEST(EventPublisher, TheEndWaitsForWhatWasFlushed) {
  constexpr int kMessages = 64;
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  auto publisher = MakePublisher({.linger = std::chrono::minutes(1)});
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *socket, *publisher);
  const std::string large(1 << 18, 'x');
  for (int i = 0; i < kMessages; ++i)
    publisher->Publish(Bytes(large));
  publisher->Flush();
  publisher.reset();
  Frames frames;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(ReceiveOne(*poller, *socket, frames)) << i;
    ASSERT_EQ(Sequence(frames[1]), i);
  }
}

// A publisher that keeps far more than the transport takes for a peer that reads nothing.
constexpr std::uint64_t kKept = 400;
std::unique_ptr<EventPublisher> MakeLoadedPublisher(EventPublisher::Options options = {}) {
  options.replay_high_water = 2;
  auto publisher = MakePublisher(options);
  const std::string large(64 << 10, 'x');
  for (std::uint64_t i = 0; i < kKept; ++i)
    publisher->Publish(Bytes(large));
  publisher->Flush();
  return publisher;
}

// Numbers of one answer, as "FIRST..LAST", or "FIRST..LAST and no end".
std::string AnswerRange(EventPoller& poller, EventSocket& dealer) {
  std::optional<std::uint64_t> first;
  std::uint64_t last = 0;
  Frames frames;
  while (ReceiveOne(poller, dealer, frames)) {
    const std::uint64_t number = Sequence(frames[2]);
    if (number == ~std::uint64_t{0}) return fmt::format("{}..{}", first.value_or(last), last);
    EXPECT_TRUE(!first || number == last + 1) << number << " after " << last;
    first = first.value_or(number);
    last = number;
  }
  return fmt::format("{}..{} and no end", first.value_or(last), last);
}

TEST(EventPublisher, APeerThatAsksAndDoesNotReadHoldsTwoAnswers) {
  constexpr std::uint64_t kRequests = 50;
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  const auto publisher = MakeLoadedPublisher();
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const std::string start = BigEndian(i);
    const std::array parts{Bytes(""), Bytes(start)};
    ASSERT_TRUE(Until(*poller, [&] { return dealer->Send(parts); }));
  }
  ASSERT_TRUE(Until(*poller, [&] { return publisher->stats().replay_requests == kRequests; }));
  // Neither the live stream nor another peer waits for it.
  const auto socket = std::move(*poller->Subscribe(publisher->endpoint(), ""));
  Settle(*poller, *socket, *publisher);
  publisher->Publish(Bytes("live"));
  EXPECT_EQ(NextLive(*poller, *socket), "400=live");
  const auto other = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*other, kKept - 2);
  EXPECT_EQ(AnswerRange(*poller, *other), "398..400");

  EXPECT_EQ(AnswerRange(*poller, *dealer), "0..399") << "ends where the ring did";
  EXPECT_EQ(AnswerRange(*poller, *dealer), "49..400") << "the last request of all";
  SendRequest(*dealer, kKept);
  EXPECT_EQ(AnswerRange(*poller, *dealer), "400..400") << "there was no third answer";
  EXPECT_EQ(publisher->stats().replays_given_up, 0u);
}

TEST(EventPublisher, BeyondTheLimitOfPeersTheIdlestGetsNoEnd) {
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  const auto publisher = MakeLoadedPublisher({.replay_peers_max = 1});
  const auto idle = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*idle, 0);
  ASSERT_TRUE(Until(*poller, [&] { return publisher->stats().replay_requests == 1; }));
  const auto other = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*other, 0);
  EXPECT_EQ(AnswerRange(*poller, *other), "0..399");
  EXPECT_EQ(publisher->stats().replays_given_up, 1u);
}

TEST(EventPublisher, APeerThatTakesNothingForLongGetsNoEnd) {
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  const auto publisher = MakeLoadedPublisher({.replay_stall_max = Millis{1}});
  const auto idle = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*idle, 0);
  EXPECT_TRUE(Until(*poller, [&] { return publisher->stats().replays_given_up == 1; }));
}

// Answers "N parts" with parts 0 to N-1 of 64 KiB; nothing else.
class CountedParts final : public AnswerSource {
 public:
  std::unique_ptr<AnswerParts> Answer(std::string_view wanted) override {
    int count = 0;
    const auto read = std::from_chars(wanted.data(), wanted.data() + wanted.size(), count);
    if (read.ec != std::errc() || !wanted.ends_with(" parts")) return nullptr;
    return std::make_unique<Parts>(count);
  }

 private:
  class Parts final : public AnswerParts {
   public:
    explicit Parts(int count) : left_(count) {}
    bool Next(std::string& kind, std::string& body) override {
      if (left_ == 0) return false;
      kind = --left_ == 0 ? "last" : "part";
      body.assign(64 << 10, 'x');
      return true;
    }

   private:
    int left_;
  };
};

void Ask(EventSocket& dealer, std::string_view wanted) {
  const std::string start = BigEndian(0);
  const std::array parts{Bytes(""), Bytes(start), Bytes(wanted)};
  ASSERT_TRUE(dealer.Send(parts));
}

// How many parts came up to the last, waits not counted; -1 when none came or one is out of order.
int PartsOf(EventPoller& poller, EventSocket& dealer) {
  Frames frames;
  for (int count = 0; ReceiveOne(poller, dealer, frames);) {
    EXPECT_EQ(frames.size(), 4u);
    EXPECT_EQ(Text(frames[0]), "");
    if (Text(frames[1]) == "wait") continue;
    if (Sequence(frames[2]) != static_cast<std::uint64_t>(count++)) return -1;
    EXPECT_EQ(frames[3].size(), std::size_t{64} << 10);
    if (Text(frames[1]) == "last") return count;
  }
  return -1;
}

TEST(EventPublisher, WhatIsWantedBesideMessagesComesFromItsSource) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  CountedParts source;
  const auto publisher = MakePublisher();
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  Ask(*dealer, "3 parts");  // nobody answers that yet
  SendRequest(*dealer, 0);
  EXPECT_EQ(AnswerRange(*poller, *dealer), "0..0");
  publisher->SetAnswers(&source);
  Ask(*dealer, "else");
  Ask(*dealer, "100 parts");
  EXPECT_EQ(PartsOf(*poller, *dealer), 100);
  SendRequest(*dealer, 0);
  EXPECT_EQ(AnswerRange(*poller, *dealer), "0..0") << "nothing of it is left";
  const EventPublisher::Stats stats = publisher->stats();
  EXPECT_EQ(stats.source_answers, 1u);
  EXPECT_EQ(stats.source_answer_bytes, std::uint64_t{100} * (64 << 10));
}

TEST(EventPublisher, AnswersOfASourceWaitForEachOtherAndForNoSlowPeer) {
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  CountedParts source;
  const auto publisher =
      MakePublisher({.replay_high_water = 2, .source_answers_max = 1, .wait_interval = Millis{1}});
  publisher->SetAnswers(&source);
  const auto slow = std::move(*poller->Dealer(publisher->replay_endpoint()));
  Ask(*slow, "400 parts");
  ASSERT_TRUE(Until(*poller, [&] { return publisher->stats().source_answers == 1; }));
  const auto next = std::move(*poller->Dealer(publisher->replay_endpoint()));
  Ask(*next, "5 parts");
  Frames frames;
  ASSERT_TRUE(ReceiveOne(*poller, *next, frames));
  EXPECT_EQ(Text(frames[1]), "wait");
  EXPECT_EQ(publisher->stats().source_answers, 1u);
  // Messages do not wait.
  const auto other = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*other, 0);
  EXPECT_EQ(AnswerRange(*poller, *other), "0..0");
  EXPECT_EQ(PartsOf(*poller, *slow), 400);
  EXPECT_EQ(PartsOf(*poller, *next), 5);
}

TEST(EventPublisher, AnAnswerOfASourceEndsWithItsPeer) {
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  CountedParts source;
  const auto publisher = MakePublisher({.replay_high_water = 2, .source_answers_max = 1});
  publisher->SetAnswers(&source);
  {
    const auto gone = std::move(*poller->Dealer(publisher->replay_endpoint()));
    Ask(*gone, "1000000 parts");
    ASSERT_TRUE(Until(*poller, [&] { return publisher->stats().source_answers == 1; }));
  }
  const auto next = std::move(*poller->Dealer(publisher->replay_endpoint()));
  Ask(*next, "5 parts");
  EXPECT_EQ(PartsOf(*poller, *next), 5);
}

TEST(EventPublisher, APeerThatGoesAwayDuringItsAnswerIsForgotten) {
  const auto transport = MakeZmqTransport({.replay_high_water = 2});
  const auto poller = transport->MakePoller();
  const auto publisher = MakeLoadedPublisher({.replay_peers_max = 1});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const auto gone = std::move(*poller->Dealer(publisher->replay_endpoint()));
    SendRequest(*gone, 0);
    ASSERT_TRUE(Until(*poller, [&] { return publisher->stats().replay_requests == i; }));
  }
  const auto dealer = std::move(*poller->Dealer(publisher->replay_endpoint()));
  SendRequest(*dealer, kKept - 1);
  EXPECT_EQ(AnswerRange(*poller, *dealer), "399..399");
}

TEST(EventPublisher, ReplayIsBoundedByBytes) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  EventPublisher::Options options;
  options.replay_bytes_max = 10;
  const auto publisher = MakePublisher(options);
  for (const std::string_view text : {"aaaa", "bbbb", "cc", "dddd"})
    publisher->Publish(Bytes(text));
  publisher->Flush();
  EXPECT_EQ(Replayed(*poller, *publisher), "1=bbbb 2=cc 3=dddd ");
  publisher->Publish(Bytes("eleven bytes"));
  publisher->Flush();
  EXPECT_EQ(Replayed(*poller, *publisher), "4=eleven bytes ") << "the newest is always kept";
}

// Whoever asks for the first message and gets none takes it that there was none.
TEST(EventPublisher, ReplayHasTheNewestMessageWhateverTheLimits) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  EventPublisher::Options no_messages;
  no_messages.replay_messages_max = 0;
  EventPublisher::Options no_bytes;
  no_bytes.replay_bytes_max = 0;
  EventPublisher::Options few_bytes;
  few_bytes.replay_bytes_max = 3;
  for (const EventPublisher::Options& options : {no_messages, no_bytes, few_bytes}) {
    const auto publisher = MakePublisher(options);
    EXPECT_EQ(Replayed(*poller, *publisher), "");
    for (const std::string_view text : {"aa", "bbbb", "cccc"})
      publisher->Publish(Bytes(text));
    publisher->Flush();
    EXPECT_EQ(Replayed(*poller, *publisher), "2=cccc ");
  }
}

TEST(EventPublisher, ATakenAddressIsNamedInTheError) {
  const auto publisher = MakePublisher();
  const auto second = EventPublisher::Create({.endpoint = publisher->endpoint()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_NE(second.error().message.find(publisher->endpoint()), std::string::npos);
}

TEST(Frames, KeepTheRoomOfOrdinaryPartsAndGiveBackThatOfOthers) {
  Frames frames;
  frames.Add().resize(100);
  frames.Add().resize(ReusedLists::kKeptBytesMax + 1);
  for (std::uint32_t i = 0; i < ReusedLists::kLookEvery; ++i)
    frames.Clear();
  EXPECT_EQ(frames.size(), 0u);
  EXPECT_GE(frames.Add().capacity(), 100u);
  EXPECT_EQ(frames.Add().capacity(), 0u);
}

}  // namespace
}  // namespace kvr::net
