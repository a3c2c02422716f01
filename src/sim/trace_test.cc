#include "sim/trace.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine_core.h"
#include "sim/trace_tokens.h"

namespace kvr::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kDemoTrace[] = KVR_SOURCE_DIR "/data/mooncake_conversation_2000.jsonl";

Trace MustParse(std::string_view text) {
  auto trace = ParseTrace(text, {});
  EXPECT_TRUE(trace.has_value()) << trace.error().message;
  return trace ? *std::move(trace) : Trace{};
}

// A row with the required fields and `more`.
std::string Row(std::string_view more) {
  return fmt::format(R"({{"input_length":600,"output_length":3,"hash_ids":[1,2]{}{}}})",
                     more.empty() ? "" : ",", more) +
         "\n";
}

TEST(Trace, ReadsTheFieldsAndTheirOtherNames) {
  const Trace trace = MustParse(
      R"({"timestamp":1000,"input_length":700,"output_length":5,"hash_ids":[7,8],"priority":-2,)"
      R"("strict_priority":3,"policy_class":"gold","request_id":"a","output_token_ids":[1,2,3,4,5]})"
      "\n\n"
      R"({"created_time":3000.5,"input_tokens":10,"output_tokens":0,"hash_ids":[7],"extra":{"x":1}})");
  ASSERT_THAT(trace.requests, SizeIs(2));
  const TraceRequest& first = trace.requests[0];
  EXPECT_EQ(first.timestamp_ms, 0) << "time starts with the first arrival";
  EXPECT_EQ(first.input_tokens, 700u);
  EXPECT_EQ(first.output_tokens, 5u);
  EXPECT_THAT(first.blocks, ElementsAre(7u, 8u));
  EXPECT_EQ(first.priority, -2);
  EXPECT_EQ(first.strict_priority, 3u);
  EXPECT_EQ(first.policy_class, "gold");
  EXPECT_EQ(first.request_id, "a");
  EXPECT_THAT(first.output_ids, SizeIs(5));
  EXPECT_EQ(trace.requests[1].timestamp_ms, 2000.5);
  EXPECT_EQ(trace.requests[1].output_tokens, 0u);
}

