// Ingest over real sockets: a publisher as an engine has it, an index that must end up equal.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/test_engine.h"
#include "net/event_publisher.h"
#include "net/net_test_util.h"

namespace kvr::ingest {
namespace {

using fleet::RankCount;
using net::EventPublisher;
using net::ReplayLayout;
using net::testing::Eventually;

std::string StateText(const fleet::RankHealth& health) {
  const auto status = health.status();
  return fmt::format("{} {}", RankStateName(status.state), StateReasonName(status.reason));
}

// One engine with its sockets.
struct Node {
  Node(std::uint64_t worker, std::uint32_t dp_rank, EventPublisher::Options options = {})
      : rank{WorkerId{worker}, dp_rank}, engine(rank), publisher_options(std::move(options)) {
    publisher = Publisher();
    publisher_options.endpoint = publisher->endpoint();
    if (publisher_options.replay_endpoint) {
      publisher_options.replay_endpoint = publisher->replay_endpoint();
    }
  }

  std::unique_ptr<EventPublisher> Publisher() const {
    auto made = EventPublisher::Create(publisher_options);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  void Die() { publisher.reset(); }
  // Another life at the same address: empty cache, numbers from 0.
  void Return(std::uint64_t incarnation) {
    engine = TestEngine(rank, incarnation);
    publisher = Publisher();
  }
  std::uint64_t Publish() { return publisher->Publish(engine.Flush()); }
  // A chain of `n` blocks, one message each. Returns the last sequence.
  std::uint64_t PublishChain(int n) {
    std::uint64_t last = 0;
    std::uint64_t parent = 0;
    for (int i = 0; i < n; ++i) {
      parent = engine.Store(parent);
      last = Publish();
    }
    return last;
  }
  SourceSpec Spec() const {
    SourceSpec spec;
    spec.rank = rank;
    spec.source.endpoint = publisher_options.endpoint;
    spec.source.replay_endpoint = publisher_options.replay_endpoint;
    return spec;
  }
  bool Reaches(std::uint64_t sequence) const {
    return Eventually([&] {
      return health->watermark() == sequence && StateText(*health) != "warming replaying";
    });
  }

  Rank rank;
  TestEngine engine;
  EventPublisher::Options publisher_options;
  std::unique_ptr<EventPublisher> publisher;
  std::shared_ptr<fleet::RankHealth> health = std::make_shared<fleet::RankHealth>();
};

class IngestSockets : public testing::Test {
 protected:
  IngestSockets() { Restart({}); }

  void Restart(Ingest::Options options) {
    ingest_.reset();
    options.stream.confirm_after = Millis{50};
    options.reference_metrics = true;
    ingest_ = std::make_unique<Ingest>(*transport_, clock_, registry_, options);
  }
  void Follow(Node& node) {
    const auto added = ingest_->Add(node.Spec(), index_, node.health);
    ASSERT_TRUE(added) << added.error().message;
  }
  // Publishes what is no message until the subscription brings it: nothing published afterwards
  // goes nowhere.
  void AwaitSubscription(Node& node) {
    const std::uint64_t before = node.health->count(RankCount::kFramesRejected);
    const std::span<const std::byte> part = std::as_bytes(std::span("x"));
    ASSERT_TRUE(Eventually([&] {
      node.publisher->SendRaw(std::array{part});
      return node.health->count(RankCount::kFramesRejected) > before;
    }));
  }
  // What a turn has met is counted at its end, which whoever removes somebody brings about.
  void EndTurn() { EXPECT_FALSE(ingest_->Remove({WorkerId{999}, 0})); }
  // Follows a node until nothing is under way but what it will publish.
  void FollowSettled(Node& node) {
    Follow(node);
    AwaitSubscription(node);
    node.engine.Store(0);
    ASSERT_TRUE(node.Reaches(node.Publish()));
    EndTurn();
    if (!node.publisher_options.replay_endpoint) return;
    const std::string confirmed = "kvr_ingest_replays_total{outcome=\"confirmed\"} 1\n";
    ASSERT_TRUE(Eventually([&] { return Metrics().find(confirmed) != std::string::npos; }));
  }
  std::set<HeldBlock> Held() const { return HeldIn(*index_->index); }
  std::string Metrics() const {
    std::string text;
    registry_.WriteText(text);
    return text;
  }

