#include "ingest/rank_stream.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ingest/message.h"
#include "ingest/test_stream.h"

namespace kvr::ingest {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// --- framing: wire T1-T11, services 67, 68 ---

TEST(RankStream, T1T6T7SequencesAreBigEndianAndTheTopicMayBeEmpty) {
  Stream s(false);
  s.LiveFrames({"", std::string("\0\0\0\0\0\0\0\1", 8), "p1"});
  EXPECT_THAT(s.Take(), ElementsAre("apply 1"));
}

struct Frames {
  const char* name;
  std::vector<std::string> frames;
  bool count;  // which of the two counters
};

class RankStreamRejects : public testing::TestWithParam<Frames> {};

TEST_P(RankStreamRejects, AndGoesOn) {
  Stream s(false);
  s.Start(0);
  s.LiveFrames(GetParam().frames);
  EXPECT_THAT(s.Take(), IsEmpty());
  EXPECT_EQ(s.stats().bad_frame_count, GetParam().count ? 1u : 0u);
  EXPECT_EQ(s.stats().bad_sequence, GetParam().count ? 0u : 1u);
  s.Live(1);
  EXPECT_THAT(s.Take(), ElementsAre("apply 1"));
  EXPECT_EQ(s.State(), "exact none");
}

INSTANTIATE_TEST_SUITE_P(
    Rows, RankStreamRejects,
    testing::Values(Frames{"NoFrame", {}, true}, Frames{"OneFrame", {"x"}, true},
                    Frames{"T2T3TwoFrames", {"", "p"}, true},
                    Frames{"T4FourFrames", {"", std::string(8, '\0'), "p", "q"}, true},
                    Frames{"T5FourBytes", {"", "1234", "p"}, false},
                    Frames{"T5SevenBytes", {"", "1234567", "p"}, false},
                    Frames{"T5NineBytes", {"", "123456789", "p"}, false},
                    Frames{"NoSequence", {"", "", "p"}, false},
                    Frames{"EndMarkersNumber", {"", std::string(8, '\xFF'), "p"}, false}),
    [](const auto& row) { return row.param.name; });

TEST(RankStream, T9WithoutReplayAnUndecodableMessageIsPassed) {
  Stream s(false);
  s.Start(0);
  s.Live(1, "!");
  s.Live(2);
  EXPECT_THAT(s.Take(), ElementsAre("bad 1", "apply 2"));
  EXPECT_EQ(s.State(), "degraded undecodable");
  EXPECT_EQ(s.stats().gaps, 0u);
}

TEST(RankStream, Row69WithReplayAnUndecodableMessageShowsAsAGapAndIsAskedForOnce) {
  Stream s(true);
  s.Start(0);
  s.Live(1, "!");
  s.Live(2);
  EXPECT_THAT(s.Take(), ElementsAre("bad 1", "ask 1"));
  s.Answer(1, "!");
  EXPECT_THAT(s.Take(), ElementsAre("bad 1", "apply 2"));
  EXPECT_EQ(s.State(), "degraded undecodable");
  // The replayed copies are the same bytes, so the next one is not asked for.
  s.Live(3, "!");
  s.Live(4);
  EXPECT_THAT(s.Take(), ElementsAre("bad 3", "apply 4"));
}

TEST(RankStream, Row69ASoundReplayedCopyMendsAnUndecodableMessage) {
  Stream s(true);
  s.Start(0);
  s.Live(1, "!");
  EXPECT_EQ(s.State(), "degraded undecodable");
  s.Live(2);
  s.Answer(1);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("bad 1", "ask 1", "apply 1", "apply 2"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.losses(), 0);
  // One that is bad at the engine too stays a loss, whatever is sound after it.
  s.Live(3, "!");
  s.Live(4);
  s.Answer(3, "!");
  s.End();
  s.Live(5);
  EXPECT_EQ(s.State(), "degraded undecodable");
}

TEST(RankStream, Report101AThousandBadPayloadsAskOnce) {
  Stream s(true);
  s.Start(0);
  for (std::uint64_t i = 1; i <= 1'000; ++i) {
    s.Live(i, "!");
    if (i == 2) s.Answer(1, "!");
  }
  s.Live(1'001);
  EXPECT_EQ(s.stats().replays_started, 2u) << "one at the start, one for the first bad message";
  EXPECT_EQ(s.Take().back(), "apply 1001");
}

// --- joining ---

TEST(RankStream, AnEngineThatIsNotUpIsWaitedFor) {
  Stream s(true);
  EXPECT_EQ(s.State(), "blind connecting");
  s.Pass(Millis{3'600'000});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  EXPECT_EQ(s.State(), "warming replaying");
  s.End();
  EXPECT_EQ(s.State(), "exact none") << "nothing was published yet";
}

TEST(RankStream, T16HoursWithoutTrafficAreHealthy) {
  Stream s(true);
  s.Start(3);
  s.Pass(Millis{10'000'000});
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_THAT(s.Take(), IsEmpty());
}

TEST(RankStream, LiveMessagesWaitForTheHistoryAndAreAppliedAfterIt) {
  Stream s(true);
  s.Connect();
  s.LiveRange(5, 7);
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  EXPECT_EQ(s.stream().parked(), 3u);
  s.AnswerRange(0, 3);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0", "apply 1", "apply 2", "apply 3"));
  s.Answer(4);
  EXPECT_THAT(s.Take(), ElementsAre("apply 4", "apply 5", "apply 6", "apply 7"))
      << "joined: the rest of the replay is not waited for";
  EXPECT_EQ(s.State(), "exact none");
  s.Answer(5);
  s.Live(8);
  EXPECT_THAT(s.Take(), ElementsAre("apply 8"));
}

TEST(RankStream, LiveCopiesOfReplayedMessagesAreDropped) {
  Stream s(true);
  s.Connect();
  s.AnswerRange(0, 9);
  s.End();
  s.Take();
  s.LiveRange(7, 10);
  EXPECT_THAT(s.Take(), ElementsAre("apply 10"));
  EXPECT_EQ(s.stats().repeated, 3u);
  EXPECT_EQ(s.stats().restarts, 0u);
}

TEST(RankStream, Row70FirstMessageZeroWithoutReplayIsExact) {
  Stream s(false);
  s.Connect();
  EXPECT_EQ(s.State(), "warming no_replay_endpoint");
  s.Live(0);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, Row71FirstMessage500WithAShorterRingIsHistoryGone) {
  Stream s(true);
  s.Connect();
  s.Live(500);
  s.AnswerRange(400, 499);
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_EQ(s.stats().missed, 400u);
  EXPECT_EQ(s.Take().back(), "apply 500");
}

TEST(RankStream, Row72FirstMessage500WithoutReplayServesDegraded) {
  Stream s(false);
  s.Connect();
  s.Live(500);
  s.Live(501);
  EXPECT_THAT(s.Take(), ElementsAre("apply 500", "apply 501"));
  EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
}

TEST(RankStream, V17MessagesLostBeforeTheSubscriptionArrivedAreFoundByAskingAgain) {
  Stream s(true);
  s.Connect();
  s.AnswerRange(0, 2);
  s.End();
  s.Take();
  s.Pass(Millis{1'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
  EXPECT_EQ(s.State(), "exact none") << "asked beside the live stream";
  s.Live(4);  // 3 went nowhere
  s.Take();
  s.Answer(3);
  EXPECT_THAT(s.Take(), ElementsAre("apply 3", "apply 4"));
}

TEST(RankStream, AConfirmingReplayThatFindsMessagesAppliesThem) {
  Stream s(true);
  s.Connect();
  s.End();
  s.Pass(Millis{1'000});
  s.Take();
  s.AnswerRange(0, 1);
  s.End();
  s.Live(2);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0", "apply 1", "apply 2"));
  EXPECT_EQ(s.State(), "exact none");
}

// --- gaps ---

TEST(RankStream, Report38And40AGapAsksForTheFirstMissingAndKeepsTheRest) {
  for (const bool topic : {false, true}) {
    Stream s(true);
    s.Start(2);
    s.Live(6);
    EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
    EXPECT_EQ(s.State(), "warming replaying");
    const auto answer = [&](const char* number, const char* payload) {
      std::vector<std::string> frames{"", std::string("\0\0\0\0\0\0\0", 7) + number, payload};
      if (topic) frames.insert(frames.begin() + 1, "t");
      s.AnswerFrames(frames);
    };
    answer("\3", "p3");
    answer("\4", "p4");
    answer("\5", "p5");
    EXPECT_THAT(s.Take(), ElementsAre("apply 3", "apply 4", "apply 5", "apply 6"));
    s.Live(7);
    EXPECT_THAT(s.Take(), ElementsAre("apply 7"));
    EXPECT_EQ(s.State(), "exact none");
    EXPECT_EQ(s.stats().gaps, 1u);
    EXPECT_EQ(s.stats().missed, 0u);
  }
}

TEST(RankStream, T20Report40cAnEmptyAnswerIsRetriedWithPausesAndNothingIsCleared) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  for (const int pause : {200, 400, 800}) {
    EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
    s.End();
    EXPECT_EQ(s.State(), "degraded gap_unrepaired");
    s.Pass(Millis{pause - 1});
    EXPECT_THAT(s.Take(), IsEmpty()) << "a pause of " << pause << " ms";
    s.Pass(Millis{1});
  }
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 6"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.stats().missed, 3u);
  EXPECT_EQ(s.stats().clears, 0u);
  EXPECT_EQ(s.stats().replays_incomplete, 1u);
  // A ring that had its time gets none for the next gap.
  s.Live(8);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 7", "apply 8"));
}

TEST(RankStream, T20ARingThatFillsDuringThePausesRepairsTheGap) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  s.End();
  s.Live(7);
  s.Pass(Millis{200});
  s.AnswerRange(3, 6);
  EXPECT_THAT(s.Take(),
              ElementsAre("ask 3", "ask 3", "apply 3", "apply 4", "apply 5", "apply 6", "apply 7"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().missed, 0u);
}

// Connected, 0..2 known, 3..5 missing from an empty ring and given up, 6 applied.
void LoseToAnEmptyRing(Stream& s) {
  s.Start(2);
  s.Live(6);
  for (int i = 0; i < 4; ++i) {
    s.End();
    s.Pass(Millis{800});
  }
  EXPECT_EQ(s.Take().back(), "apply 6");
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

TEST(RankStream, T20ARingThatFillsAfterTheLastAttemptIsReadFromTheFirstMissingMessage) {
  Stream s(true);
  LoseToAnEmptyRing(s);
  s.Live(7);
  s.Pass(Millis{5'000});
  EXPECT_THAT(s.Take(), ElementsAre("apply 7", "ask 3")) << "beside the live stream";
  s.Live(8);
  s.AnswerRange(3, 4);
  s.Live(9);
  s.AnswerRange(5, 8);
  // In order: what 6 to 8 said holds at the end.
  EXPECT_THAT(s.Take(), ElementsAre("apply 8", "apply 3", "apply 4", "apply 5", "apply 6",
                                    "apply 7", "apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.detail(), "messages from 3 on came after newer ones; copies are counted anew");
  EXPECT_EQ(s.losses(), 2);
  EXPECT_EQ(s.stream().watermark(), 9u);
  s.Pass(Millis{120'000});
  EXPECT_THAT(s.Take(), IsEmpty()) << "nothing is left to ask for";
}

TEST(RankStream, T23ARefillThatEndsBeforeWhatWasAppliedGoesOnWithPauses) {
  Stream s(true);
  LoseToAnEmptyRing(s);
  s.Pass(Millis{5'000});
  s.AnswerRange(3, 4);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3", "apply 4", "ask 5"));
  s.End();
  s.Pass(Millis{200});
  s.AnswerRange(5, 6);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 5", "apply 5", "apply 6"));
  s.Live(7);
  EXPECT_THAT(s.Take(), ElementsAre("apply 7"));
}

TEST(RankStream, T20ARingThatNeverFillsIsLookedAtSeldomAndOneThatMovedOnNoMore) {
  Stream s(true);
  LoseToAnEmptyRing(s);
  s.Pass(Millis{5'000});
  s.End();
  s.Pass(Millis{29'999});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
  s.Pass(Millis{1});
  s.Answer(5);
  s.End();
  s.Pass(Millis{120'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
  EXPECT_EQ(s.stats().clears, 0u);
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

TEST(RankStream, T21AReplayThatStartsLaterIsHistoryGone) {
  Stream s(true);
  s.Start(2);
  s.Live(9);
  s.Take();
  s.Answer(7);
  EXPECT_THAT(s.Take(), ElementsAre("ask 2")) << "does the ring still have the message before?";
  s.Answer(7);
  s.Answer(8);
  // Messages 3..6 may have removed blocks.
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 7", "apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_EQ(s.stats().missed, 4u);
}

TEST(RankStream, AfterAHoleTheWholeRingIsFetchedToFillTheNextOne) {
  Stream s(true);
  s.Start(2);
  s.Live(9);
  s.Answer(7);
  s.AnswerRange(7, 8);
  s.Take();
  s.Live(20);
  s.Answer(15);
  s.AnswerRange(15, 19);
  EXPECT_THAT(s.Take(), ElementsAre("ask 10", "ask 9", "clear", "apply 15", "apply 16", "apply 17",
                                    "apply 18", "apply 19", "apply 20"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStream, V11ANumberTheEngineBurnedIsAHoleNotTheEndOfHistory) {
  Stream s(true);
  s.Start(2);
  s.Live(4);  // 3 could not be encoded
  s.Answer(4);
  s.Take();
  s.Answer(2);
  s.Answer(4);
  EXPECT_THAT(s.Take(), ElementsAre("apply 4"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.stats().missed, 1u);
}

TEST(RankStream, T22AHoleInsideTheReplayIsAskedForOnceMoreThenGivenUp) {
  Stream s(true);
  s.Start(2);
  s.Live(7);
  s.Answer(3);
  s.Answer(4);
  s.Answer(6);
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3", "apply 4", "ask 4"));
  s.Answer(4);
  s.Answer(6);
  EXPECT_THAT(s.Take(), ElementsAre("apply 6", "apply 7"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.detail(), "1 messages from 5 on are lost");
}

TEST(RankStream, AHoleThatASecondAnswerFillsIsNoLoss) {
  Stream s(true);
  s.Start(2);
  s.Live(7);
  s.Answer(3);
  s.Answer(5);  // 4 found the endpoint's queue full
  s.AnswerRange(3, 6);
  EXPECT_THAT(s.Take(),
              ElementsAre("ask 3", "apply 3", "ask 3", "apply 4", "apply 5", "apply 6", "apply 7"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AHoleThatTheRingHasLeftMeanwhileIsHistoryGone) {
  Stream s(true);
  s.Start(2);
  s.Live(9);
  s.Answer(3);
  s.Answer(7);  // the ring went on while it was read
  s.AnswerRange(7, 8);
  EXPECT_THAT(s.Take(),
              ElementsAre("ask 3", "apply 3", "ask 3", "clear", "apply 7", "apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStream, T23AReplayThatEndsBeforeTheTargetIsAskedToGoOnAndNothingIsCleared) {
  Stream s(true);
  s.Start(2);
  s.Live(8);
  s.AnswerRange(3, 5);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3", "apply 4", "apply 5", "ask 6"))
      << "what is missing may have come meanwhile";
  for (int i = 0; i < 4; ++i) {
    s.End();
    s.Pass(Millis{800});
  }
  EXPECT_THAT(s.Take(), ElementsAre("ask 6", "ask 6", "ask 6", "apply 8", "ask 2"))
      << "at last, whether the endpoint is the engine's own still";
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.stats().missed, 2u);
  EXPECT_EQ(s.stats().clears, 0u);
}

TEST(RankStream, T23ARingThatFillsButLacksTheNumbersIsAHole) {
  Stream s(true);
  s.Start(1);
  s.Live(4);  // 2 and 3 were never published
  s.End();
  s.Pass(Millis{200});
  s.Answer(4);
  s.Answer(1);
  s.Answer(4);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 2", "ask 2", "ask 1", "apply 4"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

TEST(RankStream, T24AnUndecodableReplayedMessageIsSkipped) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  s.Answer(3);
  s.Answer(4, "!");
  s.Answer(5);
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3", "bad 4", "apply 5", "apply 6"));
  EXPECT_EQ(s.State(), "degraded undecodable");
}

TEST(RankStream, T25Row75ASilentReplayIsRetriedWithPausesThenGivenUpAndLiveGoesOn) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  s.Pass(Millis{4'999});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
  s.Pass(Millis{1});
  s.Pass(Millis{199});
  EXPECT_THAT(s.Take(), IsEmpty()) << "a pause of 200 ms";
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
  s.Pass(Millis{5'000 + 400 + 5'000 + 800 + 5'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 3", "ask 3", "apply 6")) << "old blocks are kept";
  EXPECT_EQ(s.State(), "degraded replay_failed");
  EXPECT_EQ(s.stats().replays_failed, 4u);
  EXPECT_EQ(s.stats().missed, 3u);
  s.Live(7);
  s.Live(9);
  EXPECT_THAT(s.Take(), ElementsAre("apply 7", "apply 9")) << "no new wait for a broken endpoint";
  // Later everything is fetched anew, and a full history heals.
  s.Pass(Millis{30'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 10"));
  EXPECT_EQ(s.State(), "degraded replay_failed");
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  s.AnswerRange(0, 9);
  s.End();
  EXPECT_EQ(s.State(), "exact none");
}

// Every silence is short, and the whole never ends: what came is kept, and live messages do not
// wait for ever.
TEST(RankStream, AReplayThatDripsInForEverIsGivenUp) {
  RankStream::Options options = Stream::Patient();
  options.replay_max = Millis{10'000};
  Stream s(true, options);
  s.Start(2);
  s.Live(900);
  s.Take();
  std::uint64_t next = 3;
  for (std::uint32_t attempt = 1; attempt <= options.replay_attempts; ++attempt) {
    for (int i = 0; i < 2; ++i) {
      s.Pass(Millis{4'000});
      s.Answer(next++);
    }
    s.Pass(Millis{1'999});
    EXPECT_EQ(s.stats().replays_failed, attempt - 1);
    s.Pass(Millis{1});
    EXPECT_EQ(s.stats().replays_failed, attempt);
    s.Take();
    if (attempt == options.replay_attempts) break;
    EXPECT_EQ(s.State(), "warming replaying");
    s.Pass(Millis{options.retry_first.count() << (attempt - 1)});
    EXPECT_THAT(s.Take(), ElementsAre(fmt::format("ask {}", next)));
  }
  EXPECT_EQ(s.State(), "degraded replay_failed");
  EXPECT_NE(s.detail().find("it comes in too slowly"), std::string_view::npos) << s.detail();
  EXPECT_EQ(s.stats().missed, 900 - next);
  s.Live(901);
  EXPECT_THAT(s.Take(), ElementsAre("apply 901"));
}

// ... and a look beside the live stream ends, so that there can be another.
TEST(RankStream, ALookThatDripsInForEverIsGivenUp) {
  RankStream::Options options = Stream::Patient();
  options.replay_max = Millis{10'000};
  options.quiet_after = Millis{1'000};
  Stream s(true, options);
  s.Start(2);
  s.Pass(Millis{60'000});
  s.Take();
  s.Live(3);
  s.Pass(Millis{1'000});
  EXPECT_THAT(s.Take(), ElementsAre("apply 3", "ask 2"));
  for (std::uint64_t i = 4; i < 7; ++i) {
    s.Answer(i);
    s.Pass(Millis{4'000});
  }
  EXPECT_THAT(s.Take(), ElementsAre("apply 4", "apply 5", "apply 6", "ask 6"));
  EXPECT_EQ(s.State(), "exact none");
}

// The endpoint was away for a while, and its ring no longer reaches back to the first message: what
// is missing is filled in, and nothing is forgotten.
TEST(RankStream, AfterAnOutageOfTheReplayOnlyWhatIsMissingIsFetched) {
  Stream s(true);
  s.Start(99);
  s.Live(101);
  s.Pass(Millis{60'000});
  s.Take();
  EXPECT_EQ(s.State(), "degraded replay_failed");
  s.Pass(Millis{30'000});
  s.Answer(102);
  EXPECT_THAT(s.Take(), ElementsAre("ask 102", "ask 0"));
  s.Answer(82);
  EXPECT_THAT(s.Take(), ElementsAre("ask 100"));
  s.AnswerRange(100, 102);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 100", "apply 101", "apply 102"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired") << "copies of 101 came twice";
  EXPECT_EQ(s.stats().clears, 0u);
}

TEST(RankStream, AfterAnOutageOfTheReplayWithoutALossNothingIsLeftOfIt) {
  Stream s(true);
  s.Start(99);
  s.Disconnect();
  s.Connect();
  s.Pass(Millis{60'000});
  EXPECT_EQ(s.State(), "degraded replay_failed");
  s.Live(100);
  s.Take();
  s.Pass(Millis{30'000});
  s.End();
  s.Take();
  s.Answer(82);
  EXPECT_THAT(s.Take(), ElementsAre("ask 99")) << "whether it is the same engine, from before";
  s.AnswerRange(99, 100);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 100"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().clears, 0u);
}

TEST(RankStream, AfterAnOutageOfTheReplayAnotherEngineIsSeen) {
  Stream s(true);
  s.Start(99);
  s.Disconnect();
  s.Connect();
  s.Pass(Millis{60'000});
  s.Live(100);
  s.Pass(Millis{30'000});
  s.End();
  s.Answer(82);
  s.Take();
  s.Answer(99, "other");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
}

TEST(RankStream, WhatTheRingHasLostDuringItsOutageIsGone) {
  Stream s(true);
  s.Start(99);
  s.Live(101);
  s.Pass(Millis{90'000});
  s.End();
  s.Answer(101);
  s.Take();
  s.Answer(101);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 101"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

// What is known began behind the outage: no more than the engine holds, and more than the ring has.
TEST(RankStream, WhatWasHeardLiveDuringAnOutageIsNotGivenUpForAShorterRing) {
  Stream s(true);
  s.Connect();
  s.Live(50);
  s.Pass(Millis{60'000});
  s.Live(51);
  EXPECT_EQ(s.State(), "degraded replay_failed");
  s.Pass(Millis{30'000});
  s.End();
  s.Take();
  s.Answer(51);
  EXPECT_THAT(s.Take(), IsEmpty());
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_EQ(s.detail(), "messages before 50 were not to be had when the replay endpoint failed");
}

// Blocks that somebody else knew wait for the proof that the engine still is the same.
TEST(RankStream, RecoveredBlocksOutliveAnOutageOfTheReplay) {
  for (const bool same : {true, false}) {
    Stream s(true);
    const std::string last = "p99";
    s.stream().Adopt(StreamPosition{99, MessageDigest(std::as_bytes(std::span(last)))},
                     Nanos{Millis{1'000}});
    s.Connect();
    s.Pass(Millis{90'000});
    EXPECT_EQ(s.State(), "degraded replay_failed");
    s.Take();
    s.End();
    s.Answer(80);
    EXPECT_THAT(s.Take(), ElementsAre("ask 0", "ask 99"));
    s.Answer(99, same ? "p99" : "other");
    if (!same) {
      EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
      continue;
    }
    s.Answer(100);
    s.End();
    EXPECT_THAT(s.Take(), ElementsAre("apply 100"));
    EXPECT_EQ(s.State(), "degraded recovered");
  }
}

// Nothing was heard of the engine that the picture is of, and the next one's numbers are lower.
TEST(RankStream, APictureThatALostLinkEndedLeavesNoNumberBehind) {
  RankStream::Options options = Stream::Patient();
  options.clear_on_loss = true;
  Stream s(false, options);
  s.stream().Adopt(StreamPosition{52}, Nanos{Millis{1'000}});
  s.Connect();
  s.Disconnect();
  s.Connect();
  s.LiveRange(0, 1);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 0", "apply 1"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, WithClearOnLossAPictureWithoutReplayEndsWhereLiveMessagesBegin) {
  for (const bool clear_on_loss : {true, false}) {
    RankStream::Options options = Stream::Patient();
    options.clear_on_loss = clear_on_loss;
    Stream s(false, options);
    s.stream().Adopt(StreamPosition{52}, Nanos{Millis{1'000}});
    s.Connect();
    s.Live(53);
    EXPECT_EQ(s.stats().clears, clear_on_loss ? 1u : 0u);
    EXPECT_EQ(s.State(), clear_on_loss ? "degraded no_replay_endpoint" : "degraded recovered");
  }
}

TEST(RankStream, HistoryThatWasGoneForAMomentIsLookedForOnce) {
  for (const bool back : {true, false}) {
    Stream s(true);
    s.Connect();
    s.AnswerRange(5, 9);
    s.End();
    EXPECT_EQ(s.State(), "degraded history_gone");
    s.Pass(Millis{250});
    s.End();
    s.Take();
    s.Pass(Millis{30'000});
    EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
    s.Answer(back ? 0 : 5);
    if (back) {
      s.AnswerRange(1, 9);
      s.End();
      EXPECT_EQ(s.State(), "exact none");
    } else {
      s.Pass(Millis{300'000});
      EXPECT_THAT(s.Take(), IsEmpty());
      EXPECT_EQ(s.State(), "degraded history_gone");
    }
  }
}

// Behind something that kept the link up there is another engine, and its ring fills the gap.
TEST(RankStream, AGapThatAnotherEngineFilledIsSeenSoon) {
  Stream s(true);
  s.Start(7);
  s.Live(12);
  EXPECT_THAT(s.Take(), ElementsAre("ask 8"));
  s.AnswerRange(8, 12);
  s.End();
  s.Take();
  s.Pass(Millis{250});
  EXPECT_THAT(s.Take(), ElementsAre("ask 7"));
  s.Answer(7, "other");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  EXPECT_EQ(s.stats().restarts, 1u);
}

TEST(RankStream, AnotherEngineThatIsSilentIsSeenByTheLookAtTheLastMessage) {
  RankStream::Options options = Stream::Patient();
  options.quiet_after = Millis{1'000};
  Stream s(true, options);
  s.Start(7);
  s.Live(8);
  s.Pass(Millis{1'000});
  EXPECT_EQ(s.Take().back(), "ask 8");
  s.Answer(8, "other");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
}

TEST(RankStream, Q10AClearOvertakesTheRecoveryOfAnEngine) {
  Stream s(true);
  s.Start(9);
  s.Live(11, "clear");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 11:clear")) << "10 is needless";
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().overtaken, 1u);
  EXPECT_EQ(s.stats().gaps, 1u);
  // While history is being fetched.
  s.Live(14);
  EXPECT_EQ(s.State(), "warming replaying");
  s.Live(15, "clear");
  EXPECT_THAT(s.Take(), ElementsAre("ask 12", "clear", "apply 15:clear"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AClearMendsWhatWasLost) {
  for (const bool has_replay : {true, false}) {
    Stream s(has_replay);
    s.Connect();
    if (has_replay) {
      s.AnswerRange(5, 6);  // 0 to 4 are gone
      s.End();
      EXPECT_EQ(s.State(), "degraded history_gone");
    } else {
      s.Live(6);
      EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
    }
    s.Take();
    s.Live(7, "clear");
    EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 7:clear"));
    EXPECT_EQ(s.State(), "exact none");
  }
}

// It may be what the old engine left behind.
TEST(RankStream, AClearThatMayBeOfTheConnectionBeforeMendsNothing) {
  Stream s(false);
  s.Connect();
  s.Live(6);
  s.Disconnect();
  s.ConnectBehind();
  s.Live(7, "clear");
  EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
  s.Drain();
  s.Live(8, "clear");
  EXPECT_EQ(s.State(), "exact none");
}

// The subscription is to another topic: the replay endpoint tells what never comes live.
TEST(RankStream, MessagesThatNeverComeLiveAreNoticedAndFetched) {
  RankStream::Options options = Stream::Patient();
  options.quiet_after = Millis{1'000};
  Stream s(true, options);
  s.Connect();
  s.AnswerRange(0, 2);
  s.End();
  EXPECT_EQ(s.State(), "exact none");
  std::uint64_t next = 3;
  for (int looks = 0; looks < 20 && s.State() == "exact none"; ++looks) {
    s.Take();
    for (int i = 0; i < 40 && s.Take().empty(); ++i)
      s.Pass(Millis{100});
    s.AnswerRange(next - 1, next + 1);
    s.End();
    next += 2;
  }
  EXPECT_EQ(s.State(), "degraded not_live");
  EXPECT_NE(s.detail().find("topic"), std::string_view::npos) << s.detail();
  EXPECT_LE(next, 11u);
  s.Live(next);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AHealingReplayThatGetsNoAnswerKeepsWhatIsKnown) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  s.Pass(Millis{120'000});
  s.Live(7);
  const auto actions = s.Take();
  EXPECT_THAT(actions, testing::Not(testing::Contains("clear")));
  EXPECT_EQ(actions.back(), "apply 7") << "live messages do not wait for it";
  EXPECT_EQ(s.State(), "degraded replay_failed");
}

TEST(RankStream, Report40eAMalformedAnswerIsRetriedOnAFreshSocket) {
  const std::vector<std::vector<std::string>> malformed = {{"", "t", "1234", "p"},
                                                           {"x", "t", "12345678", "p"},
                                                           {"", "p"},
                                                           {},
                                                           {"", std::string(8, '\xFF'), "p"}};
  for (const auto& frames : malformed) {
    Stream s(true);
    s.Start(2);
    s.Live(4);
    s.AnswerFrames(frames);
    s.Answer(3);  // of the old socket: not taken while waiting
    EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
    s.Pass(Millis{200});
    s.Answer(3);
    EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3", "apply 4"));
    EXPECT_EQ(s.State(), "exact none");
  }
}

TEST(RankStream, T19AnEmptyPayloadEndsWhateverItsNumberSays) {
  Stream s(true);
  s.Connect();
  s.Answer(0);
  s.AnswerFrames({"", std::string(8, '\0'), ""});
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, Row77AReplayThatNeverEndsIsBounded) {
  RankStream::Options options = Stream::Patient();
  options.replay_messages_max = 100;
  options.replay_attempts = 1;
  Stream s(true, options);
  s.Connect();
  s.AnswerRange(0, 100);
  EXPECT_EQ(s.State(), "degraded replay_failed");
  EXPECT_EQ(s.stats().applied, 100u);
}

TEST(RankStream, ARetryGoesOnWhereTheReplayBrokeOff) {
  Stream s(true);
  s.Connect();
  s.AnswerRange(0, 4);
  s.Pass(Millis{5'200});
  s.AnswerRange(5, 6);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "apply 0", "apply 1", "apply 2", "apply 3", "apply 4",
                                    "ask 5", "apply 5", "apply 6"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, T26TheParkingPlaceIsBoundedAndWhatItRefusedIsFetchedLater) {
  RankStream::Options options = Stream::Patient();
  options.parked_messages_max = 3;
  Stream s(true, options);
  s.Start(0);
  s.LiveRange(2, 9);
  EXPECT_EQ(s.stream().parked(), 3u);
  EXPECT_EQ(s.stats().park_overflow, 5u);
  s.Take();
  s.Answer(1);
  EXPECT_THAT(s.Take(), ElementsAre("apply 1", "apply 2", "apply 3", "apply 4", "ask 5"));
  s.AnswerRange(5, 9);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 5", "apply 6", "apply 7", "apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, T26TheParkingPlaceIsBoundedInBytes) {
  RankStream::Options options = Stream::Patient();
  options.parked_bytes_max = 10;
  Stream s(true, options);
  s.Start(0);
  s.Live(2, "12345678");
  s.Live(3, "123");
  EXPECT_EQ(s.stream().parked(), 1u);
  EXPECT_EQ(s.stats().park_overflow, 1u);
}

TEST(RankStream, AGapWithoutReplayIsCountedAndTheStreamGoesOn) {
  Stream s(false);
  s.Start(4);
  s.Live(1'005);
  EXPECT_THAT(s.Take(), ElementsAre("apply 1005"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.detail(), "1000 messages from 5 on are lost");
  EXPECT_EQ(s.stats().missed, 1'000u);
  EXPECT_EQ(s.losses(), 1) << "what was counted of the kept blocks is no longer sure";
}

TEST(RankStream, ClearOnLossForgetsBlocksThatTheLostMessagesMayHaveRemoved) {
  RankStream::Options options = Stream::Patient();
  options.clear_on_loss = true;
  Stream s(false, options);
  s.Start(4);
  s.Live(6);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 6"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  s.Live(7, "!");
  EXPECT_THAT(s.Take(), ElementsAre("bad 7", "clear")) << "what it said is lost, too";
  EXPECT_EQ(s.State(), "degraded undecodable");
  EXPECT_EQ(s.losses(), 0);
}

// --- duplicates, late messages, restarts ---

TEST(RankStream, Row73TheSameMessageAgainIsDropped) {
  Stream s(false);
  s.Start(4);
  s.Live(4);
  s.Live(3);
  EXPECT_THAT(s.Take(), IsEmpty());
  EXPECT_EQ(s.stats().repeated, 2u);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, Report41ALateMessageIsNoRestart) {
  Stream s(true);
  s.Start(0);
  s.LiveRange(1, 2);
  s.Live(4);
  s.Live(3);
  EXPECT_THAT(s.Take(), ElementsAre("apply 1", "apply 2", "ask 3", "apply 3", "apply 4"));
  EXPECT_EQ(s.stats().restarts, 0u);
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, ALateMessageWithoutReplayComesTooLate) {
  Stream s(false);
  s.Start(2);
  s.Live(4);
  s.Live(3);
  EXPECT_THAT(s.Take(), ElementsAre("apply 4"));
  EXPECT_EQ(s.stats().late, 1u);
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

TEST(RankStream, T13Row74ALowerSequenceIsARestart) {
  Stream s(false);
  s.Start(900);
  s.Live(0, "new");
  s.Live(1);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 0:new", "apply 1"));
  EXPECT_EQ(s.State(), "exact none") << "the new engine's history is complete";
  EXPECT_EQ(s.stats().restarts, 1u);
}

TEST(RankStream, Report41ARestartWhoseFirstMessagesWereLostIsOneToo) {
  Stream s(false);
  s.Connect();
  s.LiveRange(3'990, 4'000);
  s.Take();
  s.Live(3, "new");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 3:new"));
  EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
}

TEST(RankStream, Row74MessageZeroWithOtherBytesIsARestart) {
  Stream s(false);
  s.Start(0);
  s.Live(0, "other");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 0:other"));
}

TEST(RankStream, Row73ASingleStepBackWithOtherBytesIsAStray) {
  for (const std::uint64_t number : {900u, 899u, 850u, 837u}) {
    Stream s(false);
    s.Start(900);
    s.Live(number, "stray");
    s.Live(901);
    s.Live(number, "another");
    s.Live(902);
    EXPECT_THAT(s.Take(), ElementsAre("apply 901", "apply 902")) << number;
    EXPECT_EQ(s.State(), "exact none");
    EXPECT_EQ(s.stats().restarts, 0u);
    EXPECT_EQ(s.stats().repeated, 2u);
  }
}

TEST(RankStream, Row74AStepBackThatGoesOnIsARestart) {
  Stream s(false);
  s.Start(900);
  s.Live(850, "new");
  s.Live(851, "new");
  s.Live(852, "new");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 851:new", "apply 852:new"));
  EXPECT_EQ(s.stats().restarts, 1u);
}

TEST(RankStream, Row74AFallByMoreThanAStrayCanTrailIsARestart) {
  Stream s(false);
  s.Start(900);
  s.Live(835, "new");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 835:new"));
}

TEST(RankStream, Row73WithReplayTheEngineSaysWhetherAStepBackIsARestart) {
  for (const bool restarted : {false, true}) {
    Stream s(true);
    s.Start(899);
    s.Live(900);
    s.Live(900, "other");
    EXPECT_THAT(s.Take(), ElementsAre("apply 900", "ask 900"));
    s.Answer(900, restarted ? "other" : "p900");
    if (restarted) {
      EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
      s.AnswerRange(0, 899);
      s.Answer(900, "other");
      s.End();
      EXPECT_EQ(s.Take().back(), "apply 900:other");
    } else {
      s.End();
      EXPECT_THAT(s.Take(), IsEmpty());
    }
    EXPECT_EQ(s.State(), "exact none");
  }
}

TEST(RankStream, ARestartWithReplayFetchesTheNewHistoryFirst) {
  Stream s(true);
  s.Start(900);
  s.Live(901);
  s.Take();
  s.Live(3);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.AnswerRange(0, 2);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0", "apply 1", "apply 2", "apply 3"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AFirstLiveMessageFarBelowTheReplayedOnesIsVerified) {
  for (const bool restarted : {false, true}) {
    Stream s(true);
    s.Connect();
    s.AnswerRange(0, 900);
    s.End();
    s.Take();
    s.Live(3);
    EXPECT_THAT(s.Take(), ElementsAre("ask 3"));
    if (!restarted) {
      s.AnswerRange(3, 900);
      s.End();
      EXPECT_THAT(s.Take(), IsEmpty()) << "an old copy";
    } else {
      s.End();
      s.AnswerRange(0, 2);
      s.End();
      EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0", "apply 0", "apply 1", "apply 2"));
      s.Pass(Millis{250});
      s.Answer(3);
      s.End();
      EXPECT_THAT(s.Take(), ElementsAre("ask 3", "apply 3")) << "whose it was shows the ring";
    }
    EXPECT_EQ(s.State(), "exact none");
  }
}

TEST(RankStream, ARestartDuringAReplayStartsOver) {
  Stream s(true);
  s.Start(10);
  s.Live(20);
  s.Answer(11);
  s.Take();
  s.Live(0, "new");
  s.Answer(12);  // would be of the old engine's socket; the stream asked on a fresh one
  const auto actions = s.Take();
  ASSERT_GE(actions.size(), 2u);
  EXPECT_EQ(actions[0], "clear");
  EXPECT_EQ(actions[1], "ask 0");
}

TEST(RankStream, DegradedHealsWithARestart) {
  Stream s(false);
  s.Start(2);
  s.Live(9);
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  s.Live(0, "new");
  EXPECT_EQ(s.State(), "exact none");
}

// --- the link ---

TEST(RankStream, ARankOfWhichNothingIsLeftIsBlind) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  EXPECT_EQ(s.State(), "warming disconnected");
  s.Pass(Millis{120'000});
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  EXPECT_EQ(s.State(), "blind disconnected");
}

TEST(RankStream, T15AStreamThatEndsIsWithdrawnAndTakenUpAgain) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  EXPECT_EQ(s.State(), "warming disconnected") << "no longer exact";
  s.Pass(Millis{120'000});
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  EXPECT_EQ(s.State(), "blind disconnected");
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0")) << "the listener did not end with its source";
  s.End();
  s.Live(0, "new");
  EXPECT_THAT(s.Take(), ElementsAre("apply 0:new"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, WhatHangsUpIsNotWaitedForInSilence) {
  Stream s(true);
  s.Refuse();
  EXPECT_EQ(s.State(), "blind refused");
  s.Start(5);
  EXPECT_EQ(s.State(), "exact none");
  s.Disconnect();
  s.Refuse();
  EXPECT_EQ(s.State(), "warming refused");
}

TEST(RankStream, ADisconnectedRankWarmsUntilItIsVerified) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  EXPECT_EQ(s.State(), "warming disconnected");
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("ask 5"));
  s.Live(8);
  s.AnswerRange(5, 7);
  EXPECT_THAT(s.Take(), ElementsAre("apply 6", "apply 7", "apply 8"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().restarts, 0u);
}

TEST(RankStream, ARestartWithFewerMessagesIsSeenByTheEmptyAnswer) {
  Stream s(true);
  s.Start(5);
  s.LiveRange(6, 9);
  s.Disconnect();
  s.Connect();
  s.Take();
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.Answer(0, "new");
  s.End();
  s.Live(1);
  EXPECT_THAT(s.Take(), ElementsAre("apply 0:new", "apply 1"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().restarts, 1u) << "the mark of the old engine counts no more";
}

TEST(RankStream, AnEmptyHistoryAfterAHoleIsARestart) {
  Stream s(true);
  s.Start(5);
  s.Live(9);
  s.Answer(7);
  s.AnswerRange(7, 7);  // the ring has 7 only; 8 is asked for and missing
  s.Disconnect();
  s.Connect();
  s.Take();
  s.End();
  EXPECT_EQ(s.Take().front(), "clear");
  s.End();
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AnEmptyHistoryIsARestartAlsoWhenEverythingIsAskedFor) {
  Stream s(true);
  s.Start(2);
  s.Live(6);
  s.Pass(Millis{60'000});  // the endpoint is silent; later all is fetched anew
  s.Take();
  s.Pass(Millis{30'000});
  s.End();
  s.Take();
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.End();
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, ARestartThatPassedTheOldMarkIsSeenByTheBytes) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  s.Connect();
  s.Live(9, "new9");
  s.Take();
  s.Answer(5, "new5");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  for (std::uint64_t i = 0; i < 9; ++i)
    s.Answer(i, "new");
  s.End();
  EXPECT_EQ(s.Take().back(), "apply 8:new") << "what was parked may be the old engine's";
  s.Pass(Millis{250});
  s.Answer(9, "new9");
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 9", "apply 9:new9"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, LeftoversOfTheOldEngineAreNotTakenForTheNewOnes) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  s.Live(7, "old7");  // still in the transport
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Connect();
  s.Live(8, "old8");
  s.Live(10, "new10");
  s.Answer(5, "new5");
  s.Take();
  for (std::uint64_t i = 0; i < 10; ++i)
    s.Answer(i, "new");
  s.End();
  const auto actions = s.Take();
  EXPECT_THAT(actions, testing::Not(testing::Contains("apply 8:old8")));
  EXPECT_EQ(actions.back(), "apply 9:new");
  s.Live(11, "new11");
  s.Answer(10, "new10");
  EXPECT_THAT(s.Take(), ElementsAre("ask 10", "apply 10:new10", "apply 11:new11"));
  EXPECT_EQ(s.State(), "exact none");
}

// The new engine has nothing more to say, so that no message of it shows whose the others were.
TEST(RankStream, LeftoversBehindTheEndOfANewEnginesHistoryAreNotApplied) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  s.Connect();
  s.LiveRange(24, 26);
  s.Answer(5, "new5");
  s.Take();
  for (std::uint64_t i = 0; i < 16; ++i)
    s.Answer(i, "new");
  s.End();
  EXPECT_EQ(s.Take().back(), "apply 15:new");
  EXPECT_EQ(s.State(), "exact none");
}

// Two restarts while nobody read: the first message below the old mark is of the engine between.
TEST(RankStream, LeftoversOfAnEngineBetweenAreNotTakenForTheNewOnes) {
  Stream s(true);
  s.Start(5);
  for (int i = 0; i < 2; ++i) {
    s.Disconnect();
    s.Connect();
  }
  s.Live(6, "old");
  s.Live(3, "between");
  s.Live(4, "between");
  EXPECT_EQ(s.Take().back(), "ask 0");
  for (std::uint64_t i = 0; i < 4; ++i)
    s.Answer(i, "new");
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 0:new", "apply 1:new", "apply 2:new", "apply 3:new"));
  EXPECT_EQ(s.State(), "exact none");
}

TEST(RankStream, AnIncarnationThatCannotBeVerifiedIsClearedFirst) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  s.Connect();
  s.Take();
  s.AnswerRange(50, 51);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 50", "apply 51"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStream, WithoutReplayANumberThatGoesOnAfterAReconnectProvesNothing) {
  struct {
    std::uint64_t sequence;
    const char* state;
  } const rows[] = {{6, "degraded no_replay_endpoint"},
                    {8, "degraded gap_unrepaired"},
                    {5, "degraded no_replay_endpoint"},
                    {0, "exact none"}};
  for (const auto& row : rows) {
    Stream s(false);
    s.Start(5);
    s.Disconnect();
    s.Connect();
    EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
    EXPECT_EQ(s.losses(), 1);
    s.Live(row.sequence, "new");
    s.Live(row.sequence + 1, "new");
    EXPECT_EQ(s.State(), row.state) << row.sequence;
    EXPECT_EQ(s.stats().restarts, row.sequence < 6 ? 1u : 0u);
  }
  RankStream::Options options = Stream::Patient();
  options.clear_on_loss = true;
  Stream s(false, options);
  s.Start(5);
  s.Disconnect();
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
}

TEST(RankStream, WhatTheEngineBufferedComesWithTheNextConnection) {
  Stream s(Backlog::kBuffered);
  s.Connect();
  s.LiveRange(0, 5);
  s.Disconnect();
  EXPECT_EQ(s.State(), "warming disconnected");
  s.Connect();
  s.Live(6);
  EXPECT_EQ(s.State(), "exact none");
  s.Live(8);
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
}

// --- a replay endpoint of another engine: its messages are "b<number>" ---

void AnswerForeign(Stream& s, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t i = first; i <= last; ++i)
    s.Answer(i, fmt::format("b{}", i));
  s.End();
}
// Connected, with the messages of the other engine up to `last`, which the endpoint confirmed.
void StartForeign(Stream& s, std::uint64_t last) {
  s.Connect();
  AnswerForeign(s, 0, last);
  s.Pass(Millis{250});
  s.End();
  s.Take();
}

TEST(RankStreamForeignReplay, OneThatIsAheadIsSeenByTheFirstLiveMessage) {
  Stream s(true);
  StartForeign(s, 99);
  s.Live(10);
  EXPECT_THAT(s.Take(), ElementsAre("ask 10"));
  s.Live(11);
  AnswerForeign(s, 10, 99);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 10", "apply 11"));
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  EXPECT_EQ(s.detail(),
            "the replay endpoint belongs to another engine: its message 10 has other bytes than "
            "the engine's");
  EXPECT_EQ(s.stats().replays_foreign, 1u);
  // It is not asked again, whatever happens, until the engine starts over.
  s.Live(20);
  s.Live(21, "!");
  s.Live(22);
  s.Pass(Millis{100'000});
  s.Disconnect();
  s.Connect();
  s.Live(23);
  EXPECT_THAT(s.Take(), ElementsAre("apply 20", "bad 21", "apply 22", "apply 23"));
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  s.Live(0, "new");
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
}

TEST(RankStreamForeignReplay, OneThatIsJustAsFarIsSeenWhenItIsAskedForALiveMessage) {
  Stream s(true);
  StartForeign(s, 9);
  s.Live(10);
  s.Live(11);
  s.Pass(Millis{250});
  EXPECT_THAT(s.Take(), ElementsAre("apply 10", "apply 11", "ask 9"));
  AnswerForeign(s, 9, 10);
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  s.Live(12);
  EXPECT_THAT(s.Take(), ElementsAre("apply 12"));
}

TEST(RankStreamForeignReplay, OneThatStandsStillIsDoubted) {
  Stream s(true);
  StartForeign(s, 9);
  s.Live(10);
  s.Pass(Millis{250});
  s.End();
  EXPECT_EQ(s.State(), "exact none") << "its ring may lag behind";
  s.Live(11);
  s.Pass(Millis{500});
  EXPECT_THAT(s.Take(), ElementsAre("apply 10", "ask 9", "apply 11", "ask 9"));
  s.End();
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  s.Live(12);
  s.Pass(Millis{999});
  EXPECT_THAT(s.Take(), ElementsAre("apply 12")) << "the pauses grow";
  s.Pass(Millis{1});
  s.Answer(9, "b9");
  s.AnswerRange(10, 12);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 9"));
  EXPECT_EQ(s.State(), "exact none") << "it is the engine's after all";
}

TEST(RankStreamForeignReplay, OneThatGaveNothingNeedsNoProof) {
  Stream s(true);
  s.Connect();
  s.End();
  for (std::uint64_t i = 0; i < 8; ++i) {
    s.Live(i);
    s.Pass(Millis{30'000});
    s.End();
    EXPECT_EQ(s.State(), "exact none");
  }
}

TEST(RankStreamForeignReplay, OneThatIsFarAheadIsSeenByWhereItBegins) {
  Stream s(true);
  s.Connect();
  AnswerForeign(s, 50'000, 50'001);
  EXPECT_EQ(s.State(), "degraded history_gone");
  std::uint64_t live = 10;
  for (int look = 0; look < 4; ++look) {
    EXPECT_EQ(s.stats().replays_foreign, 0u);
    s.Live(live++);
    s.Pass(Millis{2'000});
    AnswerForeign(s, 50'000, 50'001);
  }
  EXPECT_EQ(s.stats().replays_foreign, 1u);
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  s.Take();
  s.Live(live);
  EXPECT_THAT(s.Take(), ElementsAre("apply 14"));
}

// A short ring under a fast engine: what it begins with waits unread among the live messages.
TEST(RankStreamForeignReplay, ARingThatMovesOnWhileLiveMessagesWaitIsTheEngines) {
  Stream s(true);
  s.Connect();
  s.Live(10);
  s.Answer(100);
  s.End();
  for (std::uint64_t gap = 300; gap < 1'500; gap += 300) {
    s.Live(gap);
    s.Answer(gap + 100);
    s.Live(gap + 10);
    s.Answer(gap + 150);
    s.End();
    s.Pass(Millis{20});
  }
  EXPECT_EQ(s.stats().replays_foreign, 0u);
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStreamForeignReplay, ARingAheadOfALateReaderIsProvenByTheMessageItBeganWith) {
  for (const bool foreign : {false, true}) {
    Stream s(true);
    s.Connect();
    s.AnswerRange(0, 4);
    s.End();
    s.Pass(Millis{250});
    s.End();
    std::uint64_t live = 5;
    for (int look = 0; look < 4; ++look) {
      s.Live(live++);
      s.Pass(Millis{2'000});
      s.Answer(live + 20, fmt::format("{}{}", foreign ? "other" : "p", live + 20));
      s.End();
      while (!foreign && live < 30)
        s.Live(live++);
    }
    EXPECT_EQ(s.stats().replays_foreign, foreign ? 1u : 0u);
    EXPECT_EQ(s.State(), foreign ? "degraded replay_mismatch" : "exact none");
  }
}

// Live messages that wait to be read are no gap.
TEST(RankStream, ARingThatMovedPastWhatWasReadIsAGapOnlyWhenNothingFollows) {
  for (const bool late : {true, false}) {
    Stream s(true);
    s.Connect();
    s.AnswerRange(0, 4);
    s.End();
    s.Pass(Millis{250});
    s.Take();
    s.AnswerRange(30, 40);
    s.End();
    EXPECT_THAT(s.Take(), IsEmpty());
    if (late) s.LiveRange(5, 40);
    s.Take();
    s.Pass(Millis{500});
    EXPECT_THAT(s.Take(), ElementsAre(late ? "ask 4" : "ask 5"));
    s.AnswerRange(30, 40);
    s.End();
    EXPECT_EQ(s.stats().gaps, late ? 0u : 1u);
    EXPECT_EQ(s.State(), late ? "exact none" : "degraded history_gone");
  }
}

// Every request goes over a connection of its own, which something in front of several engines may
// send to any of them.
TEST(RankStreamForeignReplay, HistoryOfAnotherEngineThanTheOneThatProvesItselfIsFetchedAnew) {
  Stream s(true);
  StartForeign(s, 9);
  s.Live(10);
  s.Pass(Millis{250});
  EXPECT_THAT(s.Take(), ElementsAre("apply 10", "ask 9"));
  s.Answer(9);
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
  s.AnswerRange(0, 10);
  s.End();
  EXPECT_EQ(s.Take().size(), 12u) << "clear and 11 messages";
  s.Live(11);
  s.Pass(Millis{250});
  EXPECT_EQ(s.State(), "exact none");
  s.AnswerRange(10, 11);
  s.End();
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().replays_foreign, 0u);
}

TEST(RankStreamForeignReplay, ADisownedEndpointIsTakenBackOnceItKnowsTheNewestLiveMessage) {
  Stream s(true);
  StartForeign(s, 9);
  s.LiveRange(10, 11);
  s.Pass(Millis{250});
  AnswerForeign(s, 9, 10);
  s.LiveRange(12, 14);
  s.Take();
  s.Pass(Millis{29'999});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask 14"));
  AnswerForeign(s, 14, 15);
  s.End();
  s.Live(15);
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  s.Pass(Millis{60'000});
  EXPECT_THAT(s.Take(), ElementsAre("apply 15", "ask 15"));
  s.Live(16);
  s.Answer(15);
  EXPECT_THAT(s.Take(), ElementsAre("apply 16", "clear", "ask 0"));
  s.AnswerRange(0, 16);
  s.End();
  s.Live(17);
  s.Pass(Millis{250});
  s.AnswerRange(16, 17);
  s.End();
  EXPECT_EQ(s.State(), "exact none");
}

// The endpoint knows the live messages and others that the engine never sends.
TEST(RankStreamForeignReplay, ALiveMessageThatDiffersFromWhatWasToldEndsAllTrust) {
  RankStream::Options options = Stream::Patient();
  options.quiet_after = Millis{1'000};
  Stream s(true, options);
  s.Start(5);
  s.Live(6);
  s.Pass(Millis{1'000});
  s.AnswerRange(7, 8);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 6", "ask 6", "apply 7", "apply 8"));
  s.Live(7, "other");
  EXPECT_THAT(s.Take(), ElementsAre("ask 7"));
  s.AnswerRange(7, 8);
  EXPECT_EQ(s.State(), "degraded replay_mismatch");
  EXPECT_EQ(s.stats().replays_foreign, 1u);
}

TEST(RankStream, AStreamThatFallsSilentIsAskedForItsLastMessages) {
  RankStream::Options options = Stream::Patient();
  options.quiet_after = Millis{1'000};
  Stream s(true, options);
  s.Start(5);
  s.Live(6);
  s.Pass(Millis{900});
  s.Live(7);
  s.Take();
  s.Pass(Millis{999});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask 7"));
  s.AnswerRange(7, 9);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "exact none");
  s.Pass(Millis{2'000});
  EXPECT_THAT(s.Take(), ElementsAre("ask 9")) << "the first look found something";
  s.Answer(9);
  s.End();
  s.Pass(Millis{1'999});
  EXPECT_THAT(s.Take(), IsEmpty()) << "the pauses grow";
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("ask 9"));
  s.End();
  s.Pass(Millis{200'000});
  EXPECT_LE(s.Take().size(), 8u) << "up to the interval of looks";
  EXPECT_EQ(s.stats().replays_failed, 0u);
}

TEST(RankStream, AnAnswerThatOnlyRepeatsItselfIsAsGoodAsNone) {
  Stream s(true);
  s.Connect();
  s.Take();
  for (int i = 0; i < 100; ++i) {
    s.Answer(0);
    s.Pass(Millis{100});
  }
  EXPECT_GE(s.stats().replays_failed, 1u);
}

TEST(RankStreamForeignReplay, AfterAReconnectASecondWitnessDecides) {
  for (const bool foreign : {false, true}) {
    Stream s(true);
    s.Start(5);
    s.Disconnect();
    s.Connect();
    s.Answer(5);
    s.End();
    s.Live(6, "old");  // the leftover of a connection that broke, or the engine's
    s.Pass(Millis{250});
    s.Answer(6, "b6");
    EXPECT_EQ(s.Take().back(), "ask 0") << "what was applied with it is fetched anew";
    s.AnswerRange(0, 5);
    s.Answer(6, "b6");
    s.End();
    EXPECT_EQ(s.State(), "degraded replay_mismatch");
    EXPECT_EQ(s.stats().replays_foreign, 0u);
    s.Pass(Millis{500});
    s.End();
    s.Live(7);
    s.Pass(Millis{1'000});
    s.Answer(7, foreign ? "b7" : "p7");
    s.End();
    EXPECT_EQ(s.stats().replays_foreign, foreign ? 1u : 0u);
    EXPECT_EQ(s.State(), foreign ? "degraded replay_mismatch" : "exact none");
  }
}

TEST(RankStreamForeignReplay, NumbersFarBeyondTheLiveOnesAreNotBelieved) {
  for (const std::uint64_t number : {(1u << 20) + std::uint64_t{11}, kEndSequence - 1}) {
    Stream s(true);
    s.Connect();
    s.Live(10);
    s.Answer(number);
    EXPECT_EQ(s.stats().replays_failed, 1u);
    s.Pass(Millis{200});
    s.AnswerRange(0, 10);
    s.End();
    s.Live(11);
    EXPECT_EQ(s.State(), "exact none");
    EXPECT_EQ(s.stream().watermark(), 11u);
    EXPECT_EQ(s.stats().missed, 0u);
  }
}

TEST(RankStreamForeignReplay, ANumberThatTheEngineHasNotReachedIsUndone) {
  Stream s(true);
  s.Connect();
  s.Live(10);
  s.Answer(1'000);
  s.End();
  EXPECT_EQ(s.State(), "degraded history_gone");
  s.Take();
  s.Live(11);
  s.Pass(Millis{500});
  EXPECT_THAT(s.Take(), ElementsAre("ask 11"));
  s.Answer(11);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
  s.AnswerRange(0, 11);
  s.End();
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stream().watermark(), 11u);
}

TEST(RankStreamForeignReplay, AnAbsurdNumberBeforeAnyLiveOneIsUndoneByTheFirst) {
  Stream s(true);
  s.Connect();
  s.Answer(kEndSequence - 1);
  s.End();
  EXPECT_EQ(s.stats().missed, RankStream::kMissedMax) << "and nothing wraps";
  s.Take();
  s.Live(10);
  EXPECT_THAT(s.Take(), ElementsAre("ask 10"));
  s.Answer(10);  // the engine's own after all, which does not know that number
  s.End();
  s.AnswerRange(0, 10);
  s.End();
  s.Live(11);
  EXPECT_EQ(s.Take().back(), "apply 11");
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stream().watermark(), 11u);
}

TEST(RankStream, Report47BlocksOfAnEngineGoneForLongAreForgotten) {
  Stream s(true);
  s.Start(5);
  s.Disconnect();
  s.Pass(Millis{119'999});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
}

TEST(RankStream, ADisconnectDuringAReplayAsksAgainAfterwards) {
  Stream s(true);
  s.Connect();
  s.AnswerRange(0, 3);
  s.Disconnect();
  s.Connect();
  s.AnswerRange(3, 6);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "apply 0", "apply 1", "apply 2", "apply 3", "ask 3",
                                    "apply 4", "apply 5", "apply 6"));
  EXPECT_EQ(s.State(), "exact none");
}

// Of a connection that broke what it left is applied as far as it goes on; behind a hole in it, or
// when connections came and went before anything of them was read, the next messages may be those
// of an engine that was started meanwhile.
TEST(RankStream, WhatLostConnectionsLeftIsNotMixed) {
  Stream one(true);
  one.Start(4);
  one.Live(5);
  one.Disconnect();
  one.Take();
  one.Live(6);
  EXPECT_THAT(one.Take(), ElementsAre("apply 6"));
  one.Live(8);
  one.Live(7, "new");
  EXPECT_THAT(one.Take(), IsEmpty());
  one.Connect();
  EXPECT_THAT(one.Take(), ElementsAre("ask 6"));

  Stream several(true);
  several.Start(4);
  several.Live(5);
  for (int engine = 0; engine < 3; ++engine) {
    several.Disconnect();
    several.Connect();
  }
  several.Disconnect();
  several.Take();
  several.LiveRange(6, 8);
  several.Live(9, "new");
  EXPECT_THAT(several.Take(), IsEmpty());
  several.Connect();
  several.Answer(5, "new");
  EXPECT_THAT(several.Take(), ElementsAre("ask 5", "clear", "ask 0"));
}

// Numbers cannot tell what the old engine left from what the new one tells, when these go on.
TEST(RankStream, WithoutReplayWhatALostConnectionLeftIsDroppedWhereEveryLossClears) {
  auto options = Stream::Patient();
  options.clear_on_loss = true;
  Stream s(false, options);
  s.Start(4);
  s.Disconnect();
  s.ConnectBehind();
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  s.Live(5, "old");
  s.Drain();
  EXPECT_THAT(s.Take(), IsEmpty());
  EXPECT_EQ(s.stats().late, 1u);
  s.Live(6, "new");
  EXPECT_THAT(s.Take(), ElementsAre("apply 6:new"));
  EXPECT_EQ(s.State(), "degraded gap_unrepaired");
  EXPECT_EQ(s.stats().missed, 1u);
}

// --- blocks that somebody else knew: services 1.1.5 ---

constexpr Nanos kStart = Millis{1'000};

TEST(RankStreamAdopted, GoesOnBehindTheWatermark) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  EXPECT_EQ(s.losses(), 1) << "copies were counted elsewhere";
  s.Connect();
  s.Live(10);
  s.AnswerRange(7, 9);
  EXPECT_THAT(s.Take(), ElementsAre("ask 7", "apply 8", "apply 9", "apply 10"));
  EXPECT_EQ(s.State(), "degraded recovered");
  EXPECT_EQ(s.detail(),
            "blocks up to message 7 were known before this process followed the engine");
  s.Live(11);
  EXPECT_EQ(s.stream().watermark(), 11u);
}

// None is missing, but another engine may have come just as far.
TEST(RankStreamAdopted, ARingThatBeginsRightBehindTheWatermarkProvesNothing) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  s.Connect();
  s.AnswerRange(8, 9);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 7", "clear", "apply 8", "apply 9"));
  EXPECT_EQ(s.State(), "degraded history_gone");
  EXPECT_EQ(s.detail(),
            "the ring begins at message 8; what was known before may be another engine's");
}

TEST(RankStreamAdopted, ARingThatBeginsLaterRebuilds) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  s.Connect();
  s.AnswerRange(9, 10);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 7", "clear", "apply 9", "apply 10"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStreamAdopted, AnEngineThatDoesNotKnowTheMessageIsAnotherOne) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  s.Connect();
  s.End();
  s.AnswerRange(0, 1);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 7", "clear", "ask 0", "apply 0", "apply 1"));
  EXPECT_EQ(s.State(), "exact none");
  EXPECT_EQ(s.stats().restarts, 1u);
}

TEST(RankStreamAdopted, ALiveMessageNotBeyondTheWatermarkIsOfAnotherEngine) {
  for (const bool replay : {false, true}) {
    Stream s(replay);
    s.stream().Adopt(StreamPosition{7}, kStart);
    s.Connect();
    s.Take();
    s.Live(0, "new");
    if (replay) {
      EXPECT_THAT(s.Take(), ElementsAre("clear", "ask 0"));
      s.Answer(0, "new");
      s.End();
    } else {
      EXPECT_EQ(s.Take().front(), "clear");
    }
    EXPECT_EQ(s.State(), "exact none");
    EXPECT_EQ(s.stats().restarts, 1u);
  }
}

TEST(RankStreamAdopted, WithoutReplayTheFirstMessageDecides) {
  Stream next(false);
  next.stream().Adopt(StreamPosition{7}, kStart);
  next.Live(8);
  EXPECT_THAT(next.Take(), ElementsAre("apply 8"));
  EXPECT_EQ(next.State(), "degraded recovered");

  Stream gap(false);
  gap.stream().Adopt(StreamPosition{7}, kStart);
  gap.Live(10);
  EXPECT_THAT(gap.Take(), ElementsAre("apply 10"));
  EXPECT_EQ(gap.State(), "degraded gap_unrepaired");
}

TEST(RankStreamAdopted, WithoutAWatermarkACompleteHistoryReplacesWhatWasKnown) {
  Stream s(true);
  s.stream().Adopt(std::nullopt, kStart);
  s.Connect();
  s.AnswerRange(0, 1);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "clear", "apply 0", "apply 1"));
  EXPECT_EQ(s.State(), "exact none");
}

// What the ring no longer has may have removed blocks that are known.
TEST(RankStreamAdopted, WithoutAWatermarkAnIncompleteHistoryReplacesWhatWasKnown) {
  Stream s(true);
  s.stream().Adopt(std::nullopt, kStart);
  s.Connect();
  s.AnswerRange(5, 6);
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "clear", "apply 5", "apply 6"));
  EXPECT_EQ(s.State(), "degraded history_gone");
}

TEST(RankStreamAdopted, WithoutAWatermarkAndReplayClearOnLossDropsWhatWasKnown) {
  RankStream::Options options = Stream::Patient();
  options.clear_on_loss = true;
  Stream s(false, options);
  s.stream().Adopt(std::nullopt, kStart);
  s.Live(4);
  EXPECT_THAT(s.Take(), ElementsAre("clear", "apply 4"));
  EXPECT_EQ(s.State(), "degraded no_replay_endpoint");
}

TEST(RankStreamAdopted, WithoutAWatermarkAnEngineWithoutHistoryIsAnotherOne) {
  Stream s(true);
  s.stream().Adopt(std::nullopt, kStart);
  s.Connect();
  s.End();
  s.End();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0", "clear", "ask 0"));
  EXPECT_EQ(s.State(), "exact none");

  Stream live(false);
  live.stream().Adopt(std::nullopt, kStart);
  live.Live(0);
  EXPECT_THAT(live.Take(), ElementsAre("clear", "apply 0"));
  EXPECT_EQ(live.State(), "exact none");
}

TEST(RankStreamAdopted, WithoutAWatermarkAndReplayTheFirstMessageSetsTheCursor) {
  Stream s(false);
  s.stream().Adopt(std::nullopt, kStart);
  s.Live(4);
  s.Live(5);
  EXPECT_THAT(s.Take(), ElementsAre("apply 4", "apply 5"));
  EXPECT_EQ(s.State(), "degraded recovered");
}

TEST(RankStreamAdopted, AnEngineThatNeverComesUpLosesItsBlocks) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  s.Pass(Millis{119'999});
  EXPECT_THAT(s.Take(), IsEmpty());
  s.Pass(Millis{1});
  EXPECT_THAT(s.Take(), ElementsAre("clear"));
  s.Connect();
  EXPECT_THAT(s.Take(), ElementsAre("ask 0"));
}

std::uint64_t DigestOf(std::string_view payload) {
  return MessageDigest(std::as_bytes(std::span(payload)));
}

TEST(RankStreamAdopted, TheBytesOfTheLastMessageTellTheEngineApart) {
  Stream same(true);
  same.stream().Adopt(StreamPosition{7, DigestOf("p7")}, kStart);
  same.Connect();
  same.AnswerRange(7, 9);
  same.End();
  EXPECT_THAT(same.Take(), ElementsAre("ask 7", "apply 8", "apply 9"));
  EXPECT_EQ(same.State(), "degraded recovered");

  // Another incarnation that has come further than the old one.
  Stream other(true);
  other.stream().Adopt(StreamPosition{7, DigestOf("p7")}, kStart);
  other.Connect();
  other.Answer(7, "new");
  EXPECT_THAT(other.Take(), ElementsAre("ask 7", "clear", "ask 0"));
  other.AnswerRange(0, 1);
  other.End();
  EXPECT_EQ(other.State(), "exact none");
  EXPECT_EQ(other.stats().restarts, 1u);
}

TEST(RankStreamAdopted, SaysSoWhileTheEngineIsDown) {
  Stream s(true);
  s.stream().Adopt(StreamPosition{7}, kStart);
  EXPECT_EQ(s.State(), "degraded recovered");
  EXPECT_EQ(s.detail(),
            "blocks up to message 7 were known before this process followed the engine; no "
            "connection to the event endpoint yet");
  s.Pass(Millis{120'000});  // dropped
  EXPECT_EQ(s.State(), "blind connecting");
}

// --- where the next process may go on ---

TEST(RankStreamPosition, IsBehindTheLastMessageOfACompleteHistory) {
  for (const bool replay : {false, true}) {
    Stream s(replay);
    EXPECT_EQ(s.stream().position(), std::nullopt);
    s.Start(4);
    EXPECT_EQ(s.stream().position(), (StreamPosition{4, DigestOf("p4")}));
    s.Live(5);
    EXPECT_EQ(s.stream().position(), (StreamPosition{5, DigestOf("p5")}));
    s.Disconnect();  // which takes nothing back
    EXPECT_EQ(s.stream().position(), (StreamPosition{5, DigestOf("p5")}));
  }
}

TEST(RankStreamPosition, IsNoneWhereSomethingIsMissing) {
  Stream gap(false);
  gap.Start(4);
  gap.Live(9);
  EXPECT_EQ(gap.State(), "degraded gap_unrepaired");
  EXPECT_EQ(gap.stream().position(), std::nullopt);

  Stream late(false);
  late.Connect();
  late.Live(3);
  EXPECT_EQ(late.stream().position(), std::nullopt);

  Stream again(false);
  again.Start(4);
  again.Disconnect();
  again.Connect();  // what was published meanwhile nobody knows
  EXPECT_EQ(again.stream().position(), std::nullopt);
}

// All that came since the blocks were cleared was applied, so that nothing is known that is gone.
TEST(RankStreamPosition, IsKnownOfARankThatOnlyLacksItsBeginning) {
  Stream gone(true);
  gone.Connect();
  gone.AnswerRange(5, 6);
  gone.End();
  EXPECT_EQ(gone.State(), "degraded history_gone");
  EXPECT_EQ(gone.stream().position(), (StreamPosition{6, DigestOf("p6")}));
}

TEST(RankStreamPosition, GoesOnFromAnAdoptedOne) {
  const StreamPosition seven{7, DigestOf("p7")};
  Stream s(true);
  s.stream().Adopt(seven, kStart);
  EXPECT_EQ(s.stream().position(), seven);  // also while the engine is down
  s.Connect();
  s.AnswerRange(7, 9);
  s.End();
  EXPECT_EQ(s.stream().position(), (StreamPosition{9, DigestOf("p9")}));
  s.Disconnect();
  s.Connect();
  s.Answer(9, "new");
  EXPECT_EQ(s.stream().position(), std::nullopt) << "the engine started anew";

  Stream unknown(false);
  unknown.stream().Adopt(std::nullopt, kStart);
  unknown.Live(4);
  EXPECT_EQ(unknown.State(), "degraded recovered");
  EXPECT_EQ(unknown.stream().position(), std::nullopt) << "nobody knows what the blocks missed";
}

// --- the rest ---

TEST(RankStream, TheLargestSequenceIsLegal) {
  Stream s(false);
  s.Connect();
  s.Live(~std::uint64_t{0} - 1);
  EXPECT_EQ(s.stream().watermark(), ~std::uint64_t{0} - 1);
}

TEST(RankStreamOptions, ImpossibleOnesAreRefused) {
  RankStream::Options options = Stream::Patient();
  EXPECT_TRUE(options.Validate());
  options.parked_messages_max = 0;
  EXPECT_FALSE(options.Validate());
  options = {};
  options.replay_attempts = 0;
  EXPECT_FALSE(options.Validate());
}

}  // namespace
}  // namespace kvr::ingest
