#include "ingest/trtllm_numbers.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "wire/event_batch.h"
#include "wire/trtllm_json.h"

namespace kvr::ingest {
namespace {

std::string Event(int id, int rank = -1) {
  std::string text =
      fmt::format(R"({{"event_id":{},"data":{{"type":"removed","block_hashes":[]}})", id);
  if (rank >= 0) text += fmt::format(R"(,"attention_dp_rank":{})", rank);
  return text + "}";
}

// "0:2 1:1!" is message 0 with two events and message 1 with one, before which the engine
// restarted.
std::string Take(TrtllmNumbers& numbers, std::string_view list) {
  std::vector<TrtllmNumbers::Message> messages;
  if (!numbers.Take(list, messages) || !numbers.End(messages)) numbers.Lose(messages);
  std::string text;
  for (const TrtllmNumbers::Message& message : messages) {
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

// Nobody knows whose its id is: rank 0 is further, and has not begun anew.
TEST(TrtllmNumbers, AnEventOfAWrongRankIsOfNone) {
  for (const std::string rank : {"-1", "\"1\"", "1.0", "true", "[]"}) {
    SCOPED_TRACE(rank);
    TrtllmNumbers numbers;
    EXPECT_EQ(Take(numbers, List({Event(0, 0), Event(1, 0), Event(0, 1)})), "0:2 1:1");
    EXPECT_EQ(Take(numbers, "[{\"event_id\":1,\"attention_dp_rank\":" + rank + "}]"), "2:1");
    EXPECT_EQ(Take(numbers, List({Event(2, 0)})), "3:1");
  }
}

// ... at once, and only one.
TEST(TrtllmNumbers, ALostListIsAGap) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0, 0), Event(0, 1)})), "0:1 1:1");
  EXPECT_EQ(Take(numbers, "[{"), "3:0");
  EXPECT_EQ(Take(numbers, "<html>"), "") << "the same loss";
  EXPECT_EQ(Take(numbers, List({Event(5, 0), Event(6, 0), Event(2, 2)})), "4:2 5:1");
  EXPECT_EQ(Take(numbers, List({Event(8, 0), Event(1, 1)})), "7:1 8:1");
  EXPECT_EQ(Take(numbers, List({Event(5, 1)})), "10:1") << "missing since";
}

TEST(TrtllmNumbers, OfATornListWhatCameCounts) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, "[" + Event(0) + "," + Event(1) + ",{"), "0:2 2:0");
  EXPECT_EQ(Take(numbers, List({Event(2)})), "3:1");
}

TEST(TrtllmNumbers, BeforeAnyMessageTheIdsTellWhatIsLost) {
  TrtllmNumbers whole;
  EXPECT_EQ(Take(whole, "<"), "");
  EXPECT_EQ(Take(whole, List({Event(0)})), "0:1");
  TrtllmNumbers late;
  EXPECT_EQ(Take(late, "<"), "");
  EXPECT_EQ(Take(late, List({Event(0, 1), Event(3, 0)})), "0:1 2:1");
  TrtllmNumbers without;
  EXPECT_EQ(Take(without, "<"), "");
  EXPECT_EQ(Take(without, R"([{"data":{}}])"), "1:0");
}

TEST(TrtllmNumbers, ALostListMayBeTheFirstOfAnotherEngine) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, List({Event(0), Event(1)})), "0:2");
  EXPECT_EQ(Take(numbers, "<"), "2:0");
  EXPECT_EQ(Take(numbers, List({Event(0)})), "0:1!");
  EXPECT_EQ(Take(numbers, List({Event(2)})), "2:1");
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

// Less than what is taken of an engine at once.
constexpr std::size_t kDecoderBytesMax = 3u << 20;