  SystemClock clock_;
  metrics::Registry registry_;
  std::unique_ptr<net::EventTransport> transport_ =
      net::MakeZmqTransport({.reconnect_first = Millis{20}, .reconnect_max = Millis{200}});
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> index_ =
      *indexes_.GetOrCreate({"m", "default"}, kTestBlockSize);
  std::unique_ptr<Ingest> ingest_;  // last: its threads use the others
};

// wire.md §7: stores and removals of every tier count, each once.
TEST_F(IngestSockets, SeedRunCounts685StoresAnd24RemovalsWithoutWarning) {
  Node node(1, 0);
  Follow(node);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 331; ++i) {
    const std::uint64_t parent = i % 8 == 0 ? 0 : blocks.back();
    blocks.push_back(node.engine.Store(parent));
    if (i % 5 == 4) node.Publish();
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    node.engine.StoreAgain(blocks[i], Tier::kHostPinned);
    if (i % 7 == 6) node.Publish();
  }
  // The host pool evicts 24 blocks, tails first, and takes 23 of them again.
  std::vector<std::uint64_t> evicted(blocks.end() - 24, blocks.end());
  for (auto hash = evicted.rbegin(); hash != evicted.rend(); ++hash)
    node.engine.Remove(*hash, Tier::kHostPinned);
  node.Publish();
  for (std::size_t i = 0; i < 23; ++i)
    node.engine.StoreAgain(evicted[i], Tier::kHostPinned);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  const std::string text = Metrics();
  for (const char* name :
       {"kvr_ingest_events_applied_total", "dynamo_kvrouter_kv_cache_events_applied"}) {
    EXPECT_NE(text.find(fmt::format("{}{{event_type=\"stored\",status=\"ok\"}} 685\n", name)),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(fmt::format("{}{{event_type=\"removed\",status=\"ok\"}} 24\n", name)),
              std::string::npos);
    EXPECT_NE(text.find(fmt::format(
                  "{}{{event_type=\"stored\",status=\"parent_block_not_found\"}} 0\n", name)),
              std::string::npos);
  }
  EXPECT_NE(text.find("kvr_ingest_event_warnings_total{warning_kind=\"duplicate_store\"} 0\n"),
            std::string::npos);
  EXPECT_EQ(Held(), node.engine.held());
  EXPECT_EQ(StateText(*node.health), "exact none");
}

class GapOfAThousand : public IngestSockets, public testing::WithParamInterface<ReplayLayout> {};

TEST_P(GapOfAThousand, WithReplayIsRepairedInOrder) {
  Node node(1, 0, {.topic = "kv@1", .layout = GetParam()});
  Node other(2, 0);
  Follow(node);
  Follow(other);
  ASSERT_TRUE(other.Reaches(other.PublishChain(10)));
  ASSERT_TRUE(node.Reaches(node.PublishChain(10)));
  // Stores and removals: applied in another order they would leave other blocks.
  std::vector<std::uint64_t> lost;
  for (int i = 0; i < 1'000; ++i) {
    if (i % 3 == 2) {
      node.engine.Remove(lost.back());
      lost.pop_back();
    } else {
      lost.push_back(node.engine.Store(0));
    }
    node.publisher->Lose(node.engine.Flush(), true);
  }
  ASSERT_TRUE(node.Reaches(node.PublishChain(5)));
  EXPECT_EQ(StateText(*node.health), "exact none");
  EXPECT_EQ(node.health->count(RankCount::kGaps), 1u);
  EXPECT_EQ(node.health->count(RankCount::kMissedMessages), 0u);
  std::set<HeldBlock> all = node.engine.held();
  all.insert(other.engine.held().begin(), other.engine.held().end());
  EXPECT_EQ(Held(), all);
  EXPECT_EQ(StateText(*other.health), "exact none");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GapOfAThousand,
                         testing::Values(ReplayLayout::kSeqPayload, ReplayLayout::kTopicSeqPayload),
                         [](const auto& row) {
                           return row.param == ReplayLayout::kSeqPayload ? "T17ThreeFrames"
                                                                         : "T18FourFrames";
                         });

TEST_F(IngestSockets, AGapOfAThousandWithoutReplayIsDegradedAndNoOtherRankChanges) {
  Node node(1, 0, {.replay_endpoint = std::nullopt});
  Node other(2, 0, {.replay_endpoint = std::nullopt});
  FollowSettled(node);
  FollowSettled(other);
  ASSERT_TRUE(other.Reaches(other.PublishChain(10)));
  ASSERT_TRUE(node.Reaches(node.PublishChain(10)));
  const auto before = other.engine.held();
  for (int i = 0; i < 1'000; ++i) {
    node.engine.Store(0);
    node.publisher->Lose(node.engine.Flush(), true);
  }
  ASSERT_TRUE(node.Reaches(node.PublishChain(5)));
  EXPECT_EQ(StateText(*node.health), "degraded gap_unrepaired");
  EXPECT_EQ(node.health->count(RankCount::kMissedMessages), 1'000u);
  const auto held = Held();
  EXPECT_TRUE(std::includes(held.begin(), held.end(), before.begin(), before.end()));
  EXPECT_EQ(held.size(), 27u) << "1, 10 and 5 of the one, 1 and 10 of the other";
  EXPECT_EQ(other.health->count(RankCount::kGaps), 0u);
}

TEST_F(IngestSockets, AGapBeyondTheRingIsHistoryGone) {
  Node node(1, 0, {.replay_messages_max = 100});
  FollowSettled(node);
  ASSERT_TRUE(node.Reaches(node.PublishChain(50)));
  for (int i = 0; i < 1'000; ++i) {
    node.engine.Store(0);
    node.publisher->Lose(node.engine.Flush(), true);
  }
  ASSERT_TRUE(node.Reaches(node.PublishChain(1)));
  EXPECT_EQ(StateText(*node.health), "degraded history_gone");
  const auto held = Held();
  EXPECT_EQ(held.size(), 100u) << "what the ring still had";
  EXPECT_TRUE(std::includes(node.engine.held().begin(), node.engine.held().end(), held.begin(),
                            held.end()));
}

TEST_F(IngestSockets, ARestartWithSequenceZeroClearsExactlyThatRank) {
  for (const bool replay : {true, false}) {
    EventPublisher::Options options;
    if (!replay) options.replay_endpoint = std::nullopt;
    Node node(replay ? 1 : 3, 0, options);
    Node other(replay ? 2 : 4, 0);
    Follow(node);
    Follow(other);
    if (!replay) AwaitSubscription(node);
    ASSERT_TRUE(other.Reaches(other.PublishChain(10)));
    ASSERT_TRUE(node.Reaches(node.PublishChain(2'000)));
    node.Die();
    ASSERT_TRUE(Eventually([&] { return StateText(*node.health) == "warming disconnected"; }));
    node.Return(1);
    AwaitSubscription(node);
    ASSERT_TRUE(node.Reaches(node.PublishChain(3)));
    EXPECT_EQ(node.health->count(RankCount::kRestarts), 1u);
    EXPECT_EQ(StateText(*node.health), "exact none");
    std::set<HeldBlock> held;
    for (const HeldBlock& block : Held()) {
      if (std::get<0>(block) == node.rank) held.insert(block);
    }
    EXPECT_EQ(held, node.engine.held());
    EXPECT_EQ(other.health->count(RankCount::kClears), 0u);
    EXPECT_EQ(StateText(*other.health), "exact none");
    ASSERT_TRUE(ingest_->Remove(node.rank));
    EXPECT_EQ(Held(), other.engine.held());
    ASSERT_TRUE(ingest_->Remove(other.rank));
  }
}

TEST_F(IngestSockets, AnEngineThatIsNotUpYetIsWaitedFor) {
  Node node(1, 0);
  node.Die();
  Follow(node);
  ASSERT_TRUE(Eventually([&] { return StateText(*node.health) == "blind connecting"; }));
  Node other(2, 0);
  Follow(other);
  ASSERT_TRUE(other.Reaches(other.PublishChain(3)));
  EXPECT_EQ(StateText(*node.health), "blind connecting");
  node.Return(0);
  ASSERT_TRUE(node.Reaches(node.PublishChain(10)));
  EXPECT_EQ(StateText(*node.health), "exact none");
  EXPECT_EQ(Held().size(), 13u);
}

TEST_F(IngestSockets, OneEngineDiesAndTheOthersGoOn) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::uint64_t i = 0; i < 4; ++i) {
    nodes.push_back(std::make_unique<Node>(i, 0));
    Follow(*nodes.back());
    ASSERT_TRUE(nodes.back()->Reaches(nodes.back()->PublishChain(5)));
  }
  nodes[1]->Die();
  ASSERT_TRUE(Eventually([&] { return StateText(*nodes[1]->health) == "warming disconnected"; }));
  for (const std::size_t i : {0u, 2u, 3u}) {
    ASSERT_TRUE(nodes[i]->Reaches(nodes[i]->PublishChain(5)));
    EXPECT_EQ(StateText(*nodes[i]->health), "exact none");
    EXPECT_EQ(nodes[i]->health->count(RankCount::kDisconnects), 0u);
  }
}

TEST_F(IngestSockets, Report101BadPayloadsAndFramesNeverTouchTheSocket) {
  Node node(1, 0);
  FollowSettled(node);
  const std::uint64_t rejected = node.health->count(RankCount::kFramesRejected);
  const std::uint64_t a = node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  node.publisher->Publish(bytes("\xC1"));
  node.publisher->Publish(bytes("\xA1x"));
  const std::array two{bytes(""), bytes("p")};
  node.publisher->SendRaw(two);
  const std::array narrow{bytes(""), bytes("1234"), bytes("p")};
  node.publisher->SendRaw(narrow);
  node.engine.Store(a);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EndTurn();
  EXPECT_EQ(Held(), node.engine.held());
  EXPECT_EQ(node.health->count(RankCount::kFramesRejected) - rejected, 2u);
  EXPECT_GE(node.health->count(RankCount::kDecodeFailures), 2u);
  EXPECT_EQ(node.health->count(RankCount::kDisconnects), 0u);
  EXPECT_EQ(StateText(*node.health), "degraded undecodable");
  EXPECT_EQ(node.health->detail(), "message 3 is no batch: wrong_type");
  for (int i = 0; i < 1'000; ++i)
    node.publisher->Publish(bytes("\xC1"));
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(node.health->count(RankCount::kDisconnects), 0u);
  EXPECT_EQ(Held(), node.engine.held());
}

TEST_F(IngestSockets, Report59TheRankInABatchBeatsTheRegisteredOne) {
  Node zero(1, 0);
  Node one(1, 1);
  Follow(zero);
  Follow(one);
  TestEngine as_one({WorkerId{1}, 1}, 9);
  zero.engine.Store(0);
  zero.Publish();
  const std::uint64_t x = as_one.Store(0);
  zero.publisher->Publish(as_one.Flush(1));
  zero.engine.Store(0);
  zero.publisher->Publish(zero.engine.Flush(0));
  TestEngine stranger({WorkerId{1}, 9}, 10);
  stranger.Store(0);
  const std::uint64_t last = zero.publisher->Publish(stranger.Flush(9));
  ASSERT_TRUE(zero.Reaches(last));
  std::set<HeldBlock> expected = zero.engine.held();
  expected.insert(as_one.held().begin(), as_one.held().end());
  EXPECT_EQ(Held(), expected) << "rank 9 is nobody";
  EXPECT_NE(Metrics().find("kvr_ingest_batches_rejected_total{reason=\"foreign_rank\"} 1\n"),
            std::string::npos);
  // Rank 0 removes a hash that only rank 1 holds.
  TestEngine remover({WorkerId{1}, 0}, 9);
  EXPECT_EQ(remover.Store(0), x);
  static_cast<void>(remover.Flush());
  remover.Remove(x);
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(remover.Flush(0))));
  EXPECT_EQ(Held(), expected);
  as_one.ClearAll();
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(as_one.Flush(1))));
  EXPECT_EQ(Held(), zero.engine.held());
}

TEST_F(IngestSockets, Report61RanksMayShareOneStream) {
  Node node(1, 0);
  SourceSpec spec = node.Spec();
  const auto shared = std::make_shared<fleet::RankHealth>();
  spec.sharers.push_back({1, shared});
  ASSERT_TRUE(ingest_->Add(std::move(spec), index_, node.health));
  TestEngine one({WorkerId{1}, 1}, 5);
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    node.engine.Store(0);
    node.publisher->Publish(node.engine.Flush(0));
    one.Store(0);
    last = node.publisher->Publish(one.Flush(1));
  }
  ASSERT_TRUE(node.Reaches(last));
  EXPECT_EQ(Held().size(), 20u);
  EXPECT_EQ(node.health->count(RankCount::kGaps), 0u);
  EXPECT_EQ(StateText(*shared), "exact none");
  // The one that the stream was followed for goes; the other is not disturbed.
  ASSERT_TRUE(ingest_->Remove(node.rank));
  EXPECT_EQ(Held(), one.held());
  one.Store(0);
  const std::uint64_t more = node.publisher->Publish(one.Flush(1));
  EXPECT_TRUE(Eventually([&] { return shared->watermark() == more; }));
  EXPECT_EQ(Held(), one.held());
  EXPECT_EQ(StateText(*shared), "exact none");
  EXPECT_EQ(ingest_->sources(), 1u);
  ASSERT_TRUE(ingest_->Remove({WorkerId{1}, 1}));
  EXPECT_FALSE(ingest_->Remove({WorkerId{1}, 1}));
  EXPECT_TRUE(Held().empty());
  EXPECT_EQ(ingest_->sources(), 0u) << "a stream ends with its last rank";
}

