// The mock engine over real sockets: HTTP, ZeroMQ and the faults.
#include "sim/mock_server.h"

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "base/big_endian.h"
#include "net/event_socket.h"
#include "net/http_client.h"
#include "net/net_test_util.h"
#include "openai/usage.h"
#include "wire/event_decoder.h"

namespace kvr::sim {
namespace {

using net::testing::Eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::uint32_t kBlockSize = 4;

// A client that reads one piece of a stream and goes away.
net::Task<std::string> ReadFirstPiece(net::HttpClient& client, const net::Url& peer,
                                      const net::HttpRequest& request) {
  auto stream = co_await client.Open(peer, request);
  if (!stream) co_return stream.error().message;
  const auto piece = co_await (*stream)->Read();
  co_return piece ? std::string(*piece) : piece.error().message;
}

class MockServerTest : public ::testing::Test {
 protected:
  MockServerTest() {
    options_.engine.core.pool.block_size = kBlockSize;
    options_.engine.core.pool.blocks_max = 64;
    options_.engine.core.time.speedup = 100;
    options_.engine.tick = Nanos{0};
  }
  ~MockServerTest() override {
    if (server_) server_->Stop(Millis{0});
    client_runtime_.Stop();
    runtime_.Stop();
  }

  void Start() {
    auto server = MockServer::Create(runtime_, options_);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = *std::move(server);
    peer_ = *net::ParseUrl("http://" + server_->address_port());
  }

  Result<net::HttpResponse> Send(std::string method, std::string target, std::string body = {},
                                 std::string_view rank = {}) {
    net::HttpRequest request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    if (!rank.empty()) request.headers.Add("X-Data-Parallel-Rank", rank);
    return net::testing::RunOn<Result<net::HttpResponse>>(
        client_runtime_, [&] { return client_.Fetch(peer_, request); });
  }
  std::string Body(std::string method, std::string target, std::string body = {}) {
    const auto response = Send(std::move(method), std::move(target), std::move(body));
    EXPECT_TRUE(response.has_value()) << response.error().message;
    return response ? response->body : "";
  }
  int Status(std::string method, std::string target, std::string body = {},
             std::string_view rank = {}) {
    const auto response = Send(std::move(method), std::move(target), std::move(body), rank);
    return response ? response->status : -1;
  }
  void Fault(const std::string& body) {
    EXPECT_EQ(Body("POST", "/mock/fault", body), R"({"ok":true})");
  }

  // The usage of one completion of `tokens`.
  openai::Usage Complete(const std::vector<TokenId>& tokens, std::uint32_t max_tokens = 1,
                         std::string_view rank = {}) {
    const std::string body = fmt::format(R"({{"model":"mock","prompt":[{}],"max_tokens":{}}})",
                                         fmt::join(tokens, ","), max_tokens);
    const auto response = Send("POST", "/v1/completions", body, rank);
    EXPECT_TRUE(response.has_value() && response->status == 200);
    const auto usage =
        response ? openai::UsageOfAnswer(response->body) : std::optional<openai::Usage>();
    EXPECT_TRUE(usage.has_value());
    return usage.value_or(openai::Usage{});
  }

  double Metric(std::string_view name, int rank = 0) {
    const std::string text = Body("GET", "/metrics");
    const std::string series =
        fmt::format("\n{}{{model_name=\"mock\",engine=\"{}\"}} ", name, rank);
    const std::size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size()));
  }

  MockServer::Options options_;
  net::IoRuntime runtime_{net::IoRuntime::Options{}};
  net::IoRuntime client_runtime_{net::IoRuntime::Options{}};
  net::HttpClient client_{client_runtime_, net::HttpClient::Options{}};
  std::unique_ptr<MockServer> server_;
  net::Url peer_;
};

// `length` different tokens.
std::vector<TokenId> Tokens(std::uint32_t length, TokenId first = 0) {
  std::vector<TokenId> tokens(length);
  for (std::uint32_t i = 0; i < length; ++i)
    tokens[i] = first + i;
  return tokens;
}