// What a decoder makes of each message, with limits of its own: "2 1+1bad" is one of two events and
// one of an event and a bad one.
std::string Decoded(std::string_view list) {
  TrtllmNumbers numbers(kDecoderBytesMax - 2);
  std::vector<TrtllmNumbers::Message> messages;
  if (!numbers.Take(list, messages) || !numbers.End(messages)) numbers.Lose(messages);
  wire::TrtllmJsonDecoder decoder;
  const wire::DecodeLimits limits{.payload_bytes_max = kDecoderBytesMax};
  wire::EventBatch batch;
  std::string text;
  for (const TrtllmNumbers::Message& message : messages) {
    text += text.empty() ? "" : " ";
    if (!decoder.Decode(std::as_bytes(std::span(message.payload)), limits, 0, batch)) {
      text += "refused";
      continue;
    }
    text += fmt::format("{}", batch.events.size());
    if (!batch.bad.empty()) text += fmt::format("+{}bad", batch.bad.size());
  }
  return text;
}

// Whatever a long answer is long of, no message of it is beyond what the decoder takes.
TEST(TrtllmNumbers, MessagesAreWithinTheLimitsOfTheDecoder) {
  const auto named = [](int id, std::size_t bytes) {
    return fmt::format(
        R"({{"event_id":{},"data":{{"type":"stored","blocks":[],"lora_name":"{}"}}}})", id,
        std::string(bytes, 'a'));
  };
  std::string many = Event(0);
  for (int id = 1; id <= 7; ++id)
    many += "," + named(id, kDecoderBytesMax / 6);
  EXPECT_EQ(Decoded("[" + many + "]"), "4 3 1") << "more bytes than a decoder takes";
  EXPECT_EQ(Decoded(List({Event(0), named(1, kDecoderBytesMax / 4 * 3), Event(2)})), "1 1 1")
      << "one event beyond it is alone";
  EXPECT_EQ(Decoded(List({Event(0), named(1, kDecoderBytesMax), Event(2)})), "2+1bad")
      << "one beyond what a decoder takes costs itself";
}

// ... and the events around it stay in their message, which has no gap.
TEST(TrtllmNumbers, AnEventThatIsNoJsonCostsItself) {
  const auto bad = [](int id) {
    return fmt::format(R"({{"event_id":{},"data":{{"type":"removed","priority":NaN}}}})", id);
  };
  const struct {
    std::string_view id;
    std::string list;
    std::string messages;
    std::string decoded;
  } rows[] = {
      {"first", List({bad(0), Event(1)}), "1:2", "1+1bad"},
      {"between", List({Event(0), bad(1), Event(2), Event(3)}), "0:4", "3+1bad"},
      {"two", List({Event(0), bad(1), bad(2), Event(3)}), "0:4", "2+2bad"},
      {"last", List({Event(0), bad(1)}), "0:2", "1+1bad"},
      {"alone", List({bad(0)}), "0:1", "0+1bad"},
      {"more is missing", List({Event(0), bad(1), Event(3)}), "0:2 2:1", "1+1bad 1"},
      {"of a rank", List({Event(0, 1), bad(1), Event(2, 1), Event(0, 2)}), "0:3 1:1", "2+1bad 1"},
      {"of another rank", List({Event(0, 1), bad(0), Event(1, 1)}), "0:3", "2+1bad"},
      {"no value at all", List({Event(0), "", Event(1)}), "0:2", "2+1bad"},
      {"the list does not end", "[" + Event(0) + "," + bad(1), "0:1 2:0", "1 0"},
      {"without a list", bad(0), "0:1", "0+1bad"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    TrtllmNumbers numbers;
    EXPECT_EQ(Take(numbers, row.list), row.messages);
    EXPECT_EQ(Decoded(row.list), row.decoded);
  }
}

TEST(TrtllmNumbers, EventsWithoutIdsStayTogether) {
  TrtllmNumbers numbers;
  EXPECT_EQ(Take(numbers, R"([{"data":{}},7,{"data":{}}])"), "0:0");
  EXPECT_EQ(Take(numbers, "7"), "2:0");
  EXPECT_EQ(Take(numbers, ""), "");
  EXPECT_EQ(Take(numbers, R"([{"data":{}}])"), "3:0");
  EXPECT_EQ(Take(numbers, ""), "5:0");
}

}  // namespace
}  // namespace kvr::ingest