// Rank 0 is followed from the first message on, rank 1 joins: what it is then, and what happens to
// rank 0, by what the stream has told before.
TEST_F(IngestSockets, ARankJoinsAStreamThatIsFollowed) {
  struct Case {
    const char* about;
    bool replay;
    bool told;  // something of rank 1, before it joins
    std::string state;
    std::uint64_t requests;  // whether the stream begins anew
  };
  const Case cases[] = {
      {"nothing was told of it", false, false, "exact none", 0},
      {"nothing was told of it, with replay", true, false, "exact none", 0},
      {"nobody can tell it again", false, true, "degraded no_replay_endpoint", 0},
      {"all is replayed", true, true, "exact none", 1},
  };
  std::uint64_t worker = 1;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.about);
    EventPublisher::Options options;
    if (!c.replay) options.replay_endpoint = std::nullopt;
    Node zero(worker++, 0, options);
    Follow(zero);
    AwaitSubscription(zero);
    const Rank rank{zero.rank.worker, 1};
    TestEngine one(rank, 5);
    std::uint64_t last = zero.PublishChain(3);
    if (c.told) {
      one.Store(0);
      last = zero.publisher->Publish(one.Flush(1));
    }
    ASSERT_TRUE(zero.Reaches(last));
    const std::uint64_t clears = zero.health->ledger().count(fleet::Placement::kClear);
    const auto health = std::make_shared<fleet::RankHealth>();
    const auto joined = ingest_->Join(zero.rank, {1, health}, std::nullopt);
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_EQ(ingest_->Join(zero.rank, {1, health}, std::nullopt).error().code,
              ErrorCode::kAlreadyExists);
    if (c.requests > 0) AwaitSubscription(zero);
    std::set<HeldBlock> held = zero.engine.held();
    if (c.replay) held.insert(one.held().begin(), one.held().end());
    EXPECT_TRUE(Eventually([&] { return Held() == held && StateText(*health) == c.state; }))
        << StateText(*health);
    const HeldBlock fresh{rank, Tier::kDevice, one.Store(0)};
    last = zero.publisher->Publish(one.Flush(1));
    ASSERT_TRUE(Eventually([&] { return health->watermark() == last; }));
    held.insert(fresh);
    EXPECT_EQ(Held(), held);
    EXPECT_EQ(StateText(*health), c.state);
    EXPECT_TRUE(Eventually([&] { return StateText(*zero.health) == "exact none"; }));
    EXPECT_EQ(zero.health->ledger().count(fleet::Placement::kClear) - clears,
              c.told ? c.requests : 0);
    for (const fleet::RankHealth* each : {zero.health.get(), health.get()}) {
      const fleet::RankLedger& ledger = each->ledger();
      EXPECT_EQ(ledger.messages() - ledger.messages_taken_back(), last + 1);
    }
    ASSERT_TRUE(ingest_->Remove(zero.rank));
    ASSERT_TRUE(ingest_->Remove(rank));
  }
}

