#include "openai/stream_scanner.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "openai/stream_pieces.h"

namespace kvr::openai {
namespace {

using Facts = ScanFacts;
using Outcome = ScanOutcome;

Outcome Scan(std::string_view stream, const std::vector<std::size_t>& cuts,
             std::size_t line_bytes_max = 1 << 20) {
  return ScanPieces(stream, cuts, line_bytes_max);
}

constexpr std::string_view kChat =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
    "\"content\":\"\"},\"finish_reason\":null}]}\n\n"
    ": keep-alive\n\n"
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"},\"finish_reason\":null}]}\n\n"
    "data: "
    "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"y\"},\"finish_reason\":\"\"}]}\r\n\r\n"
    "data:{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"completion_tokens\":2,"
    "\"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\n"
    "data: [DONE]\n\n";

TEST(StreamScanner, ReadsAChatStream) {
  const Outcome outcome = Scan(kChat, {});
  EXPECT_EQ(outcome.relayed, kChat);
  EXPECT_EQ(outcome.rest, "");
  const Facts want{2, 2, 1, true, false, true, 0, 0, Usage{32, 2, 16}};
  EXPECT_EQ(outcome.facts, want);
}

TEST(StreamScanner, NoCutChangesAnything) {
  const std::string crlf = [] {
    std::string text(kChat);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
      if (at == 0 || text[at - 1] != '\r') {
        text.insert(at, "\r");
      } else {
        --at;
      }
    }
    return text;
  }();
  for (const std::string_view stream : {kChat, std::string_view(crlf)}) {
    const Outcome whole = Scan(stream, {});
    for (std::size_t cut = 0; cut <= stream.size(); ++cut)
      ASSERT_EQ(Scan(stream, {cut}), whole) << cut;
    std::vector<std::size_t> every;
    for (std::size_t cut = 1; cut < stream.size(); ++cut)
      every.push_back(cut);
    EXPECT_EQ(Scan(stream, every), whole);
    Rng rng(7);
    for (int round = 0; round < 500; ++round) {
      std::vector<std::size_t> cuts(1 + rng.Below(6));
      for (auto& cut : cuts)
        cut = rng.Below(stream.size() + 1);
      std::sort(cuts.begin(), cuts.end());
      ASSERT_EQ(Scan(stream, cuts), whole) << round;
    }
  }
}

TEST(StreamScanner, CutsWithLongLinesKeepTheBytes) {
  const std::string stream = "data: short\n\ndata: " + std::string(100, 'x') +
                             "\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\n";
  const Outcome whole = Scan(stream, {}, 40);
  EXPECT_EQ(whole.relayed, stream);
  EXPECT_EQ(whole.facts.unread, 1u);
  EXPECT_EQ(whole.facts.output_chunks, 1u);
  EXPECT_TRUE(whole.facts.between_events);
  for (std::size_t a = 0; a <= stream.size(); ++a) {
    for (std::size_t b = a; b <= stream.size(); ++b)
      ASSERT_EQ(Scan(stream, {a, b}, 40), whole) << a << ' ' << b;
  }
}

TEST(StreamScanner, HoldsBackAnUnfinishedLine) {
  const Outcome outcome = Scan("data: {\"a\":1}\n\ndata: {\"id\"", {3});
  EXPECT_EQ(outcome.relayed, "data: {\"a\":1}\n\n");
  EXPECT_EQ(outcome.rest, "data: {\"id\"");
  EXPECT_TRUE(outcome.facts.between_events);
  EXPECT_FALSE(Scan("data: {\"a\":1}\n", {}).facts.between_events);
}

TEST(StreamScanner, AGiantLineGoesThroughUnreadInBoundedMemory) {
  StreamScanner scanner({.line_bytes_max = 1'000});
  const std::string piece(700, 'x');
  EXPECT_EQ(scanner.Feed(piece), "");
  EXPECT_EQ(scanner.Feed(piece).size(), 1'400u);  // gives up on the line
  EXPECT_EQ(scanner.Feed(piece), piece);
  EXPECT_FALSE(scanner.between_events());
  EXPECT_EQ(scanner.Feed("\n"), "\n");
  EXPECT_FALSE(scanner.between_events());
  EXPECT_EQ(scanner.Feed("\n"), "\n");
  EXPECT_TRUE(scanner.between_events());
  EXPECT_EQ(scanner.unread_lines(), 1u);
}

TEST(StreamScanner, WhatCountsAsOutput) {
  struct Row {
    const char* name;
    const char* data;
    Facts want;
  };
  const auto facts = [](std::uint64_t chunks, std::uint64_t tokens, std::uint64_t finished) {
    Facts f;
    f.output_chunks = chunks;
    f.output_tokens = tokens;
    f.finished = finished;
    return f;
  };
  const Row rows[] = {
      {"text", R"({"choices":[{"text":"a"}]})", facts(1, 1, 0)},
      {"empty text", R"({"choices":[{"text":""}]})", facts(0, 0, 0)},
      {"role only", R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", facts(0, 0, 0)},
      {"reasoning", R"({"choices":[{"delta":{"reasoning_content":"a"}}]})", facts(1, 1, 0)},
      {"tool call", R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})", facts(1, 1, 0)},
      {"token ids", R"({"choices":[{"text":"","token_ids":[5,6]}]})", facts(1, 2, 0)},
      {"two choices", R"({"choices":[{"text":"a","finish_reason":"length"},{"text":"b"}]})",
       facts(1, 1, 1)},
      {"reason length", R"({"choices":[{"text":"","finish_reason":"length"}]})", facts(0, 0, 1)},
      {"null everything",
       R"({"choices":[{"text":null,"delta":null,"finish_reason":null,"token_ids":null}],"usage":null,"error":null})",
       facts(0, 0, 0)},
      {"choices no array", R"({"choices":7})", facts(0, 0, 0)},
      {"choice no object", R"({"choices":[7,null]})", facts(0, 0, 0)},
  };
  for (const Row& row : rows) {
    const std::string stream = std::string("data: ") + row.data + "\n\n";
    EXPECT_EQ(Scan(stream, {}).facts, row.want) << row.name;
  }
}

TEST(StreamScanner, MalformedDataIsCountedAndPassedOn) {
  for (const char* data : {"{", "", "nonsense", "[1]", "{\"a\":\"\xFF\"}"}) {
    const std::string stream = std::string("data: ") + data + "\n\n";
    const Outcome outcome = Scan(stream, {});
    EXPECT_EQ(outcome.relayed, stream);
    EXPECT_EQ(outcome.facts.malformed, 1u) << data;
  }
}

TEST(StreamScanner, SeesTheEnginesOwnError) {
  EXPECT_TRUE(Scan("data: {\"error\":{\"message\":\"x\"}}\n\n", {}).facts.error);
}

TEST(StreamScanner, NothingFollowsDone) {
  const std::string body = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
  const std::string want = body + "data: [DONE]\n\n";
  for (const std::string_view after :
       {"\n", "\n\n", "\r\n\r\n", "\r\r", "\nevent: x\n\n", "\n\ndata: {\"error\":1}\n\n",
        "\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: half a line"}) {
    const std::string stream = body + "data: [DONE]" + std::string(after);
    const Outcome whole = Scan(stream, {});
    EXPECT_EQ(whole.relayed, want);
    EXPECT_EQ(whole.rest, "");
    EXPECT_TRUE(whole.facts.done);
    EXPECT_TRUE(whole.facts.between_events);
    EXPECT_FALSE(whole.facts.error);
    EXPECT_EQ(whole.facts.output_chunks, 1u);
    for (std::size_t cut = 0; cut <= stream.size(); ++cut)
      ASSERT_EQ(Scan(stream, {cut}), whole) << cut;
  }
}

TEST(StreamScanner, ImplausibleUsageIsPassedOnAndIgnored) {
  const std::string stream =
      "data: {\"choices\":[{\"text\":\"a\"}],"
      "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":18446744073709551615,"
      "\"completion_tokens\":18446744073709551615}}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":1,"
      "\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\n";
  StreamScanner scanner({});
  EXPECT_EQ(scanner.Feed(stream), stream);
  EXPECT_EQ(scanner.implausible(), 2u);
  EXPECT_EQ(scanner.usage(), (Usage{1, 1, std::nullopt}));
  EXPECT_EQ(scanner.output_tokens(), 1u);
}

TEST(StreamScanner, UsageOnEveryChunkKeepsTheLast) {
  const Outcome outcome = Scan(
      "data: "
      "{\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n"
      "data: "
      "{\"choices\":[{\"text\":\"b\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":9}}"
      "\n\n",
      {});
  EXPECT_EQ(outcome.facts.output_chunks, 2u);
  EXPECT_EQ(outcome.facts.output_tokens, 9u);
}

}  // namespace
}  // namespace kvr::openai
