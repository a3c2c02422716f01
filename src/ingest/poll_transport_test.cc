// TensorRT-LLM's event lists over HTTP: an engine as trtllm-serve has it, an index that follows it.
#include "ingest/poll_transport.h"

#include <deque>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/test_engine.h"
#include "net/event_endpoint.h"
#include "net/http_server.h"
#include "net/net_test_util.h"

namespace kvr::ingest {
namespace {

using net::testing::Eventually;

// Hands out what it was given, each answer once; an empty list when there is none.
class ListServer {
 public:
  explicit ListServer(net::IoRuntime& runtime, const std::string& method = "POST")
      : server_(runtime, registry_, {}) {
    server_.Route(method, "/kv_cache_events",
                  [this](net::HttpExchange& exchange) { return Answer(exchange); });
    EXPECT_TRUE(server_.Start());
  }

  void Give(std::string body, int status = 200) {
    const Lock lock(mutex_);
    answers_.push_back({std::move(body), status});
  }
  // Breaks off in the middle of its answer.
  void GiveTorn(std::string body = "[") { Give(std::move(body), -1); }
  // Begins its answer and then sends blanks for as long as it is asked.
  void GiveDripping(std::string body) { Give(std::move(body), -3); }
  // Hangs up without an answer.
  void GiveNothing() { Give("", -2); }
  [[nodiscard]] std::uint64_t bodies_seen() const {
    const Lock lock(mutex_);
    return bodies_seen_;
  }
  // Lets requests for which nothing was given wait.
  void Hold() {
    const Lock lock(mutex_);
    held_ = true;
  }
  void Release() {
    const Lock lock(mutex_);
    held_ = false;
  }
  [[nodiscard]] std::uint64_t asked() const {
    const Lock lock(mutex_);
    return asked_;
  }
  [[nodiscard]] bool drained() const {
    const Lock lock(mutex_);
    return answers_.empty();
  }
  [[nodiscard]] std::string endpoint() const { return "trtllm+http://" + server_.address_port(); }

 private:
  struct Given {
    std::string body;
    int status;
  };

  [[nodiscard]] bool held() const {
    const Lock lock(mutex_);
    return held_ && answers_.empty();
  }
  Given Take(std::string_view body) {
    const Lock lock(mutex_);
    ++asked_;
    if (!body.empty()) ++bodies_seen_;
    if (answers_.empty()) return {"[]", 200};
    Given given = answers_.front();
    answers_.pop_front();
    return given;
  }

  net::Task<void> Answer(net::HttpExchange& exchange) {
    while (held()) {
      if (!co_await net::Sleep(Millis{1})) co_return;
    }
    const Given given = Take(exchange.request().body);
    if (given.status == -2) {
      exchange.Abort();
      co_return;
    }
    if (given.status < 0) {
      const net::HttpHeaders headers;
      const auto begun = co_await exchange.BeginStream(200, headers, 1'000'000);
      static_cast<void>(begun);
      auto written = co_await exchange.Write(given.body);
      while (given.status == -3 && written && co_await net::Sleep(Millis{1}))
        written = co_await exchange.Write(" ");
      exchange.Abort();
      co_return;
    }
    net::HttpResponse response = net::JsonResponse(given.status, given.body);
    const auto sent = co_await exchange.Respond(std::move(response));
    static_cast<void>(sent);
  }

  metrics::Registry registry_;
  mutable Mutex mutex_;
  std::deque<Given> answers_ KVR_GUARDED_BY(mutex_);
  std::uint64_t asked_ KVR_GUARDED_BY(mutex_) = 0;
  bool held_ KVR_GUARDED_BY(mutex_) = false;
  std::uint64_t bodies_seen_ KVR_GUARDED_BY(mutex_) = 0;  // requests that had one
  net::HttpServer server_;
};

std::string Created(int id) {
  return fmt::format(
      R"({{"event_id":{},"data":{{"type":"created","num_blocks_per_cache_level":[8,0]}},
                        "window_size":4096}})",
      id);
}
// One block of its own content.
std::string Stored(int id, int hash, int rank = -1) {
  std::string tokens;
  for (std::uint32_t i = 0; i < kTestBlockSize; ++i)
    tokens +=
        fmt::format(R"({}{{"token_id":{}}})", i == 0 ? "" : ",", hash * 100 + static_cast<int>(i));
  const std::string tail =
      rank < 0 ? std::string() : fmt::format(R"(,"attention_dp_rank":{})", rank);
  return fmt::format(
      R"({{"event_id":{},"data":{{"type":"stored","parent_hash":null,"blocks":[)"
      R"({{"block_hash":{},"tokens":[{}],"cache_level":0}}]}},"window_size":4096{}}})",
      id, hash, tokens, tail);
}
std::string List(std::initializer_list<std::string> events) {
  std::string text = "[";
  for (const std::string& event : events)
    text += (text.size() > 1 ? "," : "") + event;
  return text + "]";
}

