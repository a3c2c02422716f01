// How long a warm start holds up streams and /ready, whatever peers and the disk do. A silent peer
// is waited for an hour here, so that nothing below can come of the end of that.
#include "service/recovery/warm_start.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/latch.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/net_test_util.h"
#include "service/indexer/source_registry.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {
namespace {

using net::testing::Eventually;
using net::testing::RawServer;

constexpr Millis kLong{3'600'000};
const Partition kPartition{"m", "default"};

// A disk that does not answer: the snapshot is opened behind a look at the wall clock.
class HungClock final : public Clock {
 public:
  [[nodiscard]] Nanos Now() const override { return clock_.Now(); }
  [[nodiscard]] Nanos WallTime() const override {
    goes_on_.Wait();
    return clock_.WallTime();
  }
  void GoOn() { goes_on_.Set(); }

 private:
  SystemClock clock_;
  mutable Latch goes_on_;
};

WarmStart::Options Holding(Millis hold_max) {
  WarmStart::Options options;
  options.hold_max = hold_max;
  return options;
}

class WarmStartTest : public ::testing::Test {
 protected:
  ~WarmStartTest() override {
    clock_.GoOn();
    warm_.reset();
    ingest_.Stop();
  }

  // Peers that accept a connection, as their kernel does for them, and say nothing.
  void Begin(WarmStart::Options options, const std::vector<const RawServer*>& peers) {
    options.peers.idle_timeout = kLong;
    for (const RawServer* peer : peers)
      options.peers.urls.push_back(fmt::format("http://127.0.0.1:{}", peer->port()));
    warm_ = std::make_unique<WarmStart>(
        streams_, metrics_, clock_, [](Rank, const Error& why) { FAIL() << why.message; }, options);
    Register(1);
    warm_->Start();
  }
  void Register(std::uint64_t worker) {
    fleet::EventSource source;
    source.endpoint = "tcp://127.0.0.1:9";
    ASSERT_TRUE(sources_.Register({{WorkerId{worker}, 0}, kPartition, source, 4, false}));
  }
  [[nodiscard]] std::size_t begun() const { return ingest_.sources(); }
  [[nodiscard]] double Dumps(std::string_view outcome) const {
    return net::testing::Series(
        metrics_,
        fmt::format("kvr_recovery_dumps_total{{source=\"peer\",outcome=\"{}\"}}", outcome));
  }

