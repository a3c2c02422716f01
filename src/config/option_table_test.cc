#include "config/option_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Policy { kCost, kRoundRobin };

struct Options {
  std::uint16_t port = 8080;
  std::string host = "127.0.0.1";
  bool trace = false;
  double temperature = 0.25;
  std::int32_t bias = -1;
  std::size_t queue_max = 1000;
  Millis timeout{5000};
  std::vector<std::string> models = {"a", "b"};
  Policy policy = Policy::kCost;
  std::string token = "t";
  std::string log_level = "info";
};

// A table over fresh options, as a command would bind them.
struct Bound {
  Options options;
  OptionTable table;
  CLI::App app;

  Bound() {
    table.Bind("server", "port", &options.port, "TCP port; 0 picks a free one").Flag("-p,--port");
    table.Bind("server", "host", &options.host, "Address to bind");
    table.Bind("server", "trace", &options.trace, "Log every request");
    table.Bind("server", "token", &options.token, "Text to show").Was("token");
    table.Bind("sched", "temperature", &options.temperature, "Softmax temperature", 0.0, 1.0);
    table.Bind("sched", "bias", &options.bias, "Bias | of costs", -5, 5);
    table.Bind("sched", "policy", &options.policy, "How a rank is picked",
               {{"cost", Policy::kCost}, {"round_robin", Policy::kRoundRobin}});
    table
        .Bind("sched.queue", "max", &options.queue_max, "Waiting requests", std::size_t{1},
              std::size_t{100000})
        .Unit("requests")
        .Was("queue")
        .Was("sched.queue_size");
    table.Bind("sched.queue", "timeout_ms", &options.timeout, "Longest wait", Millis{1},
               Millis{60000});
    table.Bind("", "models", &options.models, "Models to serve");
    table.Bind("", "log_level", &options.log_level, "Least level that is logged");
    table.AddSubtree("workers", "list of maps", "Workers known at start");
    table.AddFlags(app);
  }

  Result<void> Flags(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return table.LoadFlags();
  }
};

std::string YamlError(std::string_view text) {
  Bound bound;
  const auto loaded = bound.table.LoadYaml(text, "a.yaml");
  EXPECT_FALSE(loaded) << text;
  return loaded ? "" : loaded.error().message;
}

std::string EnvironmentError(const std::string& name, const std::string& value) {
  Bound bound;
  const auto loaded = bound.table.LoadEnvironment({{name, value}});
  EXPECT_FALSE(loaded) << name << "=" << value;
  return loaded ? "" : loaded.error().message;
}

TEST(OptionTable, FileSetsEveryType) {
  Bound bound;
  const auto loaded = bound.table.LoadYaml(
      "server: {port: 9000, host: \"::1\", trace: true}\n"
      "sched:\n"
      "  temperature: 0.5\n"
      "  bias: -3\n"
      "  policy: round_robin\n"
      "  queue: {max: 20, timeout_ms: 15}\n"
      "models: [x]\n"
      "workers: [{url: http://a}]\n",
      "a.yaml");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(bound.options.port, 9000);
  EXPECT_EQ(bound.options.host, "::1");
  EXPECT_TRUE(bound.options.trace);
  EXPECT_EQ(bound.options.temperature, 0.5);
  EXPECT_EQ(bound.options.bias, -3);
  EXPECT_EQ(bound.options.policy, Policy::kRoundRobin);
  EXPECT_EQ(bound.options.queue_max, 20u);
  EXPECT_EQ(bound.options.timeout, Millis{15});
  EXPECT_THAT(bound.options.models, ElementsAre("x"));
  EXPECT_EQ(bound.options.log_level, "info");  // absent means default
  const Node* workers = bound.table.Subtree("workers");
  ASSERT_NE(workers, nullptr);
  EXPECT_EQ(workers->items.at(0).Find("url")->where, "a.yaml:8");
  EXPECT_EQ(bound.table.Subtree("nothing"), nullptr);
}