class PolledIngest : public testing::Test {
 protected:
  PolledIngest() { Start({}); }
  ~PolledIngest() override {
    ingest_->Stop();
    runtime_.Stop();
  }

  void Start(PollOptions options) {
    if (ingest_) ingest_->Stop();
    ingest_.reset();
    options.interval = Millis{1};
    options.retry_first = Millis{5};
    options.retry_max = Millis{20};
    transport_ = MakePollTransport(*direct_, runtime_, options, &registry_);
    ingest_ = std::make_unique<Ingest>(*transport_, clock_, registry_, Ingest::Options{});
  }
  void Follow(std::initializer_list<std::uint32_t> sharers = {}) {
    SourceSpec spec;
    spec.rank = rank_;
    spec.source.endpoint = engine_.endpoint();
    for (const std::uint32_t dp_rank : sharers)
      spec.sharers.push_back({dp_rank, std::make_shared<fleet::RankHealth>()});
    const auto added = ingest_->Add(spec, index_, health_);
    ASSERT_TRUE(added) << added.error().message;
  }
  // "@rank hash" of every block held.
  std::string Held() const {
    std::string text;
    for (const auto& [rank, tier, hash] : HeldIn(*index_->index))
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", rank.dp_rank, hash);
    return text;
  }
  std::string State() const {
    const auto status = health_->status();
    return fmt::format("{} {}", RankStateName(status.state), StateReasonName(status.reason));
  }
  // Both settle at `want`.
  void Expect(const std::string& held, const std::string& state) {
    EXPECT_TRUE(Eventually([&] { return Held() == held && State() == state; }))
        << Held() << ", " << State() << " instead of " << held << ", " << state;
  }

  // A state may be seen before its note.
  void ExpectDetail(std::string_view part) const {
    EXPECT_TRUE(Eventually([&] { return health_->detail().find(part) != std::string::npos; }))
        << health_->detail();
  }

  const Rank rank_{WorkerId{1}, 0};
  SystemClock clock_;
  metrics::Registry registry_;
  net::IoRuntime runtime_{{2, "io"}};
  ListServer engine_{runtime_};
  std::unique_ptr<net::EventTransport> direct_ = net::MakeZmqTransport({});
  std::unique_ptr<net::EventTransport> transport_;
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> index_ =
      *indexes_.GetOrCreate({"m", "default"}, kTestBlockSize);
  std::shared_ptr<fleet::RankHealth> health_ = std::make_shared<fleet::RankHealth>();
  std::unique_ptr<Ingest> ingest_;
};

TEST_F(PolledIngest, ListsReachTheIndex) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
  engine_.Give("[]");
  engine_.Give(List({Stored(2, 12)}));
  engine_.Give(
      List({R"({"event_id":3,"data":{"type":"removed","block_hashes":[11]},"window_size":4096})"}));
  Expect("0:12", "exact none");
  EXPECT_TRUE(health_->connected());
}

// A list is emptied by who reads it, so that there is one reader, whoever joins or leaves.
TEST_F(PolledIngest, RanksJoinAndLeaveOneReader) {
  engine_.Give(List({Created(0), Stored(1, 11, 0)}));
  Follow();
  Expect("0:11", "exact none");
  const auto join = [this](std::uint32_t dp_rank, std::string_view state) {
    const auto health = std::make_shared<fleet::RankHealth>();
    ASSERT_TRUE(ingest_->Join(rank_, {dp_rank, health}, std::nullopt));
    EXPECT_TRUE(Eventually([&] { return RankStateName(health->status().state) == state; }));
  };
  join(1, "exact");
  // In this order: whoever sees 12 knows that 13 was passed over before rank 2 joined.
  engine_.Give(List({Stored(0, 13, 2), Stored(0, 12, 1)}));
  Expect("0:11 1:12", "exact none");
  join(2, "degraded");
  engine_.Give(List({Stored(1, 14, 2)}));
  Expect("0:11 1:12 2:14", "exact none");
  EXPECT_EQ(ingest_->sources(), 1u);
  ASSERT_TRUE(ingest_->Remove(rank_));
  engine_.Give(List({Stored(1, 15, 1)}));
  EXPECT_TRUE(Eventually([&] { return Held() == "1:12 1:15 2:14"; })) << Held();
}

TEST_F(PolledIngest, WhoComesLateDoesNotKnowTheBeginning) {
  engine_.Give(List({Stored(17, 11)}));
  Follow();
  Expect("0:11", "degraded no_replay_endpoint");
}

