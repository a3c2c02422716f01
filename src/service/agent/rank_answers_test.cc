// What the replay socket of an agent answers beside messages: rows L3, L6, L10 to L19 as a router
// sees them.
#include "service/agent/rank_answers.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "publish/rank_publisher.h"
#include "wire/router_event.h"
#include "wire/snapshot_seal.h"

namespace kvr::service {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Rank kRank{WorkerId{7}, 3};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A published rank of one source, which nobody follows.
class Agent {
 public:
  explicit Agent(std::size_t blocks_max = 1'000'000) {
    fleet::WorkerSpec spec;
    spec.id = kRank.worker;
    spec.partition = {"m", "default"};
    spec.block_size = 4;
    spec.dp_ranks = {kRank.dp_rank};
    EXPECT_TRUE(catalog.Add(spec));
    PublishedRank::Options options;
    options.publisher.rank = kRank;
    options.publisher.publisher_id = 5;
    options.publisher.book.blocks_max = blocks_max;
    rank = *PublishedRank::Open(options, clock);
    answers = std::make_unique<RankAnswers>(*rank, catalog);
    Know(RankState::kExact, StateReason::kNone);
  }

  void Know(RankState state, StateReason reason) {
    const auto fleet = catalog.snapshot();
    fleet->workers.front()->FindRank(kRank.dp_rank)->health->SetStatus({state, reason}, "", {});
  }
  void Store(std::optional<std::uint64_t> parent, std::uint64_t name, Tier tier = Tier::kDevice,
             bool eligible = false) {
    const PlacedBlock block{EngineHash{name}, BlockHash{name + 10}};
    PlacementEvent event;
    event.rank = kRank;
    event.tier = tier;
    event.eligible = eligible;
    if (parent) event.parent = EngineHash{*parent};
    event.blocks = std::span(&block, 1);
    rank->Apply(0, event);
    rank->EndList(0);
  }
  void Remove(std::uint64_t name) {
    const EngineHash names[] = {EngineHash{name}};
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.rank = kRank;
    event.removed = names;
    rank->Apply(0, event);
    rank->EndList(0);
  }

  struct Snapshot {
    wire::SnapshotSeal seal;
    std::set<std::string> held;  // "tier name<parent", of eligible ones with a "!"
    std::size_t pieces = 0;
    std::size_t largest = 0;
  };
  Snapshot Take() {
    Snapshot snapshot;
    const auto parts = answers->Answer(wire::kAskSnapshot);
    std::string kind;
    std::string body;
    EXPECT_TRUE(parts->Next(kind, body));
    EXPECT_EQ(kind, wire::kSnapshotBegin);
    const std::string begin = body;
    EXPECT_TRUE(parts->Next(kind, body));
    for (; kind == wire::kSnapshotEvents; ++snapshot.pieces) {
      snapshot.largest = std::max(snapshot.largest, body.size());
      Apply(body, snapshot.held);
      EXPECT_TRUE(parts->Next(kind, body));
    }
    EXPECT_EQ(kind, wire::kSnapshotEnd);
    EXPECT_EQ(body, begin);
    EXPECT_FALSE(parts->Next(kind, body));
    snapshot.seal = *wire::DecodeSnapshotSeal(Bytes(begin));
    return snapshot;
  }
  wire::SnapshotSeal State() {
    const auto parts = answers->Answer(wire::kAskState);
    std::string kind;
    std::string body;
    EXPECT_TRUE(parts->Next(kind, body));
    EXPECT_EQ(kind, wire::kStateSeal);
    const auto seal = *wire::DecodeSnapshotSeal(Bytes(body));
    EXPECT_FALSE(parts->Next(kind, body));
    return seal;
  }

  ManualClock clock;
  fleet::Catalog catalog;
  std::unique_ptr<PublishedRank> rank;
  std::unique_ptr<RankAnswers> answers;