TEST_F(MockServerTest, StreamsEachTokenAndTellsTheTruthAboutTheCache) {
  Start();
  const std::string body =
      R"({"model":"mock","prompt":"w0 w1 w2 w3 w4 w5 w6 w7 w8","max_tokens":3,"stream":true,)"
      R"("stream_options":{"include_usage":true}})";
  const auto first = Send("POST", "/v1/completions", body);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(first->headers.Find("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_TRUE(first->body.ends_with("data: [DONE]\n\n"));
  std::size_t events = 0;
  for (std::size_t at = 0; (at = first->body.find("data: ", at)) != std::string::npos; ++at)
    ++events;
  EXPECT_EQ(events, 5u) << "three tokens, usage and the end";
  EXPECT_THAT(first->body, HasSubstr(R"("prompt_tokens":9,"total_tokens":12)"));
  EXPECT_THAT(first->body, HasSubstr(R"("cached_tokens":0)"));

  // The same prompt as ids: both of its complete blocks are there.
  EXPECT_EQ(Complete(Tokens(9)).cached_tokens, 8u);
  EXPECT_EQ(Metric("vllm:prefix_cache_queries_total"), 18);
  EXPECT_EQ(Metric("vllm:prefix_cache_hits_total"), 8);
  EXPECT_EQ(Metric("vllm:generation_tokens_total"), 4);
  EXPECT_EQ(Metric("vllm:num_requests_running"), 0);
  EXPECT_EQ(Metric("vllm:kv_cache_usage_perc"), 0);
}

TEST_F(MockServerTest, AClientThatReadsSlowlyGetsTheWholeStream) {
  constexpr int kOutput = 60'000;  // more than the kernel buffers
  options_.engine.core.pool.blocks_max = 16'384;
  options_.engine.core.time.speedup = 10'000;
  options_.engine.tick = std::chrono::milliseconds(1);
  Start();
  net::testing::RawClient client(peer_.port, 4'096);
  const std::string body =
      fmt::format(R"({{"model":"mock","prompt":[1,2,3],"max_tokens":{},"stream":true}})", kOutput);
  ASSERT_TRUE(
      client.Send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: m\r\n"
                              "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
                              body.size(), body)));
  EXPECT_TRUE(
      Eventually([&] { return Metric("vllm:generation_tokens_total") == double{kOutput}; }));
  const std::string answer = client.ReadToEnd();
  EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"))
      << answer.substr(answer.size() - 200);
  int tokens = 0;
  constexpr std::string_view kToken = R"("text":")";
  for (std::size_t at = 0; (at = answer.find(kToken, at)) != std::string::npos; ++at)
    ++tokens;
  EXPECT_EQ(tokens, kOutput);
}