// A late rank has no blocks that its engine removed meanwhile, and is exact after a restart.
TEST_F(IngestSockets, ALateRankNeverHoldsTooMuchAndHealsWithTheEngine) {
  Node zero(1, 0, {.replay_endpoint = std::nullopt});
  Follow(zero);
  AwaitSubscription(zero);
  const Rank rank{WorkerId{1}, 1};
  TestEngine one(rank, 5);
  const std::uint64_t early = one.Store(0);
  zero.publisher->Publish(one.Flush(1));
  ASSERT_TRUE(zero.Reaches(zero.PublishChain(2)));
  const auto health = std::make_shared<fleet::RankHealth>();
  ASSERT_TRUE(ingest_->Join(zero.rank, {1, health}, std::nullopt));
  EXPECT_EQ(Held(), zero.engine.held()) << "rank 0 is not touched";
  one.StoreAgain(early, Tier::kDevice);  // a second copy
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(one.Flush(1))));
  EXPECT_EQ(Held().size(), 3u);
  one.Remove(early);
  one.Remove(early);
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(one.Flush(1))));
  EXPECT_EQ(Held(), zero.engine.held());
  EXPECT_EQ(StateText(*health), "degraded no_replay_endpoint");
  EXPECT_EQ(StateText(*zero.health), "exact none");
  // It leaves and comes back: what was told meanwhile went to nobody.
  ASSERT_TRUE(ingest_->Remove(rank));
  ASSERT_TRUE(ingest_->Join(zero.rank, {1, health}, std::nullopt));
  EXPECT_TRUE(Eventually([&] { return StateText(*health) == "degraded no_replay_endpoint"; }));
  zero.Die();
  ASSERT_TRUE(Eventually([&] { return StateText(*zero.health) == "warming disconnected"; }));
  zero.Return(1);
  AwaitSubscription(zero);
  TestEngine reborn(rank, 7);
  zero.PublishChain(2);
  reborn.Store(0);
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(reborn.Flush(1))));
  EXPECT_TRUE(Eventually([&] { return StateText(*health) == "exact none"; })) << StateText(*health);
  EXPECT_EQ(Held().size(), 3u);
}

