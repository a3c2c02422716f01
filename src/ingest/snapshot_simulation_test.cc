// An agent, a faulty network and one source in virtual time. Each seed is one history of drops,
// duplicates, link losses, restarts of the agent, rings that are too short, and answers that come
// late, in parts, torn or not at all; afterwards the network is healed and the index is compared
// with what the agent tells.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "index/index_set.h"
#include "ingest/message.h"
#include "ingest/source.h"
#include "ingest/test_engine.h"
#include "ingest/test_poller.h"
#include "wire/router_event.h"
#include "wire/snapshot_seal.h"

namespace kvr::ingest {
namespace {

constexpr Rank kRank{WorkerId{1}, 0};
constexpr std::uint64_t kNames = 60;

std::uint64_t ParentOf(std::uint64_t name) {
  return name / 2;
}

// Publishes what it holds, which is blocks of a tree: block n goes on from block n / 2.
class FakeAgent {
 public:
  FakeAgent(std::uint64_t id, std::size_t ring_max) : id_(id), ring_max_(ring_max) {}

  void Store(std::uint64_t name, Tier tier) {
    wire::RouterEvent& event = Event(wire::EventType::kStored, tier);
    if (ParentOf(name) != 0) event.parent = EngineHash{ParentOf(name)};
    event.blocks = {static_cast<std::uint32_t>(batch_.blocks.size()), 1};
    batch_.blocks.push_back({EngineHash{name}, BlockHash{name * 1'000}, {}, false});
    held_.emplace(tier, name);
  }
  void Remove(std::uint64_t name, Tier tier) {
    wire::RouterEvent& event = Event(wire::EventType::kRemoved, tier);
    event.removed = {static_cast<std::uint32_t>(batch_.removed.size()), 1};
    batch_.removed.push_back(EngineHash{name});
    held_.erase({tier, name});
  }
  void Clear() {
    Event(wire::EventType::kCleared, Tier::kDevice);
    held_.clear();
  }

  // The live message of all events since the last, which is kept, too.
  TestMessage Publish() {
    std::string events;
    wire::EncodeRouterEvents(batch_, events);
    batch_.Clear();
    std::string envelope;
    wire::EncodeRouterEnvelope({id_, next_, 0, "t", events}, envelope);
    ring_.emplace_back(next_, envelope);
    if (ring_.size() > ring_max_) ring_.pop_front();
    std::string framed;
    wire::FrameRouterEvents(envelope, framed);
    return {"t", NumberFrame(id_), NumberFrame(next_++), framed};
  }

  // Also of an old ring that knows no snapshots.
  std::vector<TestMessage> Answer(const TestMessage& request, bool knows_snapshots) const {
    if (request.size() == 2) return Replay(request[1]);
    if (!knows_snapshots) return {};
    if (request[2] == wire::kAskState) return {Part(wire::kStateSeal, 0, Seal())};
    std::vector<TestMessage> parts{Part(wire::kSnapshotBegin, 0, Seal())};
    // Parents have lower names, so they come first.
    for (std::uint64_t first = 1; first <= kNames; first += 20) {
      if (std::string piece = Piece(first, first + 20); !piece.empty())
        parts.push_back(Part(wire::kSnapshotEvents, parts.size(), std::move(piece)));
    }
    parts.push_back(Part(wire::kSnapshotEnd, parts.size(), Seal()));
    return parts;
  }

  void Know(RankState state) { state_ = state; }
  [[nodiscard]] RankState state() const { return state_; }
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] const std::set<std::pair<Tier, std::uint64_t>>& held() const { return held_; }
  // What an index finds of it.
  [[nodiscard]] std::set<HeldBlock> Found() const {
    std::set<HeldBlock> found;
    for (const auto& [tier, name] : held_) {
      if (Reached(name)) found.emplace(kRank, tier, name);
    }
    return found;
  }

 private:
  wire::RouterEvent& Event(wire::EventType type, Tier tier) {
    wire::RouterEvent& event = batch_.events.emplace_back();
    event.type = type;
    event.worker_id = Raw(kRank.worker);
    event.tier = tier;
    event.domain = wire::ResidencyDomain::kWorker;
    event.event_id = ++last_event_;
    return event;
  }
  bool Reached(std::uint64_t name) const {
    for (; name != 0; name = ParentOf(name)) {
      const bool held =
          std::ranges::any_of(held_, [name](const auto& block) { return block.second == name; });
      if (!held) return false;
    }
    return true;
  }
  std::vector<TestMessage> Replay(std::string_view start) const {
    std::uint64_t from = 0;
    EXPECT_TRUE(ReadSequence(std::as_bytes(std::span(start)), from));
    std::vector<TestMessage> answer;
    for (const auto& [sequence, envelope] : ring_) {
      if (sequence >= from) answer.push_back({"", "t", NumberFrame(sequence), envelope});
    }
    answer.push_back({"", "", NumberFrame(kEndSequence), ""});
    return answer;
  }
  static TestMessage Part(std::string_view kind, std::uint64_t number, std::string body) {
    return {"", std::string(kind), NumberFrame(number), std::move(body)};
  }
  std::string Seal() const {
    wire::SnapshotSeal seal;
    seal.publisher_id = id_;
    seal.next_sequence = next_;
    seal.last_event_id = last_event_;
    std::set<std::uint64_t> names;
    for (const auto& [tier, name] : held_)
      names.insert(name);
    seal.blocks = names.size();
    seal.complete = state_ == RankState::kExact;
    seal.state = state_;
    seal.reason = state_ == RankState::kExact ? StateReason::kNone : StateReason::kHistoryGone;
    std::string bytes;
    wire::EncodeSnapshotSeal(seal, bytes);
    return bytes;
  }
  // Empty when it has no event.
  std::string Piece(std::uint64_t first, std::uint64_t end) const {
    FakeAgent told(id_, 0);
    for (std::uint64_t name = first; name < end; ++name) {
      for (std::size_t tier = 0; tier < kTierCount; ++tier) {
        if (held_.contains({static_cast<Tier>(tier), name}))
          told.Store(name, static_cast<Tier>(tier));
      }
    }
    std::string events;
    if (!told.batch_.events.empty()) wire::EncodeRouterEvents(told.batch_, events);
    return events;
  }

  std::uint64_t id_;
  std::size_t ring_max_;
  RankState state_ = RankState::kExact;
  std::uint64_t next_ = 0;
  std::uint64_t last_event_ = 0;
  std::set<std::pair<Tier, std::uint64_t>> held_;
  std::deque<std::pair<std::uint64_t, std::string>> ring_;
  wire::RouterBatch batch_;
};

struct Scenario {
  std::size_t ring_max = 3;
  bool knows_snapshots = true;
  bool degrades = false;  // the agent is not always exact
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, const Scenario& scenario) : rng_(seed), scenario_(scenario) {
    index_ = *indexes_.GetOrCreate({"m", "default"}, kTestBlockSize);
    targets_[kRank] = {index_, *index_->index->AddRank(kRank),
                       std::make_shared<fleet::RankHealth>()};
    Ingest::Options options;
    options.stream.parked_messages_max = 8;
    SourceSpec spec;
    spec.rank = kRank;
    spec.source.endpoint = "tcp://agent:1";
    spec.source.replay_endpoint = "tcp://agent:2";
    for (std::uint64_t i = rng_.Below(30); i > 0; --i)
      Publish(true);  // before anybody listens
    source_ = *Source::Open(std::move(spec), targets_[kRank].health, options, poller_, targets_,
                            metrics_, clock_);
  }

  void Run() {
    for (int step = 0; step < 200; ++step) {
      Step();
      if (rng_.Below(3) != 0) source_->Turn({1 + rng_.Below(8)});
      clock_.Advance(Millis{static_cast<std::int64_t>(rng_.Below(5) == 0 ? rng_.Below(3'000) : 5)});
    }
    Heal();
  }

  std::set<HeldBlock> indexed() const { return HeldIn(*index_->index); }
  const FakeAgent& agent() const { return agent_; }
  const fleet::RankHealth& health() const { return *targets_.at(kRank).health; }
  const StreamStats& stats() const { return source_->stream().stats(); }

 private:
  void Step() {
    const std::uint64_t what = rng_.Below(100);
    if (what < 50) {
      Publish(rng_.Below(8) == 0);
    } else if (what < 56) {
      SetLink(!up_);
    } else if (what < 58) {
      RestartAgent();
    } else if (what < 62) {
      silent_ = !silent_;
    } else if (what < 66) {
      subscribed_ = up_;
    } else if (what < 68 && scenario_.degrades) {
      agent_.Know(rng_.Below(2) == 0 ? RankState::kExact : RankState::kDegraded);
    } else {
      TakeRequests();
      Deliver(1 + rng_.Below(4));
    }
  }

  void Publish(bool lost) {
    for (std::uint64_t i = 1 + rng_.Below(3); i > 0; --i) {
      const std::uint64_t name = 1 + rng_.Below(kNames);
      const Tier tier = rng_.Below(4) == 0 ? Tier::kHostPinned : Tier::kDevice;
      const std::uint64_t what = rng_.Below(40);
      if (what == 0) {
        agent_.Clear();
      } else if (what < 26) {
        agent_.Store(name, tier);
      } else {
        agent_.Remove(name, tier);
      }
    }
    Send(agent_.Publish(), lost);
  }
  void Send(const TestMessage& message, bool lost) {
    if (lost || !up_ || !subscribed_) return;
    for (std::uint64_t copies = rng_.Below(12) == 0 ? 2 : 1; copies > 0; --copies)
      poller_.live->messages.push_back(message);
  }

  void SetLink(bool up) {
    if (up == up_) return;
    up_ = up;
    subscribed_ = up && rng_.Below(2) == 0;  // else the subscription arrives later
    poller_.live->links.push_back(up ? net::LinkEvent::kConnected : net::LinkEvent::kDisconnected);
    if (!up && rng_.Below(2) == 0) poller_.live->messages.clear();
    if (!up) due_.clear();
    if (!up) source_->Turn({1'000});
  }

  // What it held it tells anew, as it learns it anew.
  void RestartAgent() {
    if (rng_.Below(4) != 0) SetLink(false);  // else something between keeps the link up
    const auto held = agent_.held();
    const RankState state = agent_.state();
    due_.clear();
    agent_ = FakeAgent(++agent_id_, scenario_.ring_max);
    agent_.Know(state);
    for (const auto& [tier, name] : held) {
      agent_.Store(name, tier);
      if (rng_.Below(4) == 0) Send(agent_.Publish(), rng_.Below(8) == 0);
    }
    Send(agent_.Publish(), false);
  }

  void TakeRequests() {
    auto& requests = poller_.replay->requests;
    for (; !requests.empty(); requests.pop_front()) {
      if (silent_ || !up_) continue;
      for (TestMessage& part : agent_.Answer(requests.front(), scenario_.knows_snapshots))
        due_.push_back({poller_.replay, std::move(part)});
    }
  }
  void Deliver(std::size_t parts) {
    for (; parts > 0 && !due_.empty(); --parts) {
      if (rng_.Below(60) != 0) due_.front().first->messages.push_back(due_.front().second);
      due_.pop_front();
    }
  }

  // No faults any more: what can be repaired has to be.
  void Heal() {
    silent_ = false;
    SetLink(true);
    subscribed_ = true;
    for (int round = 0; round < 100; ++round) {
      if (round % 16 == 0) {
        agent_.Store(1, Tier::kDevice);
        poller_.live->messages.push_back(agent_.Publish());
      }
      source_->Turn({1'000});
      TakeRequests();
      for (; !due_.empty(); due_.pop_front())
        due_.front().first->messages.push_back(due_.front().second);
      source_->Turn({1'000});
      clock_.Advance(Millis{1'200});
    }
  }

  Rng rng_;
  const Scenario scenario_;
  ManualClock clock_;
  metrics::Registry registry_;
  IngestMetrics metrics_{registry_, false};
  index::IndexSet indexes_{index::IndexOptions{}};
  std::shared_ptr<index::PartitionIndex> index_;
  Targets targets_;
  TestPoller poller_;

  std::uint64_t agent_id_ = 100;
  FakeAgent agent_{100, scenario_.ring_max};
  std::deque<std::pair<std::shared_ptr<TestPipe>, TestMessage>> due_;
  bool up_ = false;
  bool subscribed_ = false;
  bool silent_ = false;

  std::unique_ptr<Source> source_;  // last: it uses the others
};

struct Totals {
  std::uint64_t taken = 0;
  std::uint64_t failed = 0;
  std::uint64_t overtaken = 0;
  std::uint64_t restarts = 0;
  std::uint64_t degraded = 0;
};

// Fewer seeds where the build is not optimised, to keep the suite quick.
#ifdef NDEBUG
constexpr std::uint64_t kFewer = 1;
#else
constexpr std::uint64_t kFewer = 10;
#endif

Totals RunSeeds(const Scenario& scenario, std::uint64_t seeds) {
  Totals totals;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Simulation run(seed, scenario);
    run.Run();
    const auto status = run.health().status();
    EXPECT_EQ(RankStateName(status.state), RankStateName(run.agent().state()))
        << "seed " << seed << ": " << run.health().detail();
    EXPECT_EQ(run.indexed(), run.agent().Found()) << "seed " << seed;
    totals.taken += run.stats().snapshots_taken;
    totals.failed += run.stats().snapshots_failed;
    totals.overtaken += run.stats().overtaken;
    totals.restarts += run.stats().restarts;
    totals.degraded += status.state == RankState::kDegraded ? 1 : 0;
    if (testing::Test::HasFailure()) break;
  }
  return totals;
}

TEST(SnapshotSimulation, WithAShortRingEveryHistoryEndsAsTheAgentIs) {
  const Totals totals = RunSeeds({.ring_max = 3}, 1'000 / kFewer);
  // The faults have to have happened for this to mean anything.
  EXPECT_GT(totals.taken, 1'500u / kFewer);
  EXPECT_GT(totals.failed, 150u / kFewer);
  EXPECT_GT(totals.overtaken, 100u / kFewer);
  EXPECT_GT(totals.restarts, 1'000u / kFewer);
}

TEST(SnapshotSimulation, WithALongRingSnapshotsAreSeldom) {
  RunSeeds({.ring_max = 100'000}, 500 / kFewer);
}

TEST(SnapshotSimulation, WithARingOfOneToo) {
  RunSeeds({.ring_max = 1}, 1'000 / kFewer);
}

TEST(SnapshotSimulation, TheStateFollowsTheAgents) {
  const Totals totals = RunSeeds({.ring_max = 3, .degrades = true}, 500 / kFewer);
  EXPECT_GT(totals.degraded, 50u / kFewer);
  EXPECT_LT(totals.degraded, 450u / kFewer);
}

// As behind an engine: nothing is claimed that the agent does not hold.
TEST(SnapshotSimulation, AnAgentThatTellsNoneIsFollowedAsBefore) {
  for (std::uint64_t seed = 0; seed < 300 / kFewer; ++seed) {
    Simulation run(seed, {.ring_max = 3, .knows_snapshots = false});
    run.Run();
    const std::set<HeldBlock> indexed = run.indexed();
    const std::set<HeldBlock> found = run.agent().Found();
    EXPECT_TRUE(std::ranges::includes(found, indexed)) << "seed " << seed;
    const auto status = run.health().status();
    if (status.state == RankState::kExact) {
      EXPECT_EQ(indexed, found) << "seed " << seed;
    } else {
      EXPECT_EQ(StateReasonName(status.reason), "history_gone")
          << "seed " << seed << ": " << run.health().detail();
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace kvr::ingest