TEST_F(MockServerTest, TheSamePromptIsAnsweredWithTheSameWords) {
  Start();
  const std::string body = R"({"model":"mock","messages":[{"role":"user","content":"hi"}],)"
                           R"("max_tokens":5,"stream":false})";
  const auto content = [&] {
    const std::string answer = Body("POST", "/v1/chat/completions", body);
    return answer.substr(answer.find("\"choices\""), answer.find("\"usage\"") - 10);
  };
  const std::string first = content();
  EXPECT_THAT(first, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_EQ(content().substr(0, 80), first.substr(0, 80));
}

TEST_F(MockServerTest, TokenizesAsItServes) {
  Start();
  EXPECT_EQ(Body("POST", "/tokenize", R"({"prompt":"w1 w2"})"),
            R"({"count":2,"max_model_len":257,"tokens":[1,2]})");
  EXPECT_EQ(Body("POST", "/detokenize", R"({"tokens":[1,2]})"), R"({"prompt":" w1 w2"})");
  EXPECT_THAT(Body("GET", "/v1/models"), HasSubstr(R"("id":"mock")"));
  EXPECT_EQ(Status("GET", "/health"), 200);
}

TEST_F(MockServerTest, RefusesWithTheErrorsOfTheApi) {
  options_.engine.ranks = 2;
  options_.engine.core.waiting_max = 1;
  Start();
  EXPECT_EQ(Status("POST", "/v1/completions", "{"), 400);
  EXPECT_EQ(Status("POST", "/v1/completions", R"({"model":"other","prompt":"a"})"), 404);
  EXPECT_EQ(Status("POST", "/v1/completions", R"({"model":"mock","prompt":[]})"), 400);
  const std::string too_long =
      fmt::format(R"({{"model":"mock","prompt":[{}]}})", fmt::join(Tokens(257), ","));
  EXPECT_EQ(Status("POST", "/v1/completions", too_long), 400);
  EXPECT_EQ(Status("GET", "/v1/completions"), 405);
  EXPECT_EQ(Status("POST", "/nowhere"), 404);

  const std::string good = R"({"model":"mock","prompt":"a"})";
  EXPECT_EQ(Status("POST", "/v1/completions", good, "2"), 400);
  EXPECT_EQ(Status("POST", "/v1/completions", good, "99999999999"), 400);
  EXPECT_EQ(Status("POST", "/v1/completions", good, "-1"), 400);
  EXPECT_EQ(Status("POST", "/v1/completions", good, "99999999999999999999"), 400);
  EXPECT_EQ(Status("POST", "/v1/completions", good, "1"), 200);
  EXPECT_EQ(Status("POST", "/v1/completions", good, "one"), 200) << "no integer: ignored";
  EXPECT_THAT(Body("POST", "/v1/completions", "{"), HasSubstr(R"({"error":{"message":)"));
}

TEST_F(MockServerTest, SaysWhenToTryAgainAndThatItIsReady) {
  Start();
  EXPECT_EQ(Body("GET", "/ready"), R"({"ready":true,"reasons":[]})");
  Fault(R"({"error_requests":2,"error_status":429})");
  const std::string good = R"({"model":"mock","prompt":"a"})";
  const auto busy = Send("POST", "/v1/completions", good);
  ASSERT_TRUE(busy.has_value());
  EXPECT_EQ(busy->status, 429);
  EXPECT_EQ(busy->headers.Find("Retry-After"), "1");
}

TEST_F(MockServerTest, AClientThatLeavesFreesItsBlocks) {
  options_.engine.core.time.speedup = 1;
  Start();
  net::HttpRequest request;
  request.method = "POST";
  request.target = "/v1/completions";
  request.body = R"({"model":"mock","prompt":"a b c d e","max_tokens":200,"stream":true})";
  const std::string piece = net::testing::RunOn<std::string>(
      client_runtime_, [&] { return ReadFirstPiece(client_, peer_, request); });
  EXPECT_THAT(piece, HasSubstr("data: {"));
  EXPECT_TRUE(Eventually([&] {
    return Metric("vllm:num_requests_running") == 0 && Metric("vllm:kv_cache_usage_perc") == 0;
  }));
  EXPECT_LT(Metric("vllm:generation_tokens_total"), 200);
}

// What a reader of one rank's event stream knows, from the replay socket and the live one.
class EventReader {
 public:
  EventReader(const std::string& events, const std::string& replay) {
    live_ = *poller_->Subscribe(events, "");
    if (!replay.empty()) dealer_ = *poller_->Dealer(replay);
  }

  struct Message {
    std::uint64_t sequence = 0;
    std::size_t frames = 0;
    wire::EventBatch batch;
    std::vector<std::byte> payload;  // what the batch's texts point into
  };

  // Live messages until `enough`; false after 10 s.
  bool ReadLive(const std::function<bool()>& enough) {
    net::Frames frames;
    return Until([&] {
      while (live_->Receive(frames))
        Add(frames, 1, live);
      return enough();
    });
  }

  // Asks for everything from `start`. False when no end came within `limit`.
  bool Replay(std::uint64_t start, Nanos limit = std::chrono::seconds(10)) {
    replayed.clear();
    const auto number = BigEndian(start);
    const std::array<std::span<const std::byte>, 2> parts = {std::span<const std::byte>{}, number};
    net::Frames frames;
    if (!Until([&] { return dealer_->Send(parts); })) return false;
    bool ended = false;
    return Until(
        [&] {
          while (!ended && dealer_->Receive(frames)) {
            ended = frames[frames.size() - 1].empty();
            // ["", seq, payload] or ["", topic, seq, payload].
            if (!ended) Add(frames, frames.size() - 2, replayed);
          }
          return ended;
        },
        limit);
  }

  std::vector<Message> live;
  std::vector<Message> replayed;

 private:
  static void Add(const net::Frames& frames, std::size_t sequence_at, std::vector<Message>& to) {
    Message message;
    message.frames = frames.size();
    ASSERT_GT(frames.size(), sequence_at + 1);
    ASSERT_EQ(frames[sequence_at].size(), 8u);
    for (const std::byte byte : frames[sequence_at])
      message.sequence = message.sequence << 8 | std::to_integer<std::uint64_t>(byte);
    const auto payload = frames[sequence_at + 1];
    message.payload.assign(payload.begin(), payload.end());
    const auto decoded = wire::DecodeEventBatch(message.payload, {}, message.batch);
    EXPECT_TRUE(decoded.has_value());
    EXPECT_THAT(message.batch.bad, IsEmpty());
    to.push_back(std::move(message));
  }

  bool Until(const std::function<bool()>& done, Nanos limit = std::chrono::seconds(10)) {
    const SystemClock clock;
    const Nanos deadline = clock.Now() + limit;
    while (!done()) {
      if (clock.Now() > deadline) return false;
      poller_->Wait(Millis{20});
    }
    return true;
  }

  std::unique_ptr<net::EventTransport> transport_ = net::MakeZmqTransport({});
  std::unique_ptr<net::EventPoller> poller_ = transport_->MakePoller();
  std::unique_ptr<net::EventSocket> live_;
  std::unique_ptr<net::EventSocket> dealer_;
};

using Held = std::map<std::string, std::set<std::uint64_t>>;

// What the messages leave behind, by medium.
Held Apply(const std::vector<EventReader::Message>& messages) {
  Held held;
  for (const auto& message : messages) {
    for (const wire::EngineEvent& event : message.batch.events) {
      if (event.type == wire::EventType::kCleared) held.clear();
      auto& medium = held[std::string(event.medium)];
      for (const EngineHash hash : message.batch.HashesOf(event)) {
        if (event.type == wire::EventType::kStored) {
          EXPECT_TRUE(medium.insert(Raw(hash)).second);
        } else {
          EXPECT_EQ(medium.erase(Raw(hash)), 1u);
        }
      }
    }
  }
  return held;
}

// /mock/blocks of one rank and tier.
std::set<std::uint64_t> Blocks(const std::string& json, std::size_t rank, std::string_view tier) {
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.parse(json);
  std::set<std::uint64_t> blocks;
  for (const simdjson::dom::element hash : root["ranks"].at(rank)[tier].get_array())
    blocks.insert(hash.get_uint64());
  return blocks;
}

struct DialectCase {
  const char* name;
  const char* device;  // medium
  const char* host;    // null: no host tier
};

class MockDialectTest : public MockServerTest, public ::testing::WithParamInterface<DialectCase> {};

TEST_P(MockDialectTest, M21_EventsReplayedEqualThePoolOverRealSockets) {
  const DialectCase& dialect = GetParam();
  options_.engine.dialect = dialect.name;
  options_.engine.core.pool.blocks_max = 12;
  if (dialect.host != nullptr) options_.engine.core.pool.host_blocks_max = 20;
  options_.engine.ranks = 2;
  Start();
  EventReader reader(server_->engine().event_endpoints()[1],
                     server_->engine().replay_endpoints()[1]);
  for (TokenId document = 0; document < 12; ++document)
    Complete(Tokens(17 + document % 3, 100 * (document % 5)), 6, "1");

  // The answer does not wait for the publisher's thread, which may still have messages to take.
  ASSERT_TRUE(Eventually([&] {
    return reader.Replay(0) &&
           Metric("kvr_sim_event_messages_total", 1) == static_cast<double>(reader.replayed.size());
  }));
  ASSERT_THAT(reader.replayed, Not(IsEmpty()));
  EXPECT_EQ(reader.replayed[0].frames, 3u) << "the layout of these releases";
  for (std::size_t i = 0; i < reader.replayed.size(); ++i) {
    EXPECT_EQ(reader.replayed[i].sequence, i);
    EXPECT_EQ(reader.replayed[i].batch.dp_rank, 1u);
  }
  const std::string blocks = Body("GET", "/mock/blocks");
  Held held = Apply(reader.replayed);
  EXPECT_EQ(held[dialect.device], Blocks(blocks, 1, "device"));
  EXPECT_THAT(Blocks(blocks, 0, "device"), IsEmpty());
  if (dialect.host != nullptr) {
    EXPECT_EQ(held[dialect.host], Blocks(blocks, 1, "host_pinned"));
    EXPECT_THAT(held[dialect.host], SizeIs(20));
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, MockDialectTest,
                         ::testing::Values(DialectCase{"vllm-0.9", "", nullptr},
                                           DialectCase{"vllm-0.14", "GPU", "CPU"},
                                           DialectCase{"vllm-0.24", "GPU", "CPU"},
                                           DialectCase{"sglang", "GPU", "CPU_PINNED"}),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

TEST_F(MockServerTest, StoredEventsCarryTokensAndParents) {
  Start();
  EventReader reader(server_->engine().event_endpoints()[0],
                     server_->engine().replay_endpoints()[0]);
  Complete(Tokens(9));
  Complete(Tokens(13));
  ASSERT_TRUE(reader.Replay(0));
  ASSERT_THAT(reader.replayed, SizeIs(2));
  const wire::EventBatch& first = reader.replayed[0].batch;
  ASSERT_THAT(first.events, SizeIs(1));
  EXPECT_FALSE(first.events[0].parent.has_value());
  EXPECT_EQ(first.events[0].block_size, kBlockSize);
  EXPECT_THAT(first.TokensOf(first.events[0]), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(first.events[0].kind_name, "full_attention");
  const wire::EventBatch& second = reader.replayed[1].batch;
  ASSERT_THAT(second.events, SizeIs(1));
  EXPECT_EQ(second.events[0].parent, first.HashesOf(first.events[0])[1]);
  EXPECT_THAT(second.TokensOf(second.events[0]), ElementsAre(8, 9, 10, 11));
}

TEST_F(MockServerTest, HostCopiesAreAnnouncedAsTheReleaseDoes) {
  options_.engine.core.pool.host_blocks_max = 8;
  Start();
  EventReader reader(server_->engine().event_endpoints()[0],
                     server_->engine().replay_endpoints()[0]);
  Complete(Tokens(9));
  ASSERT_TRUE(reader.Replay(0));
  ASSERT_THAT(reader.replayed, SizeIs(1));
  const wire::EventBatch& batch = reader.replayed[0].batch;
  ASSERT_THAT(batch.events, SizeIs(3))
      << "one run on the device, a placeholder a block on the host";
  EXPECT_EQ(batch.events[0].medium, "GPU");
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(batch.events[i].medium, "CPU");
    EXPECT_EQ(batch.events[i].block_size, 0u);
    EXPECT_THAT(batch.TokensOf(batch.events[i]), IsEmpty());
    EXPECT_EQ(batch.HashesOf(batch.events[i])[0], batch.HashesOf(batch.events[0])[i - 1]);
  }
}

TEST_F(MockServerTest, ADialectWithoutMediaRefusesAHostTier) {
  options_.engine.dialect = "vllm-0.9";
  options_.engine.core.pool.host_blocks_max = 8;
  const auto server = MockServer::Create(runtime_, options_);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MockServerTest, UnknownDialectsAndTakenPortsAreErrors) {
  options_.engine.dialect = "vllm-7";
  auto server = MockServer::Create(runtime_, options_);
  ASSERT_FALSE(server.has_value());
  EXPECT_THAT(server.error().message, HasSubstr("vllm-0.24"));

  options_.engine.dialect = "sglang";
  Start();
  MockServer::Options again = options_;
  again.port = peer_.port;
  server = MockServer::Create(runtime_, again);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code, ErrorCode::kIo);
}

// trtllm-serve has the path for POST.
TEST_F(MockServerTest, APulledDialectIsAskedWithPostOrGet) {
  options_.engine.dialect = "trtllm-json";
  Start();
  Complete(Tokens(9));
  EXPECT_THAT(Body("POST", "/kv_cache_events"), HasSubstr(R"("stored")"));
  EXPECT_EQ(Body("POST", "/kv_cache_events"), "[]") << "asking drains it";
  Complete(Tokens(9, 100));
  EXPECT_THAT(Body("GET", "/kv_cache_events"), HasSubstr(R"("stored")"));
}

TEST_F(MockServerTest, ReplayInTheNewLayoutWithTopic) {
  options_.engine.replay_layout = net::ReplayLayout::kTopicSeqPayload;
  options_.engine.topic = "kv@pod";
  Start();
  EventReader reader(server_->engine().event_endpoints()[0],
                     server_->engine().replay_endpoints()[0]);
  Complete(Tokens(9));
  ASSERT_TRUE(reader.Replay(0));
  ASSERT_THAT(reader.replayed, SizeIs(1));
  EXPECT_EQ(reader.replayed[0].frames, 4u);
}

TEST_F(MockServerTest, ResetAnnouncesAClearAndForgets) {
  Start();
  EventReader reader(server_->engine().event_endpoints()[0],
                     server_->engine().replay_endpoints()[0]);
  Complete(Tokens(9));
  EXPECT_EQ(Body("POST", "/reset_prefix_cache"), R"({"success":true})");
  EXPECT_EQ(Complete(Tokens(9)).cached_tokens, 0u);
  ASSERT_TRUE(reader.Replay(0));
  ASSERT_THAT(reader.replayed, SizeIs(3));
  EXPECT_EQ(reader.replayed[1].batch.events.at(0).type, wire::EventType::kCleared);
}

class MockFaultTest : public MockServerTest {
 protected:
  // Starts, and reads live messages once the subscription is known to work.
  void StartWithReader() {
    Start();
    reader_ = std::make_unique<EventReader>(server_->engine().event_endpoints()[0],
                                            server_->engine().replay_endpoints()[0]);
    ASSERT_TRUE(reader_->ReadLive([&] {
      NewBlock();
      return !reader_->live.empty();
    }));
    ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.back().sequence + 1 == messages_; }));
    reader_->live.clear();
  }
  // Makes exactly one event message.
  void NewBlock() {
    Complete(Tokens(kBlockSize, 1'000 + 10 * static_cast<TokenId>(messages_)));
    ++messages_;
  }

  std::unique_ptr<EventReader> reader_;
  std::uint64_t messages_ = 0;
};

TEST_F(MockFaultTest, DroppedMessagesLeaveAGapThatReplayFillsOrNot) {
  for (const bool keep : {true, false}) {
    StartWithReader();
    const std::uint64_t before = messages_;
    Fault(fmt::format(R"({{"drop_messages":2,"keep_for_replay":{}}})", keep));
    NewBlock();
    NewBlock();
    NewBlock();
    ASSERT_TRUE(reader_->ReadLive([&] { return !reader_->live.empty(); }));
    EXPECT_EQ(reader_->live[0].sequence, before + 2);
    ASSERT_TRUE(reader_->Replay(before));
    EXPECT_THAT(reader_->replayed, SizeIs(keep ? 3 : 1));
    server_->Stop(Millis{0});
    messages_ = 0;
  }
}

TEST_F(MockFaultTest, RestartBeginsANewStreamAndAnEmptyPoolOnTheSameEndpoints) {
  StartWithReader();
  const auto before = Blocks(Body("GET", "/mock/blocks"), 0, "device");
  EXPECT_THAT(before, Not(IsEmpty()));
  const auto prompt = Tokens(kBlockSize + 1, 1'000);
  EXPECT_EQ(Complete(prompt).cached_tokens, kBlockSize);

  Fault(R"({"restart":true})");
  EXPECT_THAT(Blocks(Body("GET", "/mock/blocks"), 0, "device"), IsEmpty());
  EXPECT_EQ(Complete(prompt).cached_tokens, 0u);
  ASSERT_TRUE(reader_->Replay(0));
  ASSERT_THAT(reader_->replayed, SizeIs(1));
  EXPECT_EQ(reader_->replayed[0].sequence, 0u);
  const auto after = Blocks(Body("GET", "/mock/blocks"), 0, "device");
  EXPECT_THAT(after, SizeIs(1));
  EXPECT_FALSE(before.contains(*after.begin())) << "the same content has another name";
  // The subscriber of before is served again.
  ASSERT_TRUE(reader_->ReadLive([&] {
    Complete(Tokens(kBlockSize, 50'000 + 10 * static_cast<TokenId>(messages_++)));
    return !reader_->live.empty();
  }));
}

TEST_F(MockFaultTest, RestartCutsRunningStreams) {
  options_.engine.core.time.speedup = 1;
  Start();
  net::HttpRequest request;
  request.method = "POST";
  request.target = "/v1/completions";
  request.body = R"({"model":"mock","prompt":"a","max_tokens":200,"stream":true})";
  struct Reader {
    static net::Task<std::string> ReadAll(net::HttpClient& client, const net::Url& peer,
                                          const net::HttpRequest& what) {
      auto stream = co_await client.Open(peer, what);
      if (!stream) co_return stream.error().message;
      net::HttpRequest restart;
      restart.method = "POST";
      restart.target = "/mock/fault";
      restart.body = R"({"restart":true})";
      bool restarted = false;
      while (true) {
        const auto piece = co_await (*stream)->Read();
        if (!piece) co_return std::string(CodeName(piece.error().code));
        if (piece->empty()) co_return "complete";
        if (std::exchange(restarted, true)) continue;
        const auto answer = co_await client.Fetch(peer, restart);
        if (!answer || answer->status != 200) co_return "no restart";
      }
    }
  };
  EXPECT_EQ(net::testing::RunOn<std::string>(
                client_runtime_, [&] { return Reader::ReadAll(client_, peer_, request); }),
            CodeName(ErrorCode::kUpstream));
  EXPECT_EQ(Metric("vllm:num_requests_running"), 0);
}

TEST_F(MockFaultTest, DelayedEventsArriveLaterAndInOrder) {
  StartWithReader();
  Fault(R"({"event_delay_ms":50})");
  const SystemClock clock;
  const Nanos start = clock.Now();
  NewBlock();
  NewBlock();
  Fault(R"({"event_delay_ms":0})");
  NewBlock();
  ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.size() == 3; }));
  EXPECT_GE(clock.Now() - start, Millis{50});
  for (std::uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(reader_->live[i].sequence, messages_ - 3 + i);
}

TEST_F(MockFaultTest, ASilentReplaySocketAnswersNothingUntilItMayAgain) {
  StartWithReader();
  Fault(R"({"replay_silent":true})");
  EXPECT_FALSE(reader_->Replay(0, Millis{200}));
  Fault(R"({"replay_silent":false})");
  EXPECT_TRUE(reader_->Replay(0));
  EXPECT_THAT(reader_->replayed, SizeIs(messages_));
}

TEST_F(MockFaultTest, RepeatedMessagesComeTwice) {
  StartWithReader();
  Fault(R"({"repeat_messages":1})");
  NewBlock();
  NewBlock();
  ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.size() == 3; }));
  EXPECT_EQ(reader_->live[0].sequence, messages_ - 2);
  EXPECT_EQ(reader_->live[1].sequence, messages_ - 2);
  EXPECT_EQ(reader_->live[1].payload, reader_->live[0].payload);
  EXPECT_EQ(reader_->live[2].sequence, messages_ - 1);
}