// What somebody else knew of a rank stays when the stream began so, too, and is dropped if not.
TEST_F(IngestSockets, AKnownRankJoinsAStreamThatBeganAtAKnownPlace) {
  struct Case {
    std::optional<std::uint64_t> began;  // how far rank 0 was known
    std::uint64_t known_to;
    bool stays;
  };
  const Case cases[] = {{2, 2, true}, {2, 7, true}, {2, 1, false}, {std::nullopt, 2, false}};
  std::uint64_t worker = 1;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.known_to);
    Node zero(worker++, 0, {.replay_endpoint = std::nullopt});
    SourceSpec spec = zero.Spec();
    if (c.began) spec.recovered = SourceSpec::Recovered{StreamPosition{*c.began, std::nullopt}};
    ASSERT_TRUE(ingest_->Add(std::move(spec), index_, zero.health));
    const Rank rank{zero.rank.worker, 1};
    const auto slot = index_->index->AddRank(rank);
    ASSERT_TRUE(slot);
    const PlacedBlock block{EngineHash{77}, BlockHash{77}};
    PlacementEvent event;
    event.rank = rank;
    event.blocks = std::span(&block, 1);
    index_->index->Apply(*slot, event);
    ASSERT_EQ(Held().size(), 1u);
    const auto health = std::make_shared<fleet::RankHealth>();
    ASSERT_TRUE(ingest_->Join(zero.rank, {1, health}, c.known_to));
    EXPECT_EQ(Held().size(), c.stays ? 1u : 0u);
    ASSERT_TRUE(ingest_->Remove(rank));
    ASSERT_TRUE(ingest_->Remove(zero.rank));
    EXPECT_TRUE(Held().empty());
  }
}

