// Recovery from a publisher of RouterEvents, which can tell all that a rank holds: the state
// machine of wire 5.5, its rows Q2 to Q4, Q6, Q7, Q9 to Q11, Q13b, Q14, Q16 to Q18, Q21 and Q22,
// and reports 37, 38 and 41; and the rows Q1, Q5 and Q23 to Q28 of streams that have no snapshots.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingest/rank_stream.h"
#include "ingest/test_stream.h"
#include "wire/router_event.h"
#include "wire/snapshot_seal.h"

namespace kvr::ingest {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Envelope(std::uint64_t publisher, std::uint64_t sequence, std::string_view payload) {
  std::string bytes;
  wire::EncodeRouterEnvelope({publisher, sequence, 0, "kv-events", payload}, bytes);
  return bytes;
}

// A stream of a publisher, whose id is 7 until it starts anew.
class Plane : public Stream {
 public:
  explicit Plane(const RankStream::Options& options = Patient()) : Stream(true, options) {}

  void Tell(std::uint64_t sequence, std::string_view payload = "x") {
    const std::string envelope = Envelope(publisher, sequence, payload);
    std::string framed;
    wire::FrameRouterEvents(envelope, framed);
    LiveFrames({"kv-events", Number(publisher), Number(sequence), framed});
  }
  void TellRange(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i)
      Tell(i);
  }
  // A replayed message.
  void Kept(std::uint64_t sequence, std::string_view payload = "x") {
    Answer(sequence, Envelope(publisher, sequence, payload));
  }
  void KeptRange(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i)
      Kept(i);
  }

  void Part(std::string_view kind, std::uint64_t number, std::string_view body) {
    AnswerFrames({"", std::string(kind), Number(number), std::string(body)});
  }
  std::string Seal(std::uint64_t next) const {
    wire::SnapshotSeal seal;
    seal.publisher_id = publisher;
    seal.next_sequence = next;
    seal.blocks = blocks;
    seal.complete = state == RankState::kExact;
    seal.state = state;
    seal.reason = reason;
    std::string bytes;
    wire::EncodeSnapshotSeal(seal, bytes);
    return bytes;
  }
  void BeginAt(std::uint64_t next) { Part(wire::kSnapshotBegin, 0, Seal(next)); }
  void EndAt(std::uint64_t next, std::uint64_t number) {
    Part(wire::kSnapshotEnd, number, Seal(next));
  }
  void SnapshotAt(std::uint64_t next) {
    BeginAt(next);
    Part(wire::kSnapshotEvents, 1, "a");
    EndAt(next, 2);
  }
  void StateAt(std::uint64_t next) { Part(wire::kStateSeal, 0, Seal(next)); }

  // Messages up to `last` are known from the first on, and nothing is left to do for now.
  void StartTold(std::uint64_t last) {
    Connect();
    KeptRange(0, last);
    End();
    Settle(last + 1);
  }
  // What is asked once the stream is in order is answered: nothing new.
  void Settle(std::uint64_t next) {
    Pass(Millis{0});
    StateAt(next);
    Pass(Millis{300});
    End();
    EXPECT_EQ(State(), "exact none");
    Take();
  }
  // A late follower, whose snapshot is asked for.
  void StartLate(std::uint64_t first_kept) {
    Connect();
    Kept(first_kept);
    EXPECT_THAT(Take(), ElementsAre("ask 0", "ask snapshot"));
  }

  std::uint64_t publisher = 7;
  std::uint64_t blocks = 3;
  RankState state = RankState::kExact;
  StateReason reason = StateReason::kNone;
};

TEST(RankStreamSnapshot, L3Q2ALateFollowerIsExactWithASnapshotAndWhatCameMeanwhile) {
  Plane s;
  s.StartLate(900);
  EXPECT_EQ(s.State(), "warming replaying");
  s.TellRange(950, 951);
  EXPECT_THAT(s.Take(), IsEmpty());
  s.SnapshotAt(950);
  EXPECT_THAT(s.Take(),
              ElementsAre("begin 3", "piece a", "swap", "apply 950 of 7", "apply 951 of 7"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().snapshots_taken, 1u);
  EXPECT_EQ(s.stats().snapshot_bytes, 1u);
  EXPECT_EQ(s.stats().missed, 0u);
}

TEST(RankStreamSnapshot, Q3ContiguousStaleAndGap) {
  Plane s;
  s.StartTold(10);
  s.Tell(11);
  s.Tell(10);
  s.Tell(15);
  EXPECT_THAT(s.Take(), ElementsAre("apply 11 of 7", "ask 12"));
}

// Asked incrementally first; what is known counts until the snapshot is there.
TEST(RankStreamSnapshot, Q4Q6Report38AGapThatIsNotKeptNeitherClearsNorLosesAnything) {
  Plane s;
  s.StartTold(10);
  s.Tell(15);
  EXPECT_THAT(s.Take(), ElementsAre("ask 11"));
  s.Kept(14);
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot"));
  s.TellRange(16, 23);
  s.SnapshotAt(21);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap", "apply 21 of 7", "apply 22 of 7",
                                    "apply 23 of 7"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().clears, 0u);
  EXPECT_EQ(s.stats().missed, 0u);
}