TEST(OptionTable, FileErrorsNamePlaceKeyAndCure) {
  EXPECT_EQ(YamlError("server:\n  prot: 1\n"),
            "a.yaml:2: unknown key `server.prot`; did you mean `port`?");
  EXPECT_EQ(YamlError("sever:\n  port: 1\n"),
            "a.yaml:1: unknown key `sever`; did you mean `server`?");
  EXPECT_EQ(YamlError("zebra: 1\n"),
            "a.yaml:1: unknown key `zebra`; known: server, sched, models, log_level, workers");
  EXPECT_EQ(YamlError("sched:\n  queue:\n    mox: 1\n"),
            "a.yaml:3: unknown key `sched.queue.mox`; did you mean `max`?");
  EXPECT_EQ(YamlError("server:\n  port: 70000\n"),
            "a.yaml:2: server.port must be a whole number of 0 to 65535, got `70000`");
  EXPECT_EQ(YamlError("server:\n  port: \"80\"\n"),
            "a.yaml:2: server.port must be a whole number of 0 to 65535, got the text \"80\"");
  EXPECT_EQ(YamlError("server:\n  trace: yes\n"),
            "a.yaml:2: server.trace must be true or false, got `yes`");
  EXPECT_EQ(YamlError("server: 1\n"), "a.yaml:1: server must be a map of keys and values");
  EXPECT_EQ(YamlError("- a\n"), "a.yaml:1: must be a map of keys and values");
  EXPECT_EQ(YamlError("sched:\n  policy: costs\n"),
            "a.yaml:2: sched.policy must be one of cost, round_robin, got `costs`");
  EXPECT_EQ(YamlError("sched:\n  queue_size: 15\n"),
            "a.yaml:2: `sched.queue_size` is now `sched.queue.max`; write "
            "`sched: {queue: {max: ...}}`");
  EXPECT_EQ(YamlError("queue: {max: 15}\n"),
            "a.yaml:1: `queue` is now `sched.queue.max`; write `sched: {queue: {max: ...}}`");
  EXPECT_EQ(YamlError("server:\n  port: 1\n  port: 2\n"),
            "a.yaml:3: duplicate key `port`, first at a.yaml:2; keep one");
  EXPECT_EQ(YamlError("server.port: 1\n"),
            "a.yaml:1: keys do not have dots; write `server: {port: ...}`");
  EXPECT_EQ(YamlError("sched:\n  queue.max: 1\n"),
            "a.yaml:2: keys do not have dots; write `sched: {queue: {max: ...}}`");
}

TEST(OptionTable, EnvironmentSetsEveryType) {
  Bound bound;
  const auto loaded = bound.table.LoadEnvironment({{"KVR_SERVER_PORT", "1"},
                                                   {"KVR_SERVER_HOST", ""},
                                                   {"KVR_SERVER_TRACE", "true"},
                                                   {"KVR_SCHED_TEMPERATURE", "1"},
                                                   {"KVR_SCHED_BIAS", "5"},
                                                   {"KVR_SCHED_POLICY", "round_robin"},
                                                   {"KVR_SCHED_QUEUE_MAX", "100"},
                                                   {"KVR_SCHED_QUEUE_TIMEOUT_MS", "60000"},
                                                   {"KVR_MODELS", "x,y"},
                                                   {"PATH", "/bin"},
                                                   {"kvr_other", "1"}});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(bound.options.port, 1);
  EXPECT_EQ(bound.options.host, "");
  EXPECT_TRUE(bound.options.trace);
  EXPECT_EQ(bound.options.temperature, 1.0);
  EXPECT_EQ(bound.options.bias, 5);
  EXPECT_EQ(bound.options.policy, Policy::kRoundRobin);
  EXPECT_EQ(bound.options.queue_max, 100u);
  EXPECT_EQ(bound.options.timeout, Millis{60000});
  EXPECT_THAT(bound.options.models, ElementsAre("x", "y"));
  ASSERT_TRUE(bound.table.LoadEnvironment({{"KVR_MODELS", ""}}));
  EXPECT_TRUE(bound.options.models.empty());
}

