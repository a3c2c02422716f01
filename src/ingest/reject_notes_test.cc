#include "ingest/reject_notes.h"

#include <algorithm>
#include <array>
#include <string>

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