 private:
  static void Apply(std::string_view piece, std::set<std::string>& held) {
    wire::RouterBatch batch;
    ASSERT_TRUE(wire::LooksLikeRouterEvents(Bytes(piece)));
    ASSERT_TRUE(wire::DecodeRouterEvents(Bytes(piece), {}, batch));
    ASSERT_THAT(batch.bad, IsEmpty());
    for (const wire::RouterEvent& event : batch.events) {
      ASSERT_EQ(event.worker_id, Raw(kRank.worker));
      ASSERT_EQ(event.dp_rank, kRank.dp_rank);
      std::uint64_t parent = event.parent ? Raw(*event.parent) : 0;
      for (std::size_t i = 0; i < event.blocks.count; ++i) {
        const std::uint64_t name = Raw(batch.blocks[event.blocks.begin + i].engine);
        held.insert(fmt::format("{} {}<{}{}", TierName(event.tier), name, parent,
                                event.eligible ? "!" : ""));
        parent = name;
      }
      for (std::size_t i = 0; i < event.removed.count; ++i) {
        const std::string gone = fmt::format("{} {}<", TierName(event.tier),
                                             Raw(batch.removed[event.removed.begin + i]));
        std::erase_if(held, [&](const std::string& block) { return block.starts_with(gone); });
      }
    }
  }
};

TEST(RankAnswers, L6OfNothing) {
  Agent agent;
  const auto snapshot = agent.Take();
  EXPECT_THAT(snapshot.held, IsEmpty());
  EXPECT_EQ(snapshot.seal,
            (wire::SnapshotSeal{5, 0, 0, 0, true, RankState::kExact, StateReason::kNone}));
  EXPECT_EQ(agent.State(), snapshot.seal);
}

TEST(RankAnswers, L3L13L14AllTiersWithEligibilityAtAMessage) {
  Agent agent;
  agent.Store({}, 1, Tier::kDevice, true);
  agent.Store(1, 2);
  agent.Store(1, 2, Tier::kDisk);
  agent.Store(2, 3, Tier::kHostPinned);
  const auto snapshot = agent.Take();
  EXPECT_THAT(snapshot.held,
              ElementsAre("device 1<0!", "device 2<1", "disk 2<1", "host_pinned 3<2"));
  EXPECT_EQ(snapshot.seal.next_sequence, 4u);
  EXPECT_EQ(snapshot.seal.last_event_id, 4u);
  EXPECT_EQ(snapshot.seal.blocks, 3u);
}

TEST(RankAnswers, L17ATailGoesWithItAndMovesThePosition) {
  Agent agent;
  agent.Store({}, 1);
  agent.Store(1, 2);
  agent.Take();
  agent.Remove(2);
  agent.Store(1, 3);
  const auto snapshot = agent.Take();
  EXPECT_EQ(agent.rank->stats().publisher.snapshots_built, 1u);
  EXPECT_THAT(snapshot.held, ElementsAre("device 1<0", "device 3<1"));
  EXPECT_EQ(snapshot.seal.next_sequence, 4u);
  EXPECT_EQ(snapshot.seal.blocks, 2u);
}

TEST(RankAnswers, PiecesAreBounded) {
  Agent agent;
  constexpr std::uint64_t kBlocks = 5'000;
  for (std::uint64_t name = 1; name <= kBlocks; ++name)
    agent.Store({}, name);
  const auto snapshot = agent.Take();
  EXPECT_EQ(snapshot.held.size(), kBlocks);
  EXPECT_GT(snapshot.pieces, 4u);
  EXPECT_LT(snapshot.largest, RankAnswers::kPieceBytes + 1'024);
}

TEST(RankAnswers, TheStateIsTheSources) {
  Agent agent;
  agent.Store({}, 1);
  agent.Know(RankState::kDegraded, StateReason::kHistoryGone);
  const auto seal = agent.Take().seal;
  EXPECT_FALSE(seal.complete);
  EXPECT_EQ(seal.state, RankState::kDegraded);
  EXPECT_EQ(seal.reason, StateReason::kHistoryGone);
  EXPECT_EQ(agent.State(), seal);
}

TEST(RankAnswers, WhatIsLeftOutMakesItIncomplete) {
  Agent agent(2);
  for (const std::uint64_t name : {1u, 2u, 3u})
    agent.Store({}, name);
  const auto seal = agent.Take().seal;
  EXPECT_FALSE(seal.complete);
  EXPECT_EQ(seal.state, RankState::kExact);
  EXPECT_EQ(agent.State(), seal);
}

TEST(RankAnswers, BeyondTheSnapshotsThatMayBeReadOneIsRefused) {
  Agent agent;
  std::vector<std::unique_ptr<net::AnswerParts>> readers;
  std::string kind;
  std::string body;
  const auto ask = [&] {
    // More than the tail that an older one may have.
    for (std::uint64_t i = 0; i < 1'100; ++i)
      agent.Store({}, 1 + i % 7);
    readers.push_back(agent.answers->Answer(wire::kAskSnapshot));
    EXPECT_TRUE(readers.back()->Next(kind, body));
  };
  for (int i = 0; i < 3; ++i) {
    ask();
    EXPECT_EQ(kind, wire::kSnapshotBegin);
  }
  ask();
  EXPECT_EQ(kind, wire::kSnapshotRefused);
  EXPECT_FALSE(body.empty());
  EXPECT_FALSE(readers.back()->Next(kind, body));
}

TEST(RankAnswers, NothingElseIsAnswered) {
  Agent agent;
  EXPECT_EQ(agent.answers->Answer("splendour"), nullptr);
  EXPECT_EQ(agent.answers->Answer(""), nullptr);
}

}  // namespace
}  // namespace kvr::service