TEST(RankStreamSnapshot, Report38AGapThatIsKeptNeedsNoSnapshot) {
  Plane s;
  s.StartTold(5);
  s.Tell(8);
  s.KeptRange(6, 8);
  EXPECT_THAT(s.Take(), ElementsAre("ask 6", "apply 6 of 7", "apply 7 of 7", "apply 8 of 7"));
  EXPECT_EQ(s.stats().snapshots_asked, 0u);
}

TEST(RankStreamSnapshot, Q7WhatIsMissingBehindASnapshotIsAskedForAsMessages) {
  Plane s;
  s.StartLate(15);
  s.Tell(22);
  s.SnapshotAt(21);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap", "ask 21"));
  s.KeptRange(21, 22);
  EXPECT_THAT(s.Take(), ElementsAre("apply 21 of 7", "apply 22 of 7"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q9MessagesThatFoundNoRoomMeanwhileAreFetchedBehindTheSnapshot) {
  RankStream::Options options = Stream::Patient();
  options.parked_messages_max = 2;
  Plane s(options);
  s.StartLate(15);
  s.TellRange(20, 29);
  EXPECT_EQ(s.stats().park_overflow, 8u);
  s.SnapshotAt(20);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap", "apply 20 of 7", "apply 21 of 7",
                                    "ask 22"));
  s.KeptRange(22, 29);
  s.End();
  EXPECT_EQ(s.stream().watermark(), 29u);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q10AClearOvertakesTheRecovery) {
  Plane s;
  s.StartTold(10);
  s.Tell(15);
  s.Kept(14);
  s.TellRange(16, 29);
  s.Tell(31);
  s.BeginAt(28);
  s.Take();
  s.Tell(30, "clear");  // late by one
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Tell(32, "clear");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 32 of 7"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stream().parked(), 0u);
  EXPECT_EQ(s.stats().overtaken, 1u);
  // Q21: what still comes of the snapshot is of no use.
  s.Part(wire::kSnapshotEvents, 1, "a");
  s.EndAt(28, 2);
  s.Tell(33);
  EXPECT_THAT(s.Take(), ElementsAre("apply 33 of 7"));
}

TEST(RankStreamSnapshot, Q10AClearBehindAGapMakesTheGapNeedless) {
  Plane s;
  s.StartTold(10);
  s.Tell(30, "clear");
  s.Tell(31);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 30 of 7", "apply 31 of 7"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q11AnOldClearIsIgnored) {
  Plane s;
  s.StartTold(10);
  s.Tell(11);
  s.Tell(12);
  s.Tell(11, "clear");
  EXPECT_THAT(s.Take(), ElementsAre("apply 11 of 7", "apply 12 of 7", "ask 11"));
  s.KeptRange(11, 12);
  s.End();
  EXPECT_THAT(s.Take(), IsEmpty());
  EXPECT_EQ(s.State(), "exact none");
}

struct Fault {
  const char* name;
  void (*happens)(Plane& s);
};

class RankStreamTornSnapshot : public testing::TestWithParam<Fault> {};