TEST_F(MockFaultTest, SwappedMessagesComeBehindTheNextAndAreReplayedInOrder) {
  StartWithReader();
  Fault(R"({"swap_messages":1})");
  for (int i = 0; i < 3; ++i)
    NewBlock();
  ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.size() == 3; }));
  EXPECT_EQ(reader_->live[0].sequence, messages_ - 2);
  EXPECT_EQ(reader_->live[1].sequence, messages_ - 3);
  EXPECT_EQ(reader_->live[2].sequence, messages_ - 1);
  ASSERT_TRUE(reader_->Replay(messages_ - 3));
  ASSERT_THAT(reader_->replayed, SizeIs(3));
  EXPECT_EQ(reader_->replayed[0].sequence, messages_ - 3);
  EXPECT_EQ(reader_->replayed[0].payload, reader_->live[1].payload);
}

TEST_F(MockFaultTest, ForeignMessagesAreOfARankThatThereIsNot) {
  StartWithReader();
  Fault(R"({"foreign_messages":2})");
  messages_ += 2;
  NewBlock();
  ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.size() == 3; }));
  EXPECT_EQ(reader_->live[1].sequence, messages_ - 2);
  EXPECT_EQ(reader_->live[1].batch.dp_rank, 1'000'000u);
  EXPECT_EQ(reader_->live[2].batch.dp_rank, 0u);
}