TEST_F(IngestSockets, Report58RemovingOneRankLeavesTheOther) {
  Node zero(1, 0);
  Node one(1, 1);
  Follow(zero);
  Follow(one);
  ASSERT_TRUE(zero.Reaches(zero.PublishChain(3)));
  ASSERT_TRUE(one.Reaches(one.PublishChain(4)));
  EXPECT_TRUE(ingest_->Remove(one.rank));
  EXPECT_FALSE(ingest_->Remove(one.rank));
  EXPECT_EQ(Held(), zero.engine.held());
  // Rank 0's stream may not bring it back.
  TestEngine as_one({WorkerId{1}, 1}, 9);
  as_one.Store(0);
  ASSERT_TRUE(zero.Reaches(zero.publisher->Publish(as_one.Flush(1))));
  EXPECT_EQ(Held(), zero.engine.held());
}

TEST_F(IngestSockets, Row82ABlockSizeMismatchIsAStateWithBothNumbers) {
  Node node(1, 0);
  auto other = *indexes_.GetOrCreate({"other", "default"}, 16);
  ASSERT_TRUE(ingest_->Add(node.Spec(), other, node.health));
  ASSERT_TRUE(node.Reaches(node.PublishChain(1)));
  EXPECT_EQ(StateText(*node.health), "degraded block_size_mismatch");
  EXPECT_EQ(node.health->detail(), "events have block_size 4, registered is 16");
  EXPECT_NE(Metrics().find("kvr_ingest_events_filtered_total{reason=\"block_size_mismatch\"} 1\n"),
            std::string::npos);
}

TEST_F(IngestSockets, ABlockSizeMismatchIsOfTheRankThatHasIt) {
  Node node(1, 0);
  SourceSpec spec = node.Spec();
  const auto shared = std::make_shared<fleet::RankHealth>();
  spec.sharers.push_back({1, shared});
  ASSERT_TRUE(ingest_->Add(std::move(spec), index_, node.health));
  node.engine.Store(0);
  node.publisher->Publish(node.engine.Flush(0));
  wire::EventBatch batch;
  batch.dp_rank = 1;
  const EngineHash name{1};
  const std::vector<TokenId> tokens(8, 5);
  batch.AddStored(std::span(&name, 1), std::nullopt, tokens, 8);
  std::string payload;
  wire::EncodeEventBatch(batch, *wire::DialectByName("vllm-0.24"), payload);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(std::as_bytes(std::span(payload)))));
  EXPECT_EQ(StateText(*shared), "degraded block_size_mismatch");
  EXPECT_EQ(shared->detail(), "events have block_size 8, registered is 4");
  EXPECT_EQ(StateText(*node.health), "exact none");
}

TEST_F(IngestSockets, ARankRecoversWhenItsBlockSizeIsTheRegisteredOneAgain) {
  Node node(1, 0);
  FollowSettled(node);
  const auto publish = [&](std::uint64_t name, std::uint32_t block_size) {
    wire::EventBatch batch;
    const EngineHash hash{name};
    const std::vector<TokenId> tokens(block_size, 5);
    batch.AddStored(std::span(&hash, 1), std::nullopt, tokens, block_size);
    std::string payload;
    wire::EncodeEventBatch(batch, *wire::DialectByName("vllm-0.24"), payload);
    return node.Reaches(node.publisher->Publish(std::as_bytes(std::span(payload))));
  };
  ASSERT_TRUE(publish(1, 4));
  EXPECT_EQ(StateText(*node.health), "exact none");
  ASSERT_TRUE(publish(2, 8));
  EXPECT_EQ(StateText(*node.health), "degraded block_size_mismatch");
  EXPECT_EQ(node.health->detail(), "events have block_size 8, registered is 4");
  ASSERT_TRUE(publish(3, 16));
  EXPECT_EQ(node.health->detail(), "events have block_size 16, registered is 4");
  ASSERT_TRUE(publish(4, 4));
  EXPECT_EQ(StateText(*node.health), "exact none");
  EXPECT_EQ(node.health->detail(), "");
}

TEST_F(IngestSockets, RanksThatNobodyRegisteredCostNothingHoweverManyTheyAre) {
  Node node(1, 0);
  Follow(node);
  for (std::uint32_t rank = 1; rank <= 1'100; ++rank) {
    TestEngine stranger({WorkerId{1}, rank}, 10);
    stranger.Store(0);
    node.publisher->Publish(stranger.Flush(rank));
  }
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(node.engine.Flush(0))));
  EXPECT_EQ(Held(), node.engine.held());
  EXPECT_EQ(StateText(*node.health), "exact none");
  EXPECT_LT(node.health->table_bytes(), 65'536u) << "there is one block";
}

