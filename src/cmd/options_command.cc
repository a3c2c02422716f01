#include "cmd/options_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "cmd/agent_config.h"
#include "cmd/gateway_config.h"
#include "cmd/indexer_config.h"
#include "cmd/parse_words.h"
#include "cmd/worker_config.h"
#include "config/option_table.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute options";

constexpr std::string_view kIntroduction =
    "<!-- What `kvroute options` prints; a test compares the two. -->\n"
    "# Options\n\n"
    "Every option is a key of the YAML file that `--config` names, an environment variable and a "
    "flag. A flag counts over the environment, the environment over the file, the file over the "
    "default. Keys are nested: `server.port` is `port` in the map `server`. A list in an "
    "environment variable is separated by commas; a switch `--NAME` is turned off by `--no-NAME` "
    "(of two spellings, the last one's). What is unknown or out of range ends the start with an "
    "error that says where it "
    "stands.\n";

template <typename Config>
std::string TableOf() {
  Config config;
  config::OptionTable table;
  config.Bind(table);
  return table.Markdown();
}

int Run(const std::vector<std::string>& words) {
  CLI::App app(
      "Prints docs/configuration.md: every option of the gateway, the indexer and the agent.",
      std::string(kName));
  if (const auto code = ParseWords(app, words)) return *code;
  fmt::print("{}\n## kvroute gateway\n\n{}", kIntroduction, TableOf<GatewayConfig>());
  fmt::print(
      "\nThe engines stand in the file, all that can be said of one in the first entry here; what "
      "has a default may be left out:\n\n```yaml\n{}```\n\n",
      kWorkersExample);
  fmt::print(
      "`--worker` adds one engine: `--worker id=1,url=http://10.0.0.1:8000,model=llama,"
      "block-size=16,events=tcp://10.0.0.1:5557`, several values of a key joined by `+`.\n");
  fmt::print("\n## kvroute indexer\n\n{}", TableOf<IndexerConfig>());
  fmt::print(
      "\n## kvroute agent\n\n{}\n`--worker`, or the first entry of the list `workers` in the file, "
      "says "
      "which engine is followed, as for the gateway. Further ones are sources that tell of the "
      "same "
      "cache, such as a block manager beside the engine, with ids of their own.\n",
      TableOf<AgentConfig>());
  return 0;
}

}  // namespace

const Command kOptionsCommand = {"options",
                                 "every option of the gateway, the indexer and the agent", Run};

}  // namespace kvr::cmd