TEST_F(MockFaultTest, HeldMessagesWaitUntilTheyMayGo) {
  StartWithReader();
  Fault(R"({"hold_events":true})");
  NewBlock();
  NewBlock();
  ASSERT_TRUE(reader_->ReadLive([] { return true; }));
  EXPECT_THAT(reader_->live, IsEmpty());
  Fault(R"({"hold_events":false})");
  ASSERT_TRUE(reader_->ReadLive([&] { return reader_->live.size() == 2; }));
}

TEST_F(MockFaultTest, AnswersAreCutShortAsOftenAsAskedFor) {
  StartWithReader();
  while (messages_ < 4)
    NewBlock();
  Fault(R"({"cut_replays":1,"cut_after":3})");
  EXPECT_FALSE(reader_->Replay(0, Millis{200}));
  EXPECT_THAT(reader_->replayed, SizeIs(3));
  EXPECT_TRUE(reader_->Replay(0));
  EXPECT_THAT(reader_->replayed, SizeIs(messages_));
}

TEST_F(MockFaultTest, ARestartMayKeepItsNumbers) {
  StartWithReader();
  const std::uint64_t before = messages_;
  Fault(R"({"restart":true,"keep_numbers":true})");
  EXPECT_THAT(Blocks(Body("GET", "/mock/blocks"), 0, "device"), IsEmpty());
  ASSERT_TRUE(reader_->ReadLive([&] {
    NewBlock();
    return !reader_->live.empty();
  }));
  EXPECT_GE(reader_->live[0].sequence, before);
  ASSERT_TRUE(reader_->Replay(0));
  ASSERT_THAT(reader_->replayed, SizeIs(messages_ - before));
  EXPECT_EQ(reader_->replayed[0].sequence, before) << "the old ones are gone";
}