TEST(OptionTable, EnvironmentErrorsNameTheVariable) {
  EXPECT_EQ(EnvironmentError("KVR_SERVER_PROT", "1"),
            "unknown environment variable KVR_SERVER_PROT; did you mean `KVR_SERVER_PORT`?");
  EXPECT_EQ(EnvironmentError("KVR_SERVER_PORT", "x"),
            "KVR_SERVER_PORT: server.port must be a whole number of 0 to 65535, got `x`");
  EXPECT_EQ(EnvironmentError("KVR_SERVER_PORT", ""),
            "KVR_SERVER_PORT: server.port must be a whole number of 0 to 65535, got ``");
  EXPECT_EQ(EnvironmentError("KVR_SERVER_TRACE", "1"),
            "KVR_SERVER_TRACE: server.trace must be true or false, got `1`");
  EXPECT_EQ(EnvironmentError("KVR_TOKEN", "x"), "KVR_TOKEN is now KVR_SERVER_TOKEN");
  EXPECT_THAT(EnvironmentError("KVR_WORKERS", "x"), HasSubstr("unknown environment variable"));
  EXPECT_THAT(EnvironmentError("KVR_", "x"), HasSubstr("unknown environment variable KVR_;"));
}

TEST(OptionTable, FlagsSetEveryType) {
  Bound bound;
  const auto loaded =
      bound.Flags({"-p", "1", "--server-host=h", "--server-trace", "--sched-bias", "-5",
                   "--sched-temperature", "0", "--sched-policy=round_robin", "--sched-queue-max",
                   "10", "--models", "x,1", "--models", "y", "--log-level", "debug"});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(bound.options.port, 1);
  EXPECT_EQ(bound.options.host, "h");
  EXPECT_TRUE(bound.options.trace);
  EXPECT_EQ(bound.options.bias, -5);
  EXPECT_EQ(bound.options.temperature, 0.0);
  EXPECT_EQ(bound.options.policy, Policy::kRoundRobin);
  EXPECT_EQ(bound.options.queue_max, 10u);
  EXPECT_THAT(bound.options.models, ElementsAre("x,1", "y"));
  EXPECT_EQ(bound.options.log_level, "debug");
}

TEST(OptionTable, BooleanFlagsHaveANegativeForm) {
  struct Row {
    std::string word;
    bool value;
  };
  for (const Row& row : {Row{"--server-trace", true}, Row{"--no-server-trace", false},
                         Row{"--server-trace=true", true}, Row{"--server-trace=false", false}}) {
    Bound bound;
    bound.options.trace = !row.value;
    ASSERT_TRUE(bound.Flags({row.word})) << row.word;
    EXPECT_EQ(bound.options.trace, row.value) << row.word;
  }
}

TEST(OptionTable, FlagErrorsNameTheFlag) {
  Bound bound;
  EXPECT_EQ(bound.Flags({"--port", "x"}).error().message,
            "--port: server.port must be a whole number of 0 to 65535, got `x`");
  Bound twice;
  EXPECT_THROW(static_cast<void>(twice.Flags({"--port", "1", "--port", "2"})), CLI::ParseError);
  Bound unknown;
  EXPECT_THROW(static_cast<void>(unknown.Flags({"--prot", "1"})), CLI::ParseError);
}

TEST(OptionTable, FormerFlagsNameThePresentOnes) {
  for (const auto& words : {std::vector<std::string>{"--token", "x"},
                            std::vector<std::string>{"--server-host", "h", "--token"}}) {
    Bound bound;
    try {
      static_cast<void>(bound.Flags(words));
      ADD_FAILURE() << "accepted";
    } catch (const CLI::ParseError& error) {
      EXPECT_STREQ(error.what(), "--token is now --server-token");
    }
  }
  EXPECT_EQ(Bound().app.help().find("--token"), std::string::npos);
}

TEST(OptionTable, FlagOverEnvironmentOverFileOverDefault) {
  const std::string path = testing::TempDir() + "/kvr_option_table_test.yaml";
  std::ofstream(path) << "server: {port: 1, host: file}\nsched: {bias: 1}\n";
  Bound bound;
  bound.app.parse(std::vector<std::string>{"3", "--port"});  // CLI11 wants them reversed
  const auto loaded =
      bound.table.Load(path, {{"KVR_SERVER_PORT", "2"}, {"KVR_SERVER_HOST", "environment"}});
  std::remove(path.c_str());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(bound.options.port, 3);
  EXPECT_EQ(bound.options.host, "environment");
  EXPECT_EQ(bound.options.bias, 1);
  EXPECT_EQ(bound.options.temperature, 0.25);
}

TEST(OptionTable, AWrongValueStopsTheStartEvenWhenOverridden) {
  Bound bound;
  bound.app.parse(std::vector<std::string>{"3", "--port"});
  const auto loaded = bound.table.Load("", {{"KVR_SERVER_PORT", "x"}});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("KVR_SERVER_PORT"));
}

