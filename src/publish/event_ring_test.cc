// The rows L1 to L11 of the wire's edge cases, and what a ring by bytes adds to them.
#include "publish/event_ring.h"

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/alloc_counter.h"

namespace kvr::publish {
namespace {

std::string BytesOf(std::uint64_t id) {
  return fmt::format("<{}>", id);
}

EventRing Filled(std::uint64_t first, std::uint64_t last, EventRing::Options options = {}) {
  EventRing ring(options);
  for (std::uint64_t id = first; id <= last; ++id)
    ring.Append(id, BytesOf(id), Clears::kNothing);
  return ring;
}

std::string Asked(const EventRing& ring, std::optional<std::uint64_t> start,
                  std::optional<std::uint64_t> end = {}) {
  const EventRing::Range range = ring.Query(start, end);
  switch (range.answer) {
    case RangeAnswer::kEvents: {
      std::string events;
      ring.Copy(range, events);
      return fmt::format("{} last {}", events, range.last);
    }
    case RangeAnswer::kSnapshot:
      return fmt::format("snapshot last {}", range.last);
    case RangeAnswer::kTooNew:
      return fmt::format("too new {}", range.last);
    case RangeAnswer::kInvalidRange:
      break;
  }
  return "invalid range";
}

TEST(EventRing, RowsL1ToL7) {
  const struct {
    std::string_view name;
    std::uint64_t first;  // 0: an empty ring
    std::optional<std::uint64_t> start;
    std::optional<std::uint64_t> end;
    std::string_view want;
  } rows[] = {
      {"L1 the end bounds nothing", 5, 7, 8, "<7><8><9><10> last 10"},
      {"L2", 5, 5, {}, "<5><6><7><8><9><10> last 10"},
      {"L2 the newest", 5, 10, {}, "<10> last 10"},
      {"L3", 5, 4, {}, "snapshot last 10"},
      {"L4", 5, 11, {}, "too new 10"},
      {"L4 with an end", 5, 11, 20, "too new 10"},
      {"L5", 5, 8, 3, "invalid range"},
      {"L5 empty", 0, 8, 3, "invalid range"},
      {"an end alone is a request for all", 5, {}, 3, "snapshot last 10"},
      {"no start", 5, {}, {}, "snapshot last 10"},
      {"L6", 0, {}, {}, "snapshot last 0"},
      {"L7", 0, 3, {}, "snapshot last 0"},
  };
  for (const auto& row : rows) {
    const EventRing ring = row.first == 0 ? EventRing({}) : Filled(row.first, 10);
    EXPECT_EQ(Asked(ring, row.start, row.end), row.want) << row.name;
  }
}

TEST(EventRing, L8TheOldestGiveWay) {
  const EventRing ring = Filled(1, 1025);
  EXPECT_EQ(ring.size(), 1024u);
  EXPECT_EQ(ring.first(), 2u);
  EXPECT_EQ(Asked(ring, 1), "snapshot last 1025");
  EXPECT_EQ(ring.Query(2, {}).count, 1024u);
}

TEST(EventRing, L9L10AnswersBeginWithTheLastClearOfAll) {
  for (const bool all : {true, false}) {
    EventRing ring({});
    for (std::uint64_t id = 5; id <= 10; ++id) {
      const Clears clears = all ? Clears::kAll : Clears::kDomain;
      ring.Append(id, BytesOf(id), id == 8 ? clears : Clears::kNothing);
    }
    EXPECT_EQ(Asked(ring, 6), all ? "<8><9><10> last 10" : "<6><7><8><9><10> last 10");
    EXPECT_EQ(Asked(ring, 8), "<8><9><10> last 10");
    EXPECT_EQ(Asked(ring, 9), "<9><10> last 10");
  }
}

TEST(EventRing, L11HolesAreCountedAndSteppedOver) {
  EventRing ring({});
  for (const std::uint64_t id : {5u, 6u, 8u})
    ring.Append(id, BytesOf(id), Clears::kNothing);
  EXPECT_EQ(ring.holes(), 1u);
  EXPECT_EQ(Asked(ring, 7), "<8> last 8");
  EXPECT_FALSE(ring.IsPlainTail(5));
  EXPECT_TRUE(ring.IsPlainTail(7));
}

TEST(EventRing, PlainTails) {
  EventRing ring = Filled(5, 10);
  EXPECT_TRUE(ring.IsPlainTail(10));
  EXPECT_TRUE(ring.IsPlainTail(4));
  EXPECT_FALSE(ring.IsPlainTail(3));
  EXPECT_FALSE(ring.IsPlainTail(11));
  ring.Append(11, "!", Clears::kDomain);
  ring.Append(12, "x", Clears::kNothing);
  EXPECT_FALSE(ring.IsPlainTail(10));
  EXPECT_TRUE(ring.IsPlainTail(11));
  EXPECT_TRUE(EventRing({}).IsPlainTail(0));
}

TEST(EventRing, BytesAreBounded) {
  EventRing ring({1'024, 100});
  for (std::uint64_t id = 1; id <= 5; ++id)
    ring.Append(id, std::string(30, 'x'), Clears::kNothing);
  EXPECT_EQ(ring.size(), 3u);
  EXPECT_LE(ring.bytes(), 100u);
  EXPECT_EQ(ring.first(), 3u);
  // One that never fits is not kept, and who wants it takes a snapshot.
  ring.Append(6, std::string(101, 'y'), Clears::kNothing);
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.bytes(), 0u);
  EXPECT_EQ(Asked(ring, 6), "snapshot last 6");
  EXPECT_FALSE(ring.IsPlainTail(5));
  ring.Append(7, BytesOf(7), Clears::kNothing);
  EXPECT_EQ(Asked(ring, 7), "<7> last 7");
  EXPECT_EQ(Asked(ring, 6), "snapshot last 7");
  EXPECT_EQ(ring.holes(), 0u);
}

// Against a plain list: whatever sizes come, what is kept are the newest, whole.
TEST(EventRing, RandomSizesAgainstAList) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    const std::size_t events_max = 1 + rng.Below(20);
    const std::size_t bytes_max = 1 + rng.Below(300'000);
    EventRing ring({events_max, bytes_max});
    std::deque<std::string> list;
    for (std::uint64_t id = 1; id <= 400; ++id) {
      std::string bytes(1 + rng.Below(rng.Below(10) == 0 ? 100'000 : 200),
                        static_cast<char>('a' + id % 26));
      ring.Append(id, bytes, Clears::kNothing);
      list.push_back(std::move(bytes));
      ASSERT_LE(ring.size(), events_max);
      ASSERT_LE(ring.bytes(), bytes_max);
      if (list.back().size() > bytes_max) {
        ASSERT_TRUE(ring.empty());
        continue;
      }
      ASSERT_GE(ring.size(), 1u);
      std::string want;
      for (std::size_t i = list.size() - ring.size(); i < list.size(); ++i)
        want += list[i];
      std::string got;
      ring.Copy(ring.Query(ring.first(), {}), got);
      ASSERT_EQ(got, want) << "seed " << seed << " id " << id;
    }
  }
}

TEST(EventRing, WarmItAllocatesNothing) {
  EventRing ring({64, 4'096});
  std::uint64_t id = 0;
  const auto fill = [&] {
    for (std::size_t i = 0; i < 1'000; ++i)
      ring.Append(++id, std::string_view("0123456789abcdef").substr(i % 10), Clears::kNothing);
  };
  fill();
  EXPECT_EQ(test::AllocationsIn(fill), 0u);
}

TEST(EventRing, OptionsNeedRoom) {
  EXPECT_FALSE((EventRing::Options{0, 1}.Validate()));
  EXPECT_FALSE((EventRing::Options{1, 0}.Validate()));
  EXPECT_TRUE((EventRing::Options{1, 1}.Validate()));
}

}  // namespace
}  // namespace kvr::publish