  HungClock clock_;
  metrics::Registry metrics_;
  std::unique_ptr<net::EventTransport> transport_ = net::MakeZmqTransport({});
  fleet::Catalog catalog_;
  index::IndexSet indexes_{index::IndexOptions{}};
  ingest::Ingest ingest_{*transport_, clock_, metrics_, {}};
  StreamStart streams_{catalog_, indexes_, ingest_, clock_, {}};
  SourceRegistry sources_{catalog_, indexes_, streams_, clock_, {}};
  std::unique_ptr<WarmStart> warm_;
};

TEST_F(WarmStartTest, StreamsBeginAfterTheHoldThoughEveryPeerIsSilent) {
  const RawServer first;
  const RawServer second;
  WarmStart::Options options = Holding(Millis{30});
  options.ready_wait = Millis{60};
  Begin(options, {&first, &second});
  EXPECT_TRUE(Eventually([&] { return begun() == 1; }));
  EXPECT_TRUE(Eventually([&] { return warm_->not_ready_reason().empty(); }));
  EXPECT_EQ(Dumps("failed"), 0);  // it is still being asked
}

TEST_F(WarmStartTest, WithoutAHoldStreamsBeginAtOnce) {
  const RawServer silent;
  Begin(Holding(Millis{0}), {&silent});
  EXPECT_TRUE(Eventually([&] { return begun() == 1; }));
}

TEST_F(WarmStartTest, ReadyWaitsNoLongerThanItMayThoughStreamsDo) {
  const RawServer silent;
  WarmStart::Options options = Holding(Millis::max());
  options.ready_wait = Millis{30};
  Begin(options, {&silent});
  EXPECT_TRUE(Eventually([&] { return warm_->not_ready_reason().empty(); }));
  EXPECT_EQ(begun(), 0u);
  EXPECT_FALSE(warm_->settled());
}

TEST_F(WarmStartTest, ReadySaysNoWhileAPeerMayYetAnswer) {
  const RawServer silent;
  WarmStart::Options options = Holding(Millis{30});
  options.ready_wait = kLong;
  Begin(options, {&silent});
  EXPECT_NE(warm_->not_ready_reason(), "");
  EXPECT_TRUE(Eventually([&] { return begun() == 1; }));
  EXPECT_NE(warm_->not_ready_reason(), "");
}

TEST_F(WarmStartTest, StreamsBeginAfterTheHoldThoughTheDiskHangs) {
  WarmStart::Options options = Holding(Millis{30});
  options.snapshot_path = ::testing::TempDir() + "warm_start_test_absent";
  std::filesystem::remove(options.snapshot_path);
  Begin(options, {});
  EXPECT_TRUE(Eventually([&] { return begun() == 1; }));
  // The file of the last run must not be replaced before it is read.
  EXPECT_FALSE(warm_->settled());
  clock_.GoOn();
  EXPECT_TRUE(Eventually([&] { return warm_->settled(); }));
  EXPECT_EQ(warm_->not_ready_reason(), "");
}

TEST_F(WarmStartTest, WhatComesAfterTheHoldIsForRanksWhoseStreamHasNotBegun) {
  RawServer late;
  Begin(Holding(Millis{30}), {&late});
  const auto peer = late.Accept();
  peer->ReadUntil("\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return begun() == 1; }));
  std::string events;
  for (const int worker : {1, 2}) {
    events += fmt::format(
        R"({}{{"worker_id":{},"storage_tier":"device","event":{{"event_id":0,"dp_rank":0,"data":)"
        R"({{"stored":{{"parent_hash":null,"blocks":[{{"block_hash":11,"tokens_hash":21}}]}}}}}}}})",
        events.empty() ? "" : ",", worker);
  }
  const std::string body =
      fmt::format(R"({{"m:default":{{"block_size":4,"events":[{}]}}}})", events);
  ASSERT_TRUE(
      peer->Send(fmt::format("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             "Content-Length: {}\r\n\r\n{}",
                             body.size(), body)));
  EXPECT_TRUE(Eventually([&] { return warm_->not_ready_reason().empty(); }));
  EXPECT_EQ(Dumps("recovered"), 1);
  EXPECT_EQ(streams_.stats().adopted_ranks, 0u);
  EXPECT_EQ(streams_.stats().waiting_ranks, 1u);
  Register(2);
  EXPECT_EQ(streams_.stats().adopted_ranks, 1u);
  index::RankCopy held;
  const auto index = indexes_.Find(kPartition);
  index->index->CopyRank({WorkerId{1}, 0}, held);
  EXPECT_EQ(held.blocks.size(), 0u);
  index->index->CopyRank({WorkerId{2}, 0}, held);
  EXPECT_EQ(held.blocks.size(), 1u);
}

TEST_F(WarmStartTest, ADumpThatDripsInForEverEnds) {
  RawServer drip;
  RawServer next;
  WarmStart::Options options;
  options.peers.dump_max = Millis{50};
  Begin(options, {&drip, &next});
  const auto peer = drip.Accept();
  peer->ReadUntil("\r\n\r\n");
  ASSERT_TRUE(peer->Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"));
  EXPECT_TRUE(Eventually([&] { return !peer->Send(" "); }));
  EXPECT_EQ(Dumps("failed"), 1);
  EXPECT_NE(next.Accept()->ReadUntil("\r\n\r\n"), "");
}

TEST_F(WarmStartTest, StopEndsTheWaitAndNobodyHasFailed) {
  for (const Millis hold : {kLong, Millis::max()}) {
    RawServer silent;
    Begin(Holding(hold), {&silent});
    const auto peer = silent.Accept();
    EXPECT_NE(peer->ReadUntil("\r\n\r\n"), "");
    warm_->Stop();
    EXPECT_EQ(begun(), 0u);
    EXPECT_EQ(Dumps("failed"), 0);
    EXPECT_FALSE(warm_->settled());
    warm_.reset();
    ASSERT_TRUE(sources_.Unregister(WorkerId{1}, "m", {}, {}));
  }
}

}  // namespace
}  // namespace kvr::service
