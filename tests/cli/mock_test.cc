#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "support/process.h"

namespace kvr::support {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KvrouteMock, SaysWhereEachEngineListensAndEndsOnASignal) {
  Process mock({"mock", "--engines", "2", "--dp-size", "2"});
  for (const std::string name : {"mock-engine-0", "mock-engine-1"}) {
    EXPECT_THAT(mock.WaitForListener(name + "-http"), StartsWith("127.0.0.1:")) << mock.err();
    EXPECT_THAT(mock.WaitForListener(name + "-events"), StartsWith("127.0.0.1:"));
    EXPECT_THAT(mock.WaitForListener(name + "-replay"), StartsWith("127.0.0.1:"));
    EXPECT_THAT(mock.WaitForListener(name + "-events-1"), StartsWith("127.0.0.1:"));
    EXPECT_THAT(mock.WaitForListener(name + "-replay-1"), StartsWith("127.0.0.1:"));
  }
  mock.Signal(SIGTERM);
  EXPECT_EQ(mock.Wait().exit_code, 0);
}

TEST(KvrouteMock, TellsAScriptAllEndpointsInOneLine) {
  Process mock({"mock", "--engines", "3", "--no-replay", "--model", "m", "--json-ready"});
  const std::string line = mock.WaitForLine("{");
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.parse(line);
  std::size_t engines = 0;
  for (const simdjson::dom::element engine : root["engines"].get_array()) {
    EXPECT_EQ(std::string_view(engine["name"]), "mock-engine-" + std::to_string(engines++));
    EXPECT_EQ(std::string_view(engine["model"]), "m");
    EXPECT_THAT(std::string(std::string_view(engine["url"])), StartsWith("http://127.0.0.1:"));
    EXPECT_EQ(std::uint64_t(engine["block_size"]), 64u);
    const auto rank = engine["ranks"].at(0);
    EXPECT_THAT(std::string(std::string_view(rank["events"])), StartsWith("tcp://127.0.0.1:"));
    EXPECT_TRUE(rank["replay"].is_null());
  }
  EXPECT_EQ(engines, 3u);
  mock.Signal(SIGINT);
  EXPECT_EQ(mock.Wait().exit_code, 0);
}

TEST(KvrouteMock, UsageErrorsSayWhatToChange) {
  const auto ports = RunKvroute({"mock", "--engines", "2", "--port", "65535"});
  EXPECT_EQ(ports.exit_code, 2);
  EXPECT_THAT(ports.err, HasSubstr("exceed 65535"));
  const auto dialect = RunKvroute({"mock", "--dialect", "vllm-7"});
  EXPECT_EQ(dialect.exit_code, 2);
  EXPECT_THAT(dialect.err, HasSubstr("vllm-0.24, vllm-0.26"));
  for (const char* word : {"--speedup=0", "--speedup=-1", "--decode-speedup=0", "--speedup=nan"}) {
    const auto speed = RunKvroute({"mock", word});
    EXPECT_EQ(speed.exit_code, 2) << word;
    EXPECT_THAT(speed.err, HasSubstr("must be a number above 0")) << word;
    EXPECT_LT(speed.err.size(), 200u) << speed.err;
  }
  EXPECT_EQ(RunKvroute({"mock", "--model", ""}).exit_code, 2);
  const auto block_size = RunKvroute({"mock", "--block-size", "0"});
  EXPECT_EQ(block_size.exit_code, 2);
  EXPECT_THAT(block_size.err, HasSubstr("--block-size"));
}

}  // namespace
}  // namespace kvr::support
