#include "net/event_socket.h"

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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
  while (ReceiveOne(poller, *dealer, frames) && frames.size() == 4) {
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
  EXPECT_EQ(Replayed(*poller, *publisher), "0=envelope ");
}

TEST(EventPublisher, P34AFullQueueLeavesAMessageOutOfTheLiveStream) {
  const auto transport = MakeZmqTransport({});
  const auto poller = transport->MakePoller();
  EventPublisher::Options options;
  options.queue_max = 0;
  const auto publisher = MakePublisher(options);
  EXPECT_FALSE(publisher->TryPublishAt(0, Bytes("a")));
  publisher->Flush();
  EXPECT_FALSE(publisher->TryPublishAt(1, Bytes("b")));
  publisher->Flush();
  EXPECT_EQ(Replayed(*poller, *publisher), "0=a 1=b ");
  options.replay_messages_max = 0;
  const auto without = MakePublisher(options);
  EXPECT_FALSE(without->TryPublishAt(0, Bytes("a")));
  EXPECT_EQ(Replayed(*poller, *without), "");
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
  EXPECT_EQ(Replayed(*poller, *publisher), "");
}

TEST(EventPublisher, ATakenAddressIsNamedInTheError) {
  const auto publisher = MakePublisher();
  const auto second = EventPublisher::Create({.endpoint = publisher->endpoint()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
  EXPECT_NE(second.error().message.find(publisher->endpoint()), std::string::npos);
}

}  // namespace
}  // namespace kvr::net
