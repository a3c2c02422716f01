#include "fleet/rejected_log.h"

#include <string>

#include <gtest/gtest.h>

namespace kvr::fleet {
namespace {

RejectedEvent Event(std::string_view reason, std::uint64_t sequence) {
  RejectedEvent event;
  event.reason = reason;
  event.sequence = sequence;
  return event;
}

TEST(RejectedLog, KeepsTheNewest) {
  RejectedLog log;
  for (std::uint64_t i = 0; i < 40; ++i)
    log.Keep(Event("decode_error", i));
  log.Count("decode_error", 40);
  const auto contents = log.contents();
  ASSERT_EQ(contents.last.size(), RejectedLog::kEventsMax);
  EXPECT_EQ(contents.last.front().sequence, 8u);
  EXPECT_EQ(contents.last.back().sequence, 39u);
  EXPECT_EQ(contents.total, 40u);
  ASSERT_EQ(contents.by_reason.size(), 1u);
  EXPECT_EQ(contents.by_reason[0].second, 40u);
}

TEST(RejectedLog, AFloodOfOneKindHidesNoOther) {
  RejectedLog log;
  log.Keep(Event("decode_error", 0));
  for (std::uint64_t i = 1; i <= 1'000; ++i)
    log.Keep(Event("non_main_group", i));
  const auto contents = log.contents();
  ASSERT_EQ(contents.last.size(), RejectedLog::kEventsMax);
  EXPECT_EQ(contents.last.front().reason, "decode_error");
  EXPECT_EQ(contents.last[1].sequence, 970u);
  EXPECT_EQ(contents.last.back().sequence, 1'000u);
}

TEST(RejectedLog, IsBoundedInBytes) {
  RejectedLog log;
  RejectedEvent event = Event("decode_error", 1);
  event.detail.assign(10'000, 'x');
  event.bytes.assign(10'000, 'y');
  log.Keep(event);
  const auto contents = log.contents();
  EXPECT_EQ(contents.last[0].detail.size(), RejectedEvent::kDetailBytesMax);
  EXPECT_EQ(contents.last[0].bytes.size(), RejectedEvent::kBytesMax);
}

TEST(RejectedLog, ReasonsAreCountedUpToALimit) {
  static const std::string names(1'000, 'n');
  RejectedLog log;
  for (std::size_t i = 1; i <= 2 * RejectedLog::kReasonsMax; ++i)
    log.Count(std::string_view(names).substr(0, i));
  EXPECT_EQ(log.contents().by_reason.size(), RejectedLog::kReasonsMax);
  EXPECT_EQ(log.contents().total, 2 * RejectedLog::kReasonsMax);
}

}  // namespace
}  // namespace kvr::fleet