TEST_F(IngestSockets, AStreamThatSpeaksOnlyOfOtherRanksIsDegradedUntilItSpeaksOfItsOwn) {
  Node node(1, 0);
  Follow(node);
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(node.engine.Flush(3))));
  EXPECT_EQ(StateText(*node.health), "degraded foreign_rank");
  EXPECT_EQ(node.health->detail(),
            "events are of dp_rank 3, which is not registered; register that rank");
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(node.engine.Flush(0))));
  EXPECT_EQ(StateText(*node.health), "exact none");
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(node.engine.Flush(3))));
  EXPECT_EQ(StateText(*node.health), "exact none") << "others may share the stream";
}

TEST_F(IngestSockets, ABatchOfARankThatCannotExistDegradesTheStreamUnderTheSameName) {
  // [1.5, [], -1] and [1.5, [], 2^40]
  static constexpr char kNegative[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x90\xff";
  static constexpr char kTooLarge[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x90\xcf\0\0\x01\0\0\0\0\0";
  Node node(1, 0);
  FollowSettled(node);
  std::uint64_t batches = 0;
  for (const std::string_view batch : {std::string_view(kNegative, sizeof kNegative - 1),
                                       std::string_view(kTooLarge, sizeof kTooLarge - 1)}) {
    ASSERT_TRUE(node.Reaches(node.publisher->Publish(std::as_bytes(std::span(batch)))));
    EXPECT_EQ(StateText(*node.health), "degraded foreign_rank");
    const auto rejected = node.health->rejected().contents();
    ASSERT_FALSE(rejected.last.empty());
    EXPECT_EQ(rejected.last.back().reason, "foreign_rank");
    EXPECT_NE(Metrics().find(fmt::format(
                  "kvr_ingest_batches_rejected_total{{reason=\"foreign_rank\"}} {}\n", ++batches)),
              std::string::npos);
  }
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(Held(), node.engine.held());
  EXPECT_EQ(StateText(*node.health), "degraded foreign_rank") << "the batches stay lost";
}

TEST_F(IngestSockets, AStreamThatSpeaksOnlyOfOtherWorkersIsDegradedUntilItSpeaksOfItsOwn) {
  Node node(1, 0);
  Follow(node);
  static constexpr std::string_view kOthers =
      R"([{"worker_id":2,"event":{"event_id":0,"dp_rank":0,"data":"cleared"}}])";
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(std::as_bytes(std::span(kOthers)))));
  EXPECT_EQ(StateText(*node.health), "degraded foreign_rank");
  node.engine.Store(0);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(node.engine.Flush(0))));
  EXPECT_EQ(StateText(*node.health), "exact none");
}

TEST_F(IngestSockets, AnUndecodableEventDegradesTheRankAndSparesItsSiblings) {
  Node node(1, 0);
  FollowSettled(node);
  // [1.5, [["BlockStored"], ["AllBlocksCleared"]], nil]
  static constexpr char kBad[] =
      "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x92\x91\xab"
      "BlockStored\x91\xb0"
      "AllBlocksCleared\xc0";
  const auto payload = std::as_bytes(std::span(kBad)).first(sizeof kBad - 1);
  ASSERT_TRUE(node.Reaches(node.publisher->Publish(payload)));
  EXPECT_TRUE(Held().empty());
  EXPECT_EQ(StateText(*node.health), "degraded undecodable");
  EXPECT_EQ(node.health->detail(),
            "an event could not be decoded: missing_field, field `block_hashes`");
}

TEST_F(IngestSockets, BlocksThatWaitedForTheirParentsAndHadToGoDegradeTheRank) {
  index::IndexSet indexes{index::IndexOptions{.pending_blocks_max = 1}};
  index_ = *indexes.GetOrCreate({"m", "default"}, kTestBlockSize);
  Node node(1, 0);
  FollowSettled(node);
  constexpr std::uint64_t kNeverTold = 7;
  node.engine.Store(kNeverTold);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(StateText(*node.health), "exact none");
  node.engine.Store(kNeverTold);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(StateText(*node.health), "degraded index_full");
  EXPECT_NE(node.health->detail().find("`index.pending_blocks_max`"), std::string::npos);
  node.engine.ClearAll();
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(StateText(*node.health), "exact none");
  ingest_.reset();
}

TEST_F(IngestSockets, ABlockWhoseRemovalWasLostGoesWithItsNextRemoval) {
  Node node(1, 0, {.replay_endpoint = std::nullopt});
  FollowSettled(node);
  const std::uint64_t block = node.engine.Store(0);
  node.Publish();
  node.engine.Remove(block);
  node.publisher->Lose(node.engine.Flush(), true);
  node.engine.StoreAgain(block, Tier::kDevice);
  node.Publish();
  node.engine.Remove(block);
  ASSERT_TRUE(node.Reaches(node.Publish()));
  EXPECT_EQ(StateText(*node.health), "degraded gap_unrepaired");
  EXPECT_EQ(Held(), node.engine.held());
}