TEST(OptionTable, AMissingFileIsAnError) {
  Bound bound;
  const auto loaded = bound.table.Load(testing::TempDir() + "/kvr_no_such_file.yaml", {});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kIo);
}

TEST(OptionTable, EffectiveJsonIsOneNestedLine) {
  Bound bound;
  ASSERT_TRUE(bound.table.LoadYaml("server: {port: 9}\nmodels: [\"q\\\"\"]\n", "a.yaml"));
  EXPECT_EQ(bound.table.EffectiveJson(),
            "{\"server\":{\"port\":9,\"host\":\"127.0.0.1\",\"trace\":false,\"token\":\"t\"},"
            "\"sched\":{\"temperature\":0.25,\"bias\":-1,\"policy\":\"cost\","
            "\"queue\":{\"max\":1000,\"timeout_ms\":5000}},"
            "\"models\":[\"q\\\"\"],\"log_level\":\"info\"}");
}

TEST(OptionTable, MarkdownHasARowPerOption) {
  Bound bound;
  ASSERT_TRUE(bound.table.LoadYaml("server: {port: 9}\n", "a.yaml"));
  const std::string page = bound.table.Markdown();
  for (const std::string_view row :
       {"| `server.port` | `-p,--port` | `KVR_SERVER_PORT` | 0 to 65535 | `8080` | TCP port; 0 "
        "picks a free one |\n",
        "| `server.token` | `--server-token` | `KVR_SERVER_TOKEN` | text | `\"t\"` | "
        "Text to show |\n",
        "| `sched.bias` | `--sched-bias` | `KVR_SCHED_BIAS` | -5 to 5 | `-1` | Bias \\| of costs "
        "|\n",
        "| `sched.queue.max` | `--sched-queue-max` | `KVR_SCHED_QUEUE_MAX` | 1 to 100000, in "
        "requests | `1000` | Waiting requests |\n",
        "| `sched.queue.timeout_ms` | `--sched-queue-timeout-ms` | `KVR_SCHED_QUEUE_TIMEOUT_MS` | "
        "1 to 60000, in ms | `5000` | Longest wait |\n",
        "| `models` | `--models` | `KVR_MODELS` | list of texts | `[\"a\",\"b\"]` | Models to "
        "serve |\n",
        "| `sched.policy` | `--sched-policy` | `KVR_SCHED_POLICY` | cost, round_robin | `\"cost\"` "
        "| How a rank is picked |\n",
        "| `workers` | | | list of maps | | Workers known at start |\n"}) {
    EXPECT_THAT(page, HasSubstr(row));
  }
}

TEST(OptionTable, HelpShowsFlagsBySection) {
  Bound bound;
  const std::string help = bound.app.help();
  EXPECT_THAT(help, HasSubstr("--sched-queue-max"));
  EXPECT_THAT(help, HasSubstr("TCP port; 0 picks a free one"));
  EXPECT_THAT(help, HasSubstr("0 to 65535; default: 8080]"));
}

TEST(OptionTable, EffectiveJsonTakesTheSubtrees) {
  Bound bound;
  const std::string json = bound.table.EffectiveJson({{"workers", "[1]"}});
  EXPECT_TRUE(json.ends_with(",\"workers\":[1]}")) << json;
}

TEST(OptionTableDeathTest, TwoOptionsOfOneNameAreABug) {
  Options options;
  OptionTable table;
  CLI::App app;
  table.Bind("a", "b_c", &options.trace, "");
  table.Bind("a.b", "c", &options.host, "");  // the same environment variable
  EXPECT_DEATH(table.AddFlags(app), "check failed");
}

TEST(KvrEnvironment, HasOnlyOurs) {
  setenv("KVR_OPTION_TABLE_TEST", "1=2", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto environment = KvrEnvironment();
  unsetenv("KVR_OPTION_TABLE_TEST");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(environment, testing::Contains(testing::Pair("KVR_OPTION_TABLE_TEST", "1=2")));
  for (const auto& [name, value] : environment)
    EXPECT_TRUE(name.starts_with("KVR_")) << name;
}

}  // namespace
}  // namespace kvr::config