TEST_F(PolledIngest, EventsThatFoundTheBufferFullAreAGap) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  engine_.Give(List({Stored(5, 12)}));
  Follow();
  Expect("0:11 0:12", "degraded gap_unrepaired");
}

// The engine says nothing any more, and yet nobody takes what is known for the truth.
TEST_F(PolledIngest, AnAnswerThatIsNoListIsALossAtOnce) {
  for (const std::string body : {"[{", "7", "null", "<html>", "[] []"}) {
    SCOPED_TRACE(body);
    Start({});
    health_ = std::make_shared<fleet::RankHealth>();
    engine_.Give(List({Created(0), Stored(1, 11)}));
    Follow();
    Expect("0:11", "exact none");
    engine_.Give(body);
    Expect("0:11", "degraded gap_unrepaired");
    ExpectDetail(
        "what was drained is lost: POST /kv_cache_events "
        "answered with");
    // What follows is no second loss.
    engine_.Give(List({Stored(3, 12)}));
    Expect("0:11 0:12", "degraded gap_unrepaired");
    EXPECT_EQ(health_->count(fleet::RankCount::kGaps), 1u);
    ASSERT_TRUE(ingest_->Remove(rank_));
  }
}

// ... and what came before the break counts.
TEST_F(PolledIngest, ATornAnswerIsALossAtOnce) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
  engine_.GiveTorn("[" + Stored(2, 12) + "," + Stored(3, 13).substr(0, 30));
  Expect("0:11 0:12", "degraded gap_unrepaired");
  ExpectDetail("closed the connection within its answer");
}

TEST_F(PolledIngest, ARequestWithoutAnAnswerIsALossAndNotRepeated) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
  engine_.GiveNothing();
  Expect("0:11", "degraded gap_unrepaired");
  ExpectDetail("closed the connection without an answer");
}

TEST_F(PolledIngest, ASilentEngineIsALossAtOnce) {
  PollOptions options;
  options.timeout = Millis{1'000};
  Start(options);
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
  engine_.Hold();
  // The link is down as long as the engine is silent.
  EXPECT_TRUE(Eventually([&] { return health_->count(fleet::RankCount::kGaps) == 1; }));
  engine_.Release();
  Expect("0:11", "degraded gap_unrepaired");
  ExpectDetail("`ingest.poll_timeout_ms` is 1000");
}

// Bytes without an event are as good as silence, within an event and between two.
TEST_F(PolledIngest, AnAnswerThatDripsWithoutAnEventIsALoss) {
  for (const std::string& begin : {std::string("[" + Stored(2, 12) + ","), std::string("  "),
                                   "[" + Stored(2, 12) + "," + Stored(3, 13).substr(0, 30)}) {
    SCOPED_TRACE(begin);
    PollOptions options;
    options.timeout = Millis{200};
    Start(options);
    health_ = std::make_shared<fleet::RankHealth>();
    engine_.Give(List({Created(0), Stored(1, 11)}));
    Follow();
    Expect("0:11", "exact none");
    engine_.GiveDripping(begin);
    Expect(begin.size() > 2 ? "0:11 0:12" : "0:11", "degraded gap_unrepaired");
    ExpectDetail("no event ended for 200 ms (`ingest.poll_timeout_ms`)");
    ASSERT_TRUE(ingest_->Remove(rank_));
  }
}

// Nothing is known yet that could be wrong; the ids say whether anything is missing.
TEST_F(PolledIngest, BeforeTheFirstEventTheIdsTellALoss) {
  engine_.GiveTorn();
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
}

TEST_F(PolledIngest, AnotherEngineMakesGoodWhatWasLost) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  engine_.GiveTorn();
  engine_.Give(List({Created(0), Stored(1, 12)}));
  Follow();
  Expect("0:12", "exact none");
  EXPECT_EQ(health_->detail(), "");
}