// Q13, Q13c, Q14, Q16, Q22: nothing changes, and another one is asked for after a pause.
TEST_P(RankStreamTornSnapshot, ChangesNothingAndIsAskedForAgain) {
  Plane s;
  s.StartTold(10);
  s.Tell(15);
  s.Kept(14);
  s.Take();
  GetParam().happens(s);
  const std::vector<std::string> told = s.Take();
  EXPECT_THAT(told, testing::Not(testing::Contains("swap")));
  EXPECT_THAT(told, testing::Not(testing::Contains("clear")));
  EXPECT_EQ(s.stats().snapshots_failed, 1u);
  s.Pass(Millis{199});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot"));
  s.SnapshotAt(15);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap", "apply 15 of 7"));
  EXPECT_EQ(s.State(), "exact none");
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RankStreamTornSnapshot,
    testing::Values(
        Fault{"Silent", [](Plane& s) { s.Pass(Millis{5'000}); }},
        Fault{"SilentAfterAPiece",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotEvents, 1, "a");
                s.Pass(Millis{5'000});
              }},
        Fault{"PieceMissing",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotEvents, 2, "b");
              }},
        Fault{"PieceTwice",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotEvents, 1, "a");
                s.Part(wire::kSnapshotEvents, 1, "a");
              }},
        Fault{"NoBegin", [](Plane& s) { s.Part(wire::kSnapshotEvents, 0, "a"); }},
        Fault{"NothingButAnEnd", [](Plane& s) { s.EndAt(15, 0); }},
        Fault{"EndOfAnother",
              [](Plane& s) {
                s.BeginAt(15);
                s.EndAt(16, 1);
              }},
        Fault{"BeginTwice",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotBegin, 1, s.Seal(15));
              }},
        Fault{"Q13cSealOfAnotherForm",
              [](Plane& s) { s.Part(wire::kSnapshotBegin, 0, "\x81\xa1x\x01"); }},
        Fault{"Q22Refused",
              [](Plane& s) { s.Part(wire::kSnapshotRefused, 0, "3 snapshots are being read"); }},
        Fault{"AMessageInstead", [](Plane& s) { s.Kept(11); }},
        Fault{"AReplayEndInstead", [](Plane& s) { s.End(); }},
        Fault{"TooFewFrames",
              [](Plane& s) {
                s.AnswerFrames({"", "x"});
              }},
        Fault{"StateInstead", [](Plane& s) { s.Part(wire::kStateSeal, 0, s.Seal(15)); }},
        Fault{"Undecodable",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotEvents, 1, "!");
              }},
        Fault{"Q16Foreign",
              [](Plane& s) {
                s.BeginAt(15);
                s.Part(wire::kSnapshotEvents, 1, "?");
              }},
        Fault{"Report37OlderThanWhatIsKnown", [](Plane& s) { s.BeginAt(0); }},
        Fault{"Report37FarAhead", [](Plane& s) { s.BeginAt(std::uint64_t{1} << 40); }},
        Fault{"Q21OfAnotherPublisher",
              [](Plane& s) {
                s.publisher = 8;
                s.BeginAt(15);
                s.publisher = 7;
              }}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(RankStreamSnapshot, Q14AttemptsAreFewWithPausesThatGrow) {
  Plane s;
  s.StartTold(10);
  s.Tell(15);
  s.Kept(14);
  s.Take();
  for (const int pause : {200, 400, 800}) {
    s.Part(wire::kSnapshotRefused, 0, "busy");
    s.Pass(Millis{pause - 1});
    EXPECT_THAT(s.Take(), IsEmpty()) << pause;
    s.Pass(Millis{1});
    EXPECT_THAT(s.Take(), ElementsAre("ask snapshot")) << pause;
  }
  s.Part(wire::kSnapshotRefused, 0, "busy");
  EXPECT_THAT(s.Take(), ElementsAre("ask 11"));
  EXPECT_EQ(s.stats().snapshots_failed, 4u);
}

