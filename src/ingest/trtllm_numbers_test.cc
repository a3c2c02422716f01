#include "ingest/trtllm_numbers.h"

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kvr::ingest {
namespace {

std::string Event(int id, int rank = -1) {
  std::string text = fmt::format(R"({{"event_id":{},"data":{{"type":"removed"}})", id);
  if (rank >= 0) text += fmt::format(R"(,"attention_dp_rank":{})", rank);
  return text + "}";
}

// "0:2 1:1!" is message 0 with two events and message 1 with one, before which the engine
// restarted.
std::string Take(TrtllmNumbers& numbers, std::string_view list) {
  const auto messages = numbers.Take(std::as_bytes(std::span(list)), {});
  if (!messages) return std::string(wire::DecodeErrcName(messages.error().code));
  std::string text;
  for (const TrtllmNumbers::Message& message : *messages) {
    std::size_t events = 0;
    for (std::size_t at = 0; (at = message.payload.find("event_id", at)) != std::string::npos; ++at)
      ++events;
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", message.sequence, events,
                        message.restart ? "!" : "");
  }
  return text;
}

std::string List(std::initializer_list<std::string> events) {
  std::string text = "[";
  for (const std::string& event : events)
    text += (text.size() > 1 ? "," : "") + event;
  return text + "]";
}

TEST(TrtllmNumbers, ListsThatGoOnAreNumberedInOrder) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0), Event(1)})), "0:2");
  EXPECT_EQ(Take(numbers, "[]"), "");
  EXPECT_EQ(Take(numbers, List({Event(2)})), "1:1");
  EXPECT_EQ(Take(numbers, Event(3)), "2:1");
}

TEST(TrtllmNumbers, AMissingBeginningIsAGap) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(5)})), "1:1");
  EXPECT_EQ(Take(numbers, List({Event(6)})), "2:1");
}

TEST(TrtllmNumbers, AHoleBetweenListsOrWithinOneIsAGap) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0)})), "0:1");
  EXPECT_EQ(Take(numbers, List({Event(2), Event(3), Event(7)})), "2:2 4:1");
}

TEST(TrtllmNumbers, ALostListIsAGap) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0)})), "0:1");
  EXPECT_EQ(Take(numbers, "[{"), "bad_json");
  numbers.NoteLoss();
  EXPECT_EQ(Take(numbers, List({Event(1)})), "2:1");
}

TEST(TrtllmNumbers, RanksCountForThemselves) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0, 0), Event(0, 1), Event(1, 0), Event(1, 1)})),
            "0:1 1:1 2:1 3:1");
  EXPECT_EQ(Take(numbers, List({Event(2, 0), Event(3, 0), Event(2, 1)})), "4:2 5:1");
  EXPECT_EQ(Take(numbers, List({Event(4, 1)})), "7:1");
}

TEST(TrtllmNumbers, LowerIdsAreAnotherEngine) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0), Event(1), Event(2)})), "0:3");
  EXPECT_EQ(Take(numbers, List({Event(0)})), "0:1!");
  EXPECT_EQ(Take(numbers, List({Event(1)})), "1:1");
  EXPECT_EQ(Take(numbers, List({Event(1)})), "1:1!");
}

TEST(TrtllmNumbers, LongListsBecomeSeveralMessages) {
  TrtllmNumbers numbers;
  std::string list = "[";
  for (int id = 0; id < 10'000; ++id)
    list += (id == 0 ? "" : ",") + Event(id);
  EXPECT_EQ(Take(numbers, list + "]"), "0:4096 1:4096 2:1808");
  EXPECT_EQ(Take(numbers, List({Event(10'000)})), "3:1");
}

TEST(TrtllmNumbers, EventsWithoutIdsStayTogether) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, R"([{"data":{}},7,{"data":{}}])"), "0:0");
  EXPECT_EQ(Take(numbers, "7"), "bad_json");
  EXPECT_EQ(Take(numbers, ""), "bad_json");
}

}  // namespace
}  // namespace kvr::ingest