TEST_F(IngestSockets, Row46Report44AfterRemoveNoEventOfTheSourceIsApplied) {
  Node node(1, 0, {.replay_messages_max = 200});
  std::atomic<bool> stop{false};
  std::jthread spammer([&] {
    while (!stop.load()) {
      node.engine.Store(0);
      node.Publish();
    }
  });
  for (int cycle = 0; cycle < 20; ++cycle) {
    const auto health = std::make_shared<fleet::RankHealth>();
    ASSERT_TRUE(ingest_->Add(node.Spec(), index_, health));
    ASSERT_TRUE(Eventually([&] { return health->count(RankCount::kMessages) > 0; }));
    ASSERT_TRUE(ingest_->Remove(node.rank));
    const std::uint64_t applied = health->count(RankCount::kMessages);
    EXPECT_TRUE(Held().empty());
    EXPECT_EQ(index_->index->Stats().ranks, 0u);
    EXPECT_EQ(health->count(RankCount::kMessages), applied);
  }
  EXPECT_EQ(ingest_->sources(), 0u);
  stop.store(true);
}

TEST_F(IngestSockets, WhatCannotBeAddedSaysWhy) {
  Node node(1, 0);
  SourceSpec spec = node.Spec();
  spec.source.endpoint = "http://x:1";
  auto added = ingest_->Add(spec, index_, node.health);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message, "invalid ZMQ endpoint `http://x:1`: unsupported scheme `http`");
  spec = node.Spec();
  spec.source.replay_endpoint = "tcp://host";
  added = ingest_->Add(spec, index_, node.health);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message, "invalid replay endpoint `tcp://host`: missing TCP port");
  EXPECT_EQ(index_->index->Stats().ranks, 0u);
  Follow(node);
  added = ingest_->Add(node.Spec(), index_, node.health);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE(ingest_->Remove({WorkerId{7}, 0}));
}

TEST_F(IngestSockets, TheNumberOfSourcesIsBounded) {
  Ingest::Options options;
  options.sources_max = 1;
  Restart(options);
  Node one(1, 0);
  Node two(2, 0);
  Follow(one);
  const auto added = ingest_->Add(two.Spec(), index_, two.health);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kOverloaded);
}

TEST_F(IngestSockets, StopKeepsTheBlocksAndRefusesMore) {
  Node node(1, 0);
  Follow(node);
  ASSERT_TRUE(node.Reaches(node.PublishChain(100)));
  ingest_->Stop();
  ingest_->Stop();
  EXPECT_EQ(Held(), node.engine.held()) << "the index outlives the threads";
  Node other(2, 0);
  const auto added = ingest_->Add(other.Spec(), index_, other.health);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kCancelled);
}

// With an hour until the next look, so that it is the end that wakes it.
TEST_F(IngestSockets, T14TheEndOfAnIdleSourceIsPromptAndNoFailure) {
  Ingest::Options options;
  options.stream.quiet_after = std::chrono::hours(1);
  Restart(options);
  Node node(1, 0);
  FollowSettled(node);
  ingest_->Stop();
  EXPECT_EQ(StateText(*node.health), "exact none");
  EXPECT_EQ(Held().size(), 1u);
}

TEST_F(IngestSockets, ARankIsDescribedInTheMetrics) {
  Node node(7, 3);
  Follow(node);
  ASSERT_TRUE(node.Reaches(node.PublishChain(4)));
  const std::string text = Metrics();
  for (const char* line :
       {"kvr_ingest_rank_state{worker_id=\"7\",dp_rank=\"3\",state=\"exact\",reason=\"none\"} 1\n",
        "kvr_ingest_rank_watermark{worker_id=\"7\",dp_rank=\"3\"} 3\n",
        "kvr_ingest_rank_blocks{worker_id=\"7\",dp_rank=\"3\",tier=\"device\"} 4\n",
        "kvr_ingest_rank_connected{worker_id=\"7\",dp_rank=\"3\"} 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_NE(text.find("kvr_ingest_rank_lag_seconds{"), std::string::npos);
  // Tables begin with 64 places of 40 bytes; the health is written after the watermark.
  EXPECT_TRUE(Eventually([&] {
    return Metrics().find("kvr_ingest_rank_table_bytes{worker_id=\"7\",dp_rank=\"3\"} 2560\n") !=
           std::string::npos;
  })) << Metrics();
  ASSERT_TRUE(ingest_->Remove(node.rank));
  EXPECT_EQ(Metrics().find("worker_id=\"7\""), std::string::npos) << "the series end with the rank";
}

}  // namespace
}  // namespace kvr::ingest