TEST(RankStreamSnapshot, WaitingForATurnIsNoSilence) {
  Plane s;
  s.StartLate(900);
  for (int i = 0; i < 10; ++i) {
    s.Pass(Millis{4'000});
    s.Part(wire::kSnapshotWait, 0, "");
  }
  s.SnapshotAt(950);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap"));
}

// One that drips in, or waits for a turn that does not come: every silence is short, and the whole
// is over when it has to be. The stream goes on from what is kept.
TEST(RankStreamSnapshot, OneThatDripsInForEverIsGivenUp) {
  for (const bool waits : {true, false}) {
    Plane s;
    s.StartLate(900);
    if (!waits) s.BeginAt(950);
    s.Take();
    for (std::uint64_t i = 1; i < 75; ++i) {
      s.Pass(Millis{4'000});
      s.Part(waits ? wire::kSnapshotWait : wire::kSnapshotEvents, i, "");
    }
    EXPECT_EQ(s.State(), "warming replaying") << waits;
    s.Take();
    s.Pass(Millis{4'000});
    EXPECT_THAT(s.Take(), ElementsAre("ask 0")) << waits;
    s.Kept(900);
    s.End();
    EXPECT_EQ(s.State(), "degraded history_gone") << waits;
    EXPECT_NE(s.detail().find("it has not come within 300 s"), std::string_view::npos)
        << s.detail();
    EXPECT_EQ(s.stats().snapshots_failed, 1u);
    // Asked for again later, so that the stream is in order at least half of the time.
    int seconds = 0;
    for (; seconds < 1'000 && s.stats().snapshots_asked == 1; ++seconds) {
      s.Pass(Millis{1'000});
      const auto asked = s.Take();
      if (!asked.empty() && asked.back() == "ask state") s.StateAt(901);
    }
    EXPECT_GE(seconds, 300) << waits;
    EXPECT_LE(seconds, 331) << waits;  // with the next look
  }
}

// Another connection may be another agent's.
TEST(RankStreamSnapshot, BehindANewLinkOneIsAskedForAtOnce) {
  RankStream::Options options = Stream::Patient();
  options.snapshot_max = Millis{1'000};
  Plane s(options);
  s.StartLate(900);
  s.Pass(Millis{1'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  s.Disconnect();
  s.StartLate(900);
}

// The attempts at a snapshot have that time together.
TEST(RankStreamSnapshot, OneThatBreaksOffLateHasNoMoreTimeThanOneThatDoesNot) {
  RankStream::Options options = Stream::Patient();
  options.snapshot_max = Millis{10'000};
  Plane s(options);
  s.StartLate(900);
  s.Pass(Millis{4'000});
  s.BeginAt(950);
  s.Pass(Millis{4'000});
  s.Part(wire::kSnapshotRefused, 0, "busy");
  s.Pass(Millis{200});
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "ask snapshot"));
  s.Pass(Millis{1'799});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
}

// An agent that has told nothing yet may know nothing: its answer says whose it is.
TEST(RankStreamSnapshot, ASilentAgentIsAskedForItsState) {
  Plane s;
  s.state = RankState::kBlind;
  s.reason = StateReason::kConnecting;
  s.Connect();
  s.AnswerFrames({"", "", s.Number(s.publisher), s.Number(kEndSequence), ""});
  EXPECT_EQ(s.State(), "warming connecting");
  s.Pass(Millis{0});
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "ask state"));
  s.StateAt(0);
  EXPECT_EQ(s.State(), "blind connecting");
  s.Pass(Millis{250});
  EXPECT_THAT(s.Take(), ElementsAre("ask 0")) << "what was published before it knew of us";
  s.AnswerFrames({"", "", s.Number(s.publisher), s.Number(kEndSequence), ""});
  s.Pass(Millis{500});
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  s.state = RankState::kExact;
  s.reason = StateReason::kNone;
  s.StateAt(0);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, ALookThatDripsInForEverIsGivenUp) {
  RankStream::Options options = Stream::Patient();
  options.snapshot_max = Millis{10'000};
  Plane s(options);
  s.StartTold(10);
  s.Pass(options.state_interval);
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  for (int i = 0; i < 3; ++i) {
    s.Part(wire::kSnapshotWait, 0, "");
    s.Pass(Millis{4'000});
  }
  s.StateAt(11);  // too late
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(options.state_interval);
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
}

// Q13b, and an agent that does not know the request: as with an engine whose ring has moved on.
// Once the publisher answers again the loss is mended.
TEST(RankStreamSnapshot, Q13bQ22WithoutASnapshotTheRankIsRebuiltFromWhatIsKeptAndHealsLater) {
  Plane s;
  s.StartLate(900);
  s.Pass(Millis{21'400});  // four times silent, three pauses
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot", "ask snapshot", "ask snapshot", "ask 0"));
  s.KeptRange(900, 901);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 900 of 7", "apply 901 of 7"));
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_NE(s.detail().find("no snapshot could be taken: it is silent"), std::string_view::npos)
      << s.detail();
  s.Pass(Millis{0});
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  s.StateAt(902);
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot"));
  s.SnapshotAt(902);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap"));
  EXPECT_EQ(s.State(), "exact none");
}

// A ring of one message is ahead of what was read at every look. The envelope says that it is the
// publisher's own all the same.
TEST(RankStreamSnapshot, AShortRingIsNotTakenForAnotherPublishers) {
  Plane s;
  s.Connect();
  s.End();
  s.Pass(Millis{0});
  s.StateAt(0);
  for (std::uint64_t next = 0; next < 6; ++next) {
    s.Tell(next);
    s.Pass(Millis{30'000});
    s.Kept(next + 2);
    s.End();
    s.SnapshotAt(next + 3);
    s.Take();
  }
  EXPECT_EQ(s.stats().replays_foreign, 0u);
  EXPECT_NE(s.State(), "degraded replay_mismatch");
}

TEST(RankStreamSnapshot, ASnapshotThatIsTooLargeIsRefusedBeforeItComesAndNotAskedForAgain) {
  Plane s;
  s.blocks = s.room() + 1;
  s.StartLate(900);
  s.BeginAt(950);
  EXPECT_THAT(s.Take(), ElementsAre("begin 1001", "ask 0"));
  s.Kept(900);
  s.End();
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_NE(s.detail().find("1001 blocks"), std::string_view::npos) << s.detail();
  EXPECT_EQ(s.stats().snapshots_refused, 1u);
  s.Take();
  s.Pass(Millis{0});
  s.StateAt(901);
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  s.blocks = 10;  // it has shrunk
  s.Pass(Millis{60'000});
  s.Take();
  s.StateAt(901);
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot"));
}

TEST(RankStreamSnapshot, MoreThanWasSaidIsRefused) {
  Plane s;
  s.StartLate(900);
  s.BeginAt(950);
  s.Part(wire::kSnapshotEvents, 1, "+");
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece +", "ask 0"));
  EXPECT_EQ(s.stats().snapshots_refused, 1u);
}

TEST(RankStreamSnapshot, Q17Report41AnotherPublisherOnTheSameConnectionIsARestart) {
  Plane s;
  s.StartTold(10);
  s.Tell(11);
  s.Tell(15);
  s.Take();
  s.publisher = 8;
  s.Tell(16);  // not even a lower number
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.Kept(14);
  s.SnapshotAt(16);
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot", "begin 3", "piece a", "swap", "apply 16 of 8"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().restarts, 1u);
}

TEST(RankStreamSnapshot, Q17ARestartOvertakesTheRecovery) {
  Plane s;
  s.StartLate(900);
  s.Tell(950);
  s.BeginAt(950);
  s.Part(wire::kSnapshotEvents, 1, "a");
  s.Take();
  s.publisher = 8;
  s.Tell(0);
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  s.Kept(0);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 0 of 8"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q17ALostLinkOvertakesTheRecovery) {
  Plane s;
  s.StartLate(900);
  s.BeginAt(950);
  s.Take();
  s.Disconnect();
  s.Part(wire::kSnapshotEvents, 1, "a");
  s.EndAt(950, 2);
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Connect();
  s.Kept(901);
  s.SnapshotAt(960);
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "ask snapshot", "begin 3", "piece a", "swap"));
}

// A restart that neither the link nor a number showed: the first live message comes when the
// snapshot of the former publisher is in place.
TEST(RankStreamSnapshot, Q21TheFirstLiveMessageOfAnotherPublisherIsNotApplied) {
  Plane s;
  s.StartLate(900);
  s.SnapshotAt(950);
  s.Take();
  s.publisher = 8;
  s.Tell(950);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.Kept(950);
  s.SnapshotAt(950);
  EXPECT_THAT(s.Take(),
              ElementsAre("ask snapshot", "begin 3", "piece a", "swap", "apply 950 of 8"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q21ALookShowsAnotherPublisherBeforeAMessageDoes) {
  Plane s;
  s.StartTold(10);
  s.Pass(Millis{30'000});
  s.Take();
  s.publisher = 8;
  s.StateAt(11);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
}

TEST(RankStreamSnapshot, AnEndpointOfAnotherPublisherIsDisownedWhateverItTells) {
  Plane s;
  s.Connect();
  for (std::uint64_t i = 1; i < 40 && s.stats().replays_foreign == 0; ++i) {
    s.publisher = 7;
    s.Kept(0);
    s.End();
    s.publisher = 8;
    s.Tell(i);
    s.Pass(Millis{1'000});
  }
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  EXPECT_EQ(s.stats().replays_foreign, 1u);
  s.Take();
  s.Tell(100);
  s.Tell(101);
  s.Pass(Millis{60'000});
  EXPECT_THAT(s.Take(), ElementsAre("apply 100 of 8", "apply 101 of 8", "ask 101"));
  s.publisher = 7;
  s.Kept(101);
  EXPECT_EQ(s.State(), "degraded replay_mismatch") << "it still is";
}

// The live messages say whose the stream is before anything of an answer is applied.
TEST(RankStreamSnapshot, AnAnswerOfAnotherPublisherThanTheLiveMessagesIsNotApplied) {
  Plane s;
  s.Connect();
  s.publisher = 8;
  s.Tell(4);
  s.publisher = 7;
  for (std::uint32_t attempt = 1; attempt <= Stream::Patient().replay_attempts; ++attempt) {
    EXPECT_EQ(s.State(), "warming replaying");
    s.KeptRange(0, 3);
    s.End();
    s.Pass(Millis{5'000});
  }
  EXPECT_THAT(s.Take(), testing::Not(testing::Contains("apply 0 of 7")));
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  EXPECT_EQ(s.stats().replays_foreign, 1u);
}

// ... and one of the right publisher is, at the next attempt.
TEST(RankStreamSnapshot, AnAnswerOfTheLivePublisherAfterAnothersIsApplied) {
  Plane s;
  s.Connect();
  s.publisher = 8;
  s.Tell(1);
  s.publisher = 7;
  s.Kept(0);
  s.Pass(Millis{200});
  s.publisher = 8;
  s.KeptRange(0, 1);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "ask 0", "apply 0 of 8", "apply 1 of 8"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, OneWithOtherBlocksThanItsSealSaysIsTorn) {
  Plane s;
  s.StartLate(100);
  s.BeginAt(200);
  s.Gathered(s.blocks - 1);
  s.Part(wire::kSnapshotEvents, 1, "a");
  s.EndAt(200, 2);
  EXPECT_EQ(s.stats().snapshots_failed, 1u);
  EXPECT_EQ(s.stats().snapshots_taken, 0u);
  s.Take();
  s.Pass(Millis{200});
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot"));
  s.BeginAt(200);
  s.Part(wire::kSnapshotEvents, 1, "a");
  ++s.blocks;
  s.EndAt(200, 2);
  EXPECT_EQ(s.stats().snapshots_failed, 2u) << "another seal";
}

// A number far too high, which nothing live could speak against.
TEST(RankStreamSnapshot, APublisherThatIsNotAsFarAsItsSnapshotIsAskedAnew) {
  Plane s;
  s.StartLate(100);
  s.SnapshotAt(~std::uint64_t{0} - 1);
  s.Pass(RankStream::Options{}.heal_interval);
  EXPECT_EQ(s.Take().back(), "ask state");
  s.StateAt(405);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  EXPECT_NE(s.State(), "exact none");
}

TEST(RankStreamSnapshot, ItsStateIsAskedForAgainAndAgain) {
  RankStream::Options options = Stream::Patient();
  options.state_interval = Millis{2'000};
  Plane s(options);
  s.StartTold(4);
  for (int turn = 0; turn < 3; ++turn) {
    s.Pass(Millis{2'000});
    EXPECT_THAT(s.Take(), ElementsAre("ask state"));
    s.state = turn == 2 ? RankState::kWarming : RankState::kExact;
    s.reason = turn == 2 ? StateReason::kDisconnected : StateReason::kNone;
    s.StateAt(5);
  }
  EXPECT_EQ(s.State(), "warming disconnected");
}

// The messages parked are the old publisher's, whatever their numbers.
TEST(RankStreamSnapshot, Q21ParkedMessagesOfAnotherPublisherAreNotApplied) {
  Plane s;
  s.StartTold(100);
  s.Disconnect();
  s.Connect();
  s.Tell(120);  // left in the transport
  s.publisher = 8;
  s.Kept(100);  // other bytes under our number
  EXPECT_THAT(s.Take(), ElementsAre("ask 100", "clear", "ask 0"));
  s.Kept(90);
  s.SnapshotAt(110);
  EXPECT_THAT(s.Take(), ElementsAre("ask snapshot", "begin 3", "piece a", "swap"));
  EXPECT_EQ(s.stream().parked(), 0u);
  s.Tell(110);
  EXPECT_THAT(s.Take(), ElementsAre("apply 110 of 8"));
}

TEST(RankStreamSnapshot, Q18TheSamePublisherBehindANewLinkNeedsNoOtherSnapshot) {
  Plane s;
  s.StartLate(900);
  s.SnapshotAt(950);
  s.Disconnect();
  s.Connect();
  EXPECT_EQ(s.Take().back(), "ask 949");
  s.Kept(949);
  s.Kept(950);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 950 of 7"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().snapshots_asked, 1u);
}

TEST(RankStreamSnapshot, Q18TheRingMayBeginRightBehindWhatIsKnown) {
  Plane s;
  s.StartLate(900);
  s.SnapshotAt(950);
  s.Disconnect();
  s.Connect();
  s.Take();
  s.Kept(950);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 950 of 7"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, Q17AnotherPublisherBehindANewLinkIsNot) {
  Plane s;
  s.StartLate(900);
  s.SnapshotAt(950);
  s.Disconnect();
  s.Connect();
  s.Take();
  s.publisher = 8;
  s.Kept(949);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
}

TEST(RankStreamSnapshot, Report37TheCursorIsTheMessagesAndOneRecoveryIsEnough) {
  Plane s;
  s.StartTold(5);
  s.Tell(900);
  s.Kept(899);
  s.SnapshotAt(900);  // its events have numbers of their own
  s.TellRange(901, 903);
  EXPECT_EQ(s.stream().watermark(), 903u);
  EXPECT_EQ(s.stats().snapshots_asked, 1u);
  EXPECT_EQ(s.stats().replays_started, 2u);  // from 0, and for the gap
}

TEST(RankStreamSnapshot, Report37ASnapshotNewerThanTheLiveMessagesMakesThemStale) {
  Plane s;
  s.StartTold(5);
  s.Tell(900);
  s.Kept(899);
  s.SnapshotAt(906);
  s.Take();
  s.TellRange(901, 906);
  EXPECT_THAT(s.Take(), ElementsAre("apply 906 of 7"));
  EXPECT_EQ(s.stats().snapshots_asked, 1u);
}

TEST(RankStreamSnapshot, TheStateIsNoBetterThanThePublishers) {
  Plane s;
  s.state = RankState::kDegraded;
  s.reason = StateReason::kHistoryGone;
  s.StartLate(900);
  s.SnapshotAt(950);
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_FALSE(s.detail().empty());
  s.Tell(950);
  EXPECT_EQ(s.State(), "degraded history_gone");
  // It is asked now and then, and of its own accord as long as it is no better.
  s.Pass(Millis{300});
  s.End();
  s.Take();
  s.Pass(Millis{0});
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  s.StateAt(951);
  EXPECT_EQ(s.State(), "degraded history_gone");
  s.state = RankState::kExact;
  s.reason = StateReason::kNone;
  s.Pass(Millis{500});
  EXPECT_THAT(s.Take(), ElementsAre("ask state"));
  s.StateAt(951);
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().snapshots_asked, 1u);
}

// It is known to be a publisher of RouterEvents by its first live message only.
TEST(RankStreamSnapshot, APublisherThatHadNothingToTellYetIsAskedForItsStateLater) {
  Plane s;
  s.Connect();
  s.End();
  s.state = RankState::kDegraded;
  s.reason = StateReason::kGapUnrepaired;
  s.Tell(0);
  s.Pass(Millis{250});
  s.Kept(0);
  s.End();
  s.Pass(Millis{0});
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "apply 0 of 7", "ask 0", "ask state"));
  s.StateAt(1);
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

TEST(RankStreamSnapshot, WhatThePublisherLostLaterShowsToo) {
  Plane s;
  s.StartTold(10);
  s.state = RankState::kWarming;
  s.reason = StateReason::kDisconnected;
  s.Pass(Millis{30'000});
  EXPECT_THAT(s.Take(), testing::Contains("ask state"));
  s.StateAt(11);
  EXPECT_EQ(s.State(), "warming disconnected");
}

// However long it was not exact: it is seen soon when it is again.
TEST(RankStreamSnapshot, APublisherThatIsNotExactIsAskedAsOftenAsOneThatIs) {
  RankStream::Options options = Stream::Patient();
  options.state_interval = Millis{2'000};
  Plane s(options);
  s.StartTold(10);
  s.state = RankState::kWarming;
  s.reason = StateReason::kDisconnected;
  for (int look = 0; look < 20; ++look) {
    s.Pass(Millis{2'000});
    EXPECT_THAT(s.Take(), testing::Contains("ask state"));
    s.StateAt(11);
    EXPECT_EQ(s.State(), "warming disconnected");
  }
  s.state = RankState::kExact;
  s.reason = StateReason::kNone;
  s.Pass(Millis{2'000});
  s.StateAt(11);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamSnapshot, ACompletePublisherIsNotOneThatLeavesBlocksOut) {
  Plane s;
  s.StartLate(900);
  s.state = RankState::kExact;
  wire::SnapshotSeal seal;
  seal.publisher_id = 7;
  seal.next_sequence = 950;
  seal.state = RankState::kExact;
  std::string bytes;
  wire::EncodeSnapshotSeal(seal, bytes);
  s.Part(wire::kSnapshotBegin, 0, bytes);
  s.Part(wire::kSnapshotEnd, 1, bytes);
  EXPECT_EQ(s.State(), "degraded index_full");
}

TEST(RankStreamSnapshot, ALookThatIsNotAnsweredChangesNothing) {
  Plane s;
  s.StartTold(10);
  s.Pass(Millis{30'000});
  EXPECT_THAT(s.Take(), testing::Contains("ask state"));
  s.Tell(11);
  s.Pass(Millis{5'000});
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_THAT(s.Take(), ElementsAre("apply 11 of 7"));
}

TEST(RankStreamSnapshot, ALookShowsMessagesThatWentNowhere) {
  Plane s;
  s.StartTold(10);
  s.Pass(Millis{30'000});
  s.Take();
  s.StateAt(13);
  s.Pass(Millis{250});
  EXPECT_THAT(s.Take(), ElementsAre("ask 11"));
  s.KeptRange(11, 12);
  EXPECT_THAT(s.Take(), ElementsAre("apply 11 of 7", "apply 12 of 7"));
}

TEST(RankStreamSnapshot, RecoveredBlocksOfAnUnknownPositionAreReplacedByASnapshot) {
  Plane s;
  s.stream().Adopt(std::nullopt, Nanos{Millis{1'000}});
  s.StartLate(900);
  s.SnapshotAt(950);
  EXPECT_THAT(s.Take(), ElementsAre("begin 3", "piece a", "swap"));
  EXPECT_EQ(s.State(), "exact none");
}

// What an engine answers is never taken for a publisher's, nor is it asked for what it does not
// know.
TEST(RankStreamSnapshot, AnEngineIsNeverAskedForASnapshot) {
  Plane s;
  s.Connect();
  s.Answer(900);
  s.End();
  s.Live(905);
  s.Answer(904);
  s.Pass(Millis{120'000});
  for (const std::string& action : s.Take()) {
    EXPECT_NE(action, "ask snapshot");
    EXPECT_NE(action, "ask state");
  }
  EXPECT_TRUE(s.State().starts_with("degraded")) << s.State();
}

// Rows of streams without snapshots.

TEST(RankStreamRows, Q1ALiveOnlySourceBeginsWithItsFirstMessage) {
  Stream s(false);
  s.Connect();
  s.Live(9);
  s.Live(10);
  EXPECT_THAT(s.Take(), ElementsAre("apply 9", "apply 10"));
}

// The row resets the rank; here that is ingest.clear_on_loss.
TEST(RankStreamRows, Q5AGapOfALiveOnlySource) {
  for (const bool clear : {true, false}) {
    RankStream::Options options;
    options.clear_on_loss = clear;
    Stream s(false, options);
    s.Connect();
    s.LiveRange(0, 10);
    s.Take();
    s.Live(15);
    s.Live(16);
    if (clear) {
      EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 15", "apply 16"));
    } else {
      EXPECT_THAT(s.Take(), ElementsAre("apply 15", "apply 16"));
      EXPECT_EQ(s.losses(), 1);
    }
  }
}

TEST(RankStreamRows, Q23MessageZeroNeedsNoReplay) {
  Stream s(false);
  s.Connect();
  s.Live(0);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStreamRows, Q24AFirstMessageOfFiveComesBehindAReplayFromZero) {
  Stream s(true);
  s.Connect();
  s.Live(5);
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  s.AnswerRange(0, 4);
  s.End();
  EXPECT_THAT(s.Take(),
              ElementsAre("apply 0", "apply 1", "apply 2", "apply 3", "apply 4", "apply 5"));
}

TEST(RankStreamRows, Q25Q26AnOldMessageIsSkippedAndAGapReplayed) {
  Stream s(true);
  s.Start(5);
  s.Live(4);
  s.Live(9);
  EXPECT_THAT(s.Take(), ElementsAre("ask 6"));
  s.AnswerRange(6, 8);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 6", "apply 7", "apply 8", "apply 9"));
}

TEST(RankStreamRows, Q27TheMessageBehindAnUndecodableOneAsksForIt) {
  Stream s(true);
  s.Start(5);
  s.Live(6, "!");
  EXPECT_THAT(s.Take(), ElementsAre("bad 6"));
  s.Live(7);
  EXPECT_THAT(s.Take(), ElementsAre("ask 6"));
}

TEST(RankStreamRows, Q28ASourceThatIsRegisteredAnewBeginsFromNothing) {
  {
    Stream s(true);
    s.Start(5);
  }
  Stream again(true);
  again.Connect();
  EXPECT_THAT(again.Take(), ElementsAre("ask 0"));
}

}  // namespace
}  // namespace kvr::ingest
