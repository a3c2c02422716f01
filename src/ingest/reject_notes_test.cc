#include "ingest/reject_notes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hex.h"

namespace kvr::ingest {
namespace {

using testing::HasSubstr;

class RejectNotesTest : public testing::Test {
 protected:
  // A message of one event of an unknown type; the lines it leaves in the log.
  std::string Reject() {
    const auto payload = FromHex("93cb3ff80000000000009191aa426c6f636b4d6f76656400");
    EXPECT_TRUE(payload);
    placement::PlacementBatch batch;
    EXPECT_TRUE(translator_.Translate(*payload, batch));
    EXPECT_EQ(batch.dropped.size(), 1u);
    testing::internal::CaptureStderr();
    notes_.NoteDropped(kRank, health_, {1, *payload}, batch, translator_);
    return testing::internal::GetCapturedStderr();
  }

  static constexpr Rank kRank{WorkerId{7}, 0};
  ManualClock clock_;
  fleet::RankHealth health_;
  placement::EventTranslator translator_{{.rank = kRank, .block_size = 4}};
  RejectNotes notes_{clock_, 0};
};

TEST_F(RejectNotesTest, C6OneLineAMinuteSaysHowManyItStandsFor) {
  EXPECT_THAT(Reject(), HasSubstr("rejected 1 events since the last such line: unknown_event"));
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(Reject(), "");
  clock_.Advance(RejectNotes::kLogInterval - Nanos{1});
  EXPECT_EQ(Reject(), "");
  clock_.Advance(Nanos{1});
  EXPECT_THAT(Reject(), HasSubstr("rejected 42 events since"));
  EXPECT_EQ(Reject(), "");
  EXPECT_EQ(health_.rejected().contents().total, 44u) << "counted all the same";
}

// One event of an unknown type before, between or behind so many empty removals.
std::vector<std::byte> Flood(std::size_t before, std::size_t behind) {
  const auto removal = [] { return std::string("92ac426c6f636b52656d6f76656490"); };
  std::string hex = fmt::format("93cb3ff8000000000000dc{:04x}", before + 1 + behind);
  for (std::size_t i = 0; i < before; ++i)
    hex += removal();
  hex += "91aa426c6f636b4d6f766564";
  for (std::size_t i = 0; i < behind; ++i)
    hex += removal();
  return FromHex(hex + "00").value();
}

// The events that a batch has many of hid the one that matters.
TEST_F(RejectNotesTest, AFloodInOneBatchHidesNoReason) {
  constexpr std::size_t kMax = fleet::RejectedLog::kEventsMax;
  const std::pair<std::size_t, std::size_t> rows[] = {{0, 40},       {20, 40},  {40, 0},
                                                      {0, kMax - 1}, {0, kMax}, {3, 2}};
  for (const auto& [before, behind] : rows) {
    SCOPED_TRACE(fmt::format("{} before, {} behind", before, behind));
    fleet::RankHealth health;
    placement::EventTranslator translator({.rank = kRank, .block_size = 4});
    RejectNotes notes(clock_, 0);
    const auto payload = Flood(before, behind);
    placement::PlacementBatch batch;
    ASSERT_TRUE(translator.Translate(payload, batch));
    testing::internal::CaptureStderr();
    notes.NoteDropped(kRank, health, {1, payload}, batch, translator);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("unknown_event"));
    const auto last = health.rejected().contents().last;
    EXPECT_EQ(last.size(), std::min(kMax, before + 1 + behind));
    EXPECT_EQ(std::count_if(last.begin(), last.end(),
                            [](const auto& event) { return event.reason == "unknown_event"; }),
              1);
    EXPECT_TRUE(std::is_sorted(last.begin(), last.end(),
                               [](const auto& a, const auto& b) { return a.index < b.index; }));
    EXPECT_EQ(last.back().index, before + behind) << "the newest is among them";
  }
}

TEST_F(RejectNotesTest, C6AnotherReasonHasALineOfItsOwn) {
  EXPECT_NE(Reject(), "");
  testing::internal::CaptureStderr();
  notes_.NoteMessage(kRank, health_, {2, {}}, "truncated", "", 0);
  notes_.NoteMessage(kRank, health_, {3, {}}, "truncated", "", 0);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

}  // namespace
}  // namespace kvr::ingest