// The queue holds less than the list, and a message less than an event.
TEST_F(PolledIngest, AListMayBeOfAnyLength) {
  PollOptions options;
  options.messages_max = 1;
  options.bytes_max = 1;
  Start(options);
  std::string list = "[" + Created(0);
  std::string held;
  for (int i = 0; i < 20'000; ++i) {
    list += "," + Stored(i + 1, i % 8);
    if (i < 8) held += fmt::format("{}0:{}", i == 0 ? "" : " ", i);
  }
  engine_.Give(list + "]");
  Follow();
  Expect(held, "exact none");
  EXPECT_TRUE(Eventually([&] { return health_->count(fleet::RankCount::kEvents) >= 20'000; }));
}

// Nothing was drained.
TEST_F(PolledIngest, AnErrorStatusLosesNothing) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  engine_.Give("{}", 503);
  engine_.Give("{}", 404);
  engine_.Give(List({Stored(2, 12)}));
  Follow();
  Expect("0:11 0:12", "exact none");
  EXPECT_GE(health_->count(fleet::RankCount::kDisconnects), 1u);
}

// ... and the log's reader, or whoever asks for the rank, is told what to mend.
TEST_F(PolledIngest, AnErrorStatusIsNamed) {
  const struct {
    int status;
    std::string_view detail;
  } rows[] = {
      {500, "POST /kv_cache_events is answered with the status 500"},
      {401, "POST /kv_cache_events is answered with the status 401"},
      {404,
       "POST /kv_cache_events is answered with the status 404, GET with 405; is it "
       "trtllm-serve?"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.status);
    Start({});
    health_ = std::make_shared<fleet::RankHealth>();
    for (int i = 0; i < 3; ++i)
      engine_.Give("{}", row.status);
    engine_.Hold();
    Follow();
    EXPECT_TRUE(Eventually([&] { return State() == "blind refused"; })) << State();
    EXPECT_TRUE(Eventually([&] { return health_->detail() == row.detail; })) << health_->detail();
    engine_.Release();
    ASSERT_TRUE(ingest_->Remove(rank_));
  }
}

TEST_F(PolledIngest, AnEngineThatCannotBeReachedIsNamed) {
  const std::string endpoint = [] {
    net::IoRuntime runtime({1, "gone"});
    return ListServer(runtime).endpoint();
  }();
  SourceSpec spec;
  spec.rank = rank_;
  spec.source.endpoint = endpoint;
  ASSERT_TRUE(ingest_->Add(spec, index_, health_));
  EXPECT_TRUE(Eventually([&] { return health_->feed_note().starts_with("cannot connect to"); }));
  EXPECT_EQ(State(), "blind connecting");
  EXPECT_EQ(health_->detail(), health_->feed_note());
}

// trtllm-serve has the path for POST; whatever has it for GET is asked so.
TEST_F(PolledIngest, BothMethodsAreTried) {
  EXPECT_EQ(engine_.bodies_seen(), 0u);
  ListServer getting(runtime_, "GET");
  getting.Give(List({Created(0), Stored(1, 11)}));
  getting.Give(List({Stored(2, 12)}));
  SourceSpec spec;
  spec.rank = rank_;
  spec.source.endpoint = getting.endpoint();
  ASSERT_TRUE(ingest_->Add(spec, index_, health_));
  Expect("0:11 0:12", "exact none");
  EXPECT_EQ(health_->count(fleet::RankCount::kDisconnects), 0u);
}

TEST_F(PolledIngest, AnEngineThatCountsAnewIsAnotherOne) {
  engine_.Give(List({Created(0), Stored(1, 11), Stored(2, 12)}));
  engine_.Give(List({Created(0), Stored(1, 13)}));
  Follow();
  Expect("0:13", "exact none");
  EXPECT_TRUE(Eventually([&] { return health_->count(fleet::RankCount::kRestarts) == 1; }));
}

TEST_F(PolledIngest, OneListSpeaksOfSeveralRanks) {
  engine_.Give(List({Stored(0, 11, 0), Stored(0, 21, 1), Stored(1, 12, 0)}));
  Follow({1});
  Expect("0:11 0:12 1:21", "exact none");
}

TEST_F(PolledIngest, ARemovedSourceAsksNoMore) {
  engine_.Give(List({Created(0), Stored(1, 11)}));
  Follow();
  Expect("0:11", "exact none");
  ASSERT_TRUE(ingest_->Remove(rank_));
  // At most the request that is under way.
  const std::uint64_t asked = engine_.asked();
  engine_.Give(List({Stored(2, 12)}));
  Start({});
  EXPECT_LE(engine_.asked(), asked + 1);
  EXPECT_EQ(Held(), "");
}

TEST_F(PolledIngest, EndpointsAreChecked) {
  EXPECT_TRUE(net::CheckEventEndpoint("trtllm+http://h:8000"));
  EXPECT_TRUE(net::CheckEventEndpoint("tcp://h:1"));
  for (const std::string bad : {"trtllm+", "trtllm+https://h", "trtllm+http://", "http://h:1"})
    EXPECT_FALSE(net::CheckEventEndpoint(bad)) << bad;
  SourceSpec spec;
  spec.rank = rank_;
  spec.source.endpoint = engine_.endpoint();
  spec.source.replay_endpoint = "tcp://127.0.0.1:9";
  EXPECT_EQ(ingest_->Add(spec, index_, health_).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvr::ingest
