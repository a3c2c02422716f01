// The shapes of recovery answers, the rows L1 to L15 as a client sees them.
#include "service/agent/recovery_answers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace kvr::service {
namespace {

using publish::Mutation;
using publish::RankPublisher;

struct Nowhere final : publish::Outlet {
  bool Send(std::uint64_t, std::span<const std::byte>) override { return true; }
};

struct Bench {
  Bench() : publisher(Options(), clock, outlet) {}

  static RankPublisher::Options Options() {
    RankPublisher::Options options;
    options.rank = {WorkerId{7}, 3};
    return options;
  }

  void Store(std::optional<std::uint64_t> parent, std::uint64_t name, bool eligible = false) {
    const PlacedBlock block{EngineHash{name}, BlockHash{name + 10}};
    Mutation store;
    if (parent) store.event.parent = EngineHash{*parent};
    store.event.blocks = std::span(&block, 1);
    store.event.eligible = eligible;
    publisher.Apply(0, store);
    publisher.EndList(0);
  }
  std::string Events(std::optional<std::uint64_t> from, std::optional<std::uint64_t> to = {},
                     std::size_t bytes = 1) {
    EventsJsonWriter writer(publisher.Query(from, to), 5, from, to);
    return All(writer, bytes);
  }
  std::string Snapshot(std::size_t bytes) {
    SnapshotJsonWriter writer(*publisher.TakeSnapshot(), head);
    return All(writer, bytes);
  }
  std::string All(PieceWriter& writer, std::size_t bytes) {
    std::string all;
    std::string piece;
    while (writer.Next(bytes, piece)) {
      EXPECT_FALSE(piece.empty());
      largest = std::max(largest, piece.size());
      all += piece;
    }
    EXPECT_FALSE(writer.Next(bytes, piece));
    return all;
  }

  ManualClock clock;
  Nowhere outlet;
  RankPublisher publisher;
  std::size_t largest = 0;
  SnapshotHead head{5};
};

constexpr std::string_view kSecond =
    R"({"worker_id":7,"storage_tier":"device","residency_domain":"worker","event":{"event_id":2,)"
    R"("data":{"stored":{"parent_hash":1,"start_position":null,"blocks":[)"
    R"({"block_hash":2,"tokens_hash":12,"mm_extra_info":null}]}},"dp_rank":3},"sce":true})";

TEST(RecoveryAnswers, L1ToL7Bodies) {
  Bench b;
  EXPECT_EQ(b.Events({}), R"({"Snapshot":{"publisher_id":5,"last_event_id":0}})") << "L6";
  EXPECT_EQ(b.Events(3), R"({"Snapshot":{"publisher_id":5,"last_event_id":0}})") << "L7";
  b.Store({}, 1);
  b.Store(1, 2, true);
  EXPECT_EQ(b.Events(2), R"({"Events":{"publisher_id":5,"events":[)" + std::string(kSecond) +
                             R"(],"last_event_id":2}})")
      << "L2, L15";
  EXPECT_EQ(b.Events(0), R"({"Snapshot":{"publisher_id":5,"last_event_id":2}})") << "L3";
  EXPECT_EQ(
      b.Events(3),
      R"({"TooNew":{"publisher_id":5,"requested_start":3,"requested_end":null,"newest_available":2}})")
      << "L4";
  EXPECT_EQ(
      b.Events(3, 9),
      R"({"TooNew":{"publisher_id":5,"requested_start":3,"requested_end":9,"newest_available":2}})");
  EXPECT_EQ(b.Events(8, 3), R"({"InvalidRange":{"publisher_id":5,"start_id":8,"end_id":3}})")
      << "L5";
}

TEST(RecoveryAnswers, EventsComeInBoundedPieces) {
  Bench b;
  for (std::uint64_t n = 1; n <= 300; ++n)
    b.Store({}, n);
  const std::string whole = b.Events(1, {}, 1 << 30);
  EXPECT_NE(whole.find("\"event_id\":300"), std::string::npos);
  b.largest = 0;
  EXPECT_EQ(b.Events(1, {}, 4'096), whole);
  EXPECT_LT(b.largest, 4'096u + 512);
}

TEST(RecoveryAnswers, SnapshotsOfNothingAndWithATail) {
  Bench b;
  EXPECT_EQ(b.Snapshot(1), R"({"TreeDump":{"publisher_id":5,"reset_scope":"all","last_event_id":0,)"
                           R"("complete":true,"state":"exact","reason":"none","events":[]}})");
  b.Store(1, 2);
  b.Store(1, 2, true);
  const std::string of_tail = b.Snapshot(1 << 20);
  EXPECT_NE(of_tail.find(std::string(kSecond) + "]}}"), std::string::npos) << of_tail;
  EXPECT_NE(of_tail.find(R"("last_event_id":2,)"), std::string::npos);
}

TEST(RecoveryAnswers, ASnapshotIsAsCompleteAsItsSourcesAreKnown) {
  Bench b;
  b.Store({}, 1);
  for (const RankState state : {RankState::kBlind, RankState::kWarming, RankState::kDegraded}) {
    b.head.state = state;
    b.head.reason = StateReason::kGapUnrepaired;
    const std::string want = R"("complete":false,"state":")" + std::string(RankStateName(state)) +
                             R"(","reason":"gap_unrepaired",)";
    EXPECT_NE(b.Snapshot(1 << 20).find(want), std::string::npos) << want;
  }
}

TEST(RecoveryAnswers, SnapshotsComeInBoundedPieces) {
  Bench b;
  constexpr std::size_t kBlocks = 2'000;
  for (std::uint64_t n = 0; n < kBlocks; ++n)
    b.Store({}, 1'000 + n);
  const std::string whole = b.Snapshot(1 << 30);
  b.largest = 0;
  EXPECT_EQ(b.Snapshot(4'096), whole);
  EXPECT_LT(b.largest, 4'096u + 512);
  std::size_t count = 0;
  for (std::size_t at = whole.find("\"block_hash\""); at != std::string::npos;
       at = whole.find("\"block_hash\"", at + 1))
    ++count;
  EXPECT_EQ(count, kBlocks);
}

}  // namespace
}  // namespace kvr::service