TEST(Trace, M22_LengthsBeyondTheBlocksAreCut) {
  const Trace trace =
      MustParse(R"({"timestamp":0,"input_length":2000,"output_length":1,"hash_ids":[1,2,3]})");
  EXPECT_EQ(trace.requests[0].input_tokens, 1'536u);
}

TEST(Trace, M23_EqualLeadingIdsAreEqualTokensForAnyBlockSize) {
  std::string ids;
  for (int i = 0; i < 12; ++i)
    ids += std::to_string(i) + ",";
  const Trace trace = MustParse(fmt::format(
      "{{\"timestamp\":0,\"input_length\":7000,\"output_length\":1,\"hash_ids\":[{}90,91]}}\n"
      "{{\"timestamp\":1,\"input_length\":6900,\"output_length\":1,\"hash_ids\":[{}80,81]}}",
      ids, ids));
  const auto first = SynthesizePrompt(trace.requests[0], trace.block_tokens, 128'000);
  const auto second = SynthesizePrompt(trace.requests[1], trace.block_tokens, 128'000);
  EXPECT_THAT(first, SizeIs(7'000));
  EXPECT_THAT(second, SizeIs(6'900));
  const auto differ = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  EXPECT_EQ(differ.first - first.begin(), 12 * 512);

  for (const std::uint32_t block_size : {16u, 64u, 256u, 512u}) {
    EngineCore::Options options;
    options.pool.block_size = block_size;
    EngineCore core(options);
    PassResult pass;
    for (std::uint64_t id = 1; id <= 2; ++id) {
      ASSERT_TRUE(
          core.Submit({.id = RequestId{id}, .prompt = id == 1 ? first : second, .max_tokens = 1})
              .has_value());
      core.Pass(pass);
    }
    ASSERT_THAT(pass.admitted, SizeIs(1));
    EXPECT_EQ(pass.admitted[0].cached_tokens, 6'144u);
  }
}

TEST(Trace, PromptsRepeatAndAnotherSeedSharesNothing) {
  const Trace trace = MustParse(Row(R"("timestamp":0)"));
  const auto tokens = SynthesizePrompt(trace.requests[0], 512, 1'000);
  EXPECT_EQ(tokens, SynthesizePrompt(trace.requests[0], 512, 1'000));
  EXPECT_NE(tokens, SynthesizePrompt(trace.requests[0], 512, 1'000, 1));
  EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), 1'000u);
}

TEST(Trace, M25_TurnsWaitForTheOneBefore) {
  const Trace trace = MustParse(
      Row(R"("timestamp":100,"session_id":"s")") + Row(R"("delay":500,"session_id":"s")") +
      Row(R"("timestamp":900,"session_id":7)") + Row(R"("timestamp":1200,"session_id":7)"));
  ASSERT_THAT(trace.requests, SizeIs(4));
  EXPECT_THAT(trace.requests[0].after, IsEmpty());
  EXPECT_THAT(trace.requests[1].after, ElementsAre(0u));
  EXPECT_EQ(trace.requests[1].delay_ms, 500);
  EXPECT_THAT(trace.requests[3].after, ElementsAre(2u));
  EXPECT_EQ(trace.requests[3].delay_ms, 300) << "as long as the timestamps are apart";

  const auto fast = Transform(trace, {.speedup = 10});
  ASSERT_TRUE(fast.has_value());
  EXPECT_EQ(fast->requests[1].delay_ms, 50);
  EXPECT_EQ(fast->requests[2].timestamp_ms, 80);
}

TEST(Trace, WaitsForNamedRequests) {
  const Trace trace = MustParse(
      Row(R"("request_id":"c","wait_for":["a","b"],"delay":5,"tool_wait_ms":20)") +
      Row(R"("timestamp":10,"request_id":"a")") + Row(R"("timestamp":30,"request_id":"b")"));
  ASSERT_THAT(trace.requests, SizeIs(3));
  EXPECT_EQ(trace.requests[2].request_id, "c");
  EXPECT_THAT(trace.requests[2].after, ElementsAre(0u, 1u));
  EXPECT_EQ(trace.requests[2].delay_ms, 25);
  EXPECT_EQ(trace.requests[2].timestamp_ms, 20) << "not before those it waits for";
}

TEST(Trace, OrdersByArrival) {
  const Trace trace = MustParse(Row(R"("timestamp":50,"request_id":"late")") +
                                Row(R"("timestamp":10,"request_id":"early")"));
  EXPECT_EQ(trace.requests[0].request_id, "early");
  EXPECT_EQ(trace.requests[1].timestamp_ms, 40);
}

struct BadTrace {
  const char* name;
  std::string text;
  const char* says;
};

class TraceRefuses : public ::testing::TestWithParam<BadTrace> {};

TEST_P(TraceRefuses, AndSaysWhereAndWhy) {
  const auto trace = ParseTrace(GetParam().text, {});
  ASSERT_FALSE(trace.has_value());
  EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(trace.error().message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, TraceRefuses,
    ::testing::Values(
        BadTrace{"M24_first_turn_delay", Row(R"("timestamp":0,"session_id":"s","delay":5)"),
                 "line 1: `delay`"},
        BadTrace{"M24_negative_delay",
                 Row(R"("timestamp":0,"session_id":"s")") + Row(R"("session_id":"s","delay":-1)"),
                 "line 2: `delay` must not be negative"},
        BadTrace{"M24_delay_beyond_reason",
                 Row(R"("timestamp":0,"session_id":"s")") +
                     Row(R"("session_id":"s","delay":1e308,"tool_wait_ms":1e308)"),
                 "line 2: `delay` must be at most"},
        BadTrace{
            "M26_cycle",
            Row(R"("request_id":"a","wait_for":"b")") + Row(R"("request_id":"b","wait_for":"a")"),
            "cycle"},
        BadTrace{"M26_self", Row(R"("request_id":"a","wait_for":"a")"), "cycle"},
        BadTrace{"M26_unknown_wait_for", Row(R"("wait_for":["x"])"), "line 1: waits for `x`"},
        BadTrace{
            "M26_duplicate_id",
            Row(R"("timestamp":0,"request_id":"a")") + Row(R"("timestamp":0,"request_id":"a")"),
            "line 2: request_id `a`"},
        BadTrace{"M27_output_ids", Row(R"("timestamp":0,"output_token_ids":[1,2])"),
                 "`output_token_ids`"},
        BadTrace{"no_json", Row(R"("timestamp":0)") + "{oops\n", "line 2: no JSON object"},
        BadTrace{"no_object", "[1]\n", "line 1: no JSON object"},
        BadTrace{"no_timestamp", Row(""), "`timestamp` is missing"},
        BadTrace{"timestamp_type", Row(R"("timestamp":"now")"), "`timestamp` must be a number"},
        BadTrace{"no_time_of_turn",
                 Row(R"("timestamp":0,"session_id":"s")") + Row(R"("session_id":"s")"),
                 "line 2: a later turn needs"},
        BadTrace{
            "turn_backwards",
            Row(R"("timestamp":9,"session_id":"s")") + Row(R"("timestamp":8,"session_id":"s")"),
            "line 2: a later turn must not"},
        BadTrace{"no_blocks", R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]})",
                 "`hash_ids`"},
        BadTrace{"no_input", R"({"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[1]})",
                 "`input_length`"},
        BadTrace{"no_output", R"({"timestamp":0,"input_length":1,"hash_ids":[1]})",
                 "`output_length`"},
        BadTrace{"negative_id",
                 R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[-1]})",
                 "`hash_ids` must be an integer"},
        BadTrace{"branches", Row(R"("timestamp":0,"branches":2)"), "`branches` is not supported"}),
    [](const auto& instance) { return instance.param.name; });

TEST(Trace, SaysWhenTheFileCannotBeRead) {
  const auto trace = ReadTrace("/no/such/file", {});
  ASSERT_FALSE(trace.has_value());
  EXPECT_EQ(trace.error().code, ErrorCode::kIo);
}

TEST(Transform, TakesAWindowThenAPrefixOfIt) {
  const Trace trace = MustParse(Row(R"("timestamp":0,"session_id":"s")") +
                                Row(R"("timestamp":100,"session_id":"s")") +
                                Row(R"("timestamp":200)") + Row(R"("timestamp":300)"));
  const auto window = Transform(trace, {.limit = 2, .from_ms = 50, .to_ms = 300});
  ASSERT_TRUE(window.has_value());
  ASSERT_THAT(window->requests, SizeIs(2));
  EXPECT_EQ(window->requests[0].timestamp_ms, 0);
  EXPECT_EQ(window->requests[1].timestamp_ms, 100);
  EXPECT_THAT(window->requests[0].after, IsEmpty()) << "its first turn is not in the window";
  EXPECT_EQ(window->requests[0].delay_ms, 0);
}

TEST(Transform, ScaledLengthsKeepWhatIsShared) {
  const auto read = ReadTrace(kDemoTrace, {});
  ASSERT_TRUE(read.has_value()) << read.error().message;
  const double whole = InfiniteCacheBound(*read, 1).ratio();
  const auto quarter = Transform(*read, {.input_scale = 0.25, .output_scale = 0.5});
  ASSERT_TRUE(quarter.has_value());
  EXPECT_EQ(quarter->block_tokens, 128u);
  EXPECT_NEAR(InfiniteCacheBound(*quarter, 1).ratio(), whole, 0.001);
  EXPECT_EQ(quarter->requests[0].input_tokens, 1'690u);  // of 6,758
  EXPECT_EQ(quarter->requests[0].output_tokens, 250u);
  for (const TraceRequest& request : quarter->requests)
    ASSERT_EQ(request.blocks.size(), (request.input_tokens + 127) / 128);
}

TEST(Transform, RefusesScalesThatMakeNoSense) {
  const Trace trace = MustParse(Row(R"("timestamp":0)"));
  EXPECT_FALSE(Transform(trace, {.input_scale = 0}).has_value());
  EXPECT_FALSE(Transform(trace, {.output_scale = -1}).has_value());
  EXPECT_FALSE(Transform(trace, {.speedup = 0}).has_value());
}

TEST(Trace, TheShippedTraceIsWhatItsReadmeSays) {
  const auto trace = ReadTrace(kDemoTrace, {});
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_THAT(trace->requests, SizeIs(2'000));
  EXPECT_EQ(trace->requests.back().timestamp_ms, 669'000);
  std::uint64_t input = 0, output = 0;
  std::uint32_t longest = 0;
  for (const TraceRequest& request : trace->requests) {
    input += request.input_tokens;
    output += request.output_tokens;
    longest = std::max(longest, request.input_tokens);
  }
  EXPECT_EQ(input / 2'000, 13'720u);
  EXPECT_EQ(output / 2'000, 352u);
  EXPECT_EQ(longest, 123'192u);
}

TEST(CacheBound, CountsWholeBlocksOfEarlierPromptsAndNeverTheLastToken) {
  const auto bound = [](std::string_view text, std::uint32_t block_size) {
    return InfiniteCacheBound(MustParse(text), block_size).cached_tokens;
  };
  const std::string twice =
      R"({"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,2]})"
      "\n"
      R"({"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":[1,2]})";
  EXPECT_EQ(bound(twice, 1), 1'023u);
  EXPECT_EQ(bound(twice, 64), 960u);
  EXPECT_EQ(bound(twice, 512), 512u);
  const std::string partial =
      R"({"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2]})"
      "\n"
      R"({"timestamp":1,"input_length":1500,"output_length":1,"hash_ids":[1,2,3]})";
  EXPECT_EQ(bound(partial, 1), 600u) << "of the partial block only what was there";
  const std::string moved =
      R"({"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,2]})"
      "\n"
      R"({"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":[2,1]})";
  EXPECT_EQ(bound(moved, 1), 0u) << "a block counts only behind the same blocks";
}

// The bound is what an engine with a pool for everything reaches when requests come one by one.
TEST(CacheBound, EqualsAnEngineThatNeverForgets) {
  auto trace = ReadTrace(kDemoTrace, {});
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  trace = Transform(*std::move(trace), {.limit = 300, .input_scale = 0.125});
  ASSERT_TRUE(trace.has_value());
  EngineCore::Options options;
  options.pool.block_size = 16;
  options.pool.blocks_max = 200'000;
  EngineCore core(options);
  std::uint64_t id = 0;
  PassResult pass;
  for (const TraceRequest& request : trace->requests) {
    ASSERT_TRUE(
        core.Submit({.id = RequestId{++id},
                     .prompt = SynthesizePrompt(request, trace->block_tokens, options.vocabulary),
                     .max_tokens = 1})
            .has_value());
    while (!core.idle())
      core.Pass(pass);
  }
  const CacheBound bound = InfiniteCacheBound(*trace, 16);
  EXPECT_EQ(core.stats().prompt_tokens, bound.input_tokens);
  EXPECT_EQ(core.stats().cached_tokens, bound.cached_tokens);
  EXPECT_GT(bound.cached_tokens, 0u);
}

}  // namespace
}  // namespace kvr::sim