TEST_F(MockFaultTest, ErrorsForTheNextRequestsOnly) {
  Start();
  Fault(R"({"error_requests":2,"error_status":429})");
  const std::string good = R"({"model":"mock","prompt":"a"})";
  EXPECT_EQ(Status("POST", "/v1/completions", good), 429);
  EXPECT_EQ(Status("GET", "/health"), 200);
  EXPECT_EQ(Status("POST", "/v1/completions", good), 429);
  EXPECT_EQ(Status("POST", "/v1/completions", good), 200);
}

TEST_F(MockFaultTest, DiesInTheMiddleOfAnAnswer) {
  Start();
  for (const char* stream : {"true", "false"}) {
    // More than one: a client may repeat a request whose kept-alive connection broke before any
    // byte.
    Fault(R"({"die_requests":5,"die_after_tokens":3})");
    const auto response =
        Send("POST", "/v1/completions",
             fmt::format(R"({{"model":"mock","prompt":"a","max_tokens":50,"stream":{}}})", stream));
    EXPECT_FALSE(response.has_value()) << "the answer must be seen to be cut short";
  }
  EXPECT_TRUE(Eventually([&] { return Metric("vllm:num_requests_running") == 0; }));
}

TEST_F(MockFaultTest, RefusesFaultsItDoesNotKnow) {
  Start();
  for (const char* body :
       {R"({"drop":1})", R"({"drop_messages":"x"})", R"({"restart":1})", "[]", R"({"rank":1})",
        R"({"foreign_messages":10001})", R"({"error_requests":1,"error_status":200})"}) {
    EXPECT_EQ(Status("POST", "/mock/fault", body), 400) << body;
  }
}

}  // namespace
}  // namespace kvr::sim
