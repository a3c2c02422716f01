#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cmd/command.h"
#include "cmd/server_main.h"

namespace {

void PrintHelp() {
  std::fputs(
      "kvroute: routes LLM requests to the engine that holds their prefix in its KV cache\n\n"
      "usage: kvroute COMMAND [OPTION]...\n\ncommands:\n",
      stdout);
  for (const auto* command : kvr::cmd::Commands()) {
    std::printf("  %-10.*s %.*s\n", static_cast<int>(command->name.size()), command->name.data(),
                static_cast<int>(command->summary.size()), command->summary.data());
  }
  std::fputs("\n`kvroute COMMAND --help` explains one. `kvroute --version` prints the version.\n",
             stdout);
}

int Run(const std::vector<std::string>& words) {
  if (words.empty()) {
    std::fputs("kvroute: no command given; `kvroute --help` lists them\n", stderr);
    return 2;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    PrintHelp();
    return 0;
  }
  if (words[0] == "--version") {
    std::printf("kvroute %.*s\n", static_cast<int>(kvr::cmd::kVersion.size()),
                kvr::cmd::kVersion.data());
    return 0;
  }
  for (const auto* command : kvr::cmd::Commands()) {
    if (command->name != words[0]) continue;
    kvr::cmd::EndOnSignals(command->serves ? 0 : 1);
    return command->run({words.begin() + 1, words.end()});
  }
  std::fprintf(stderr, "kvroute: no command `%s`; `kvroute --help` lists them\n", words[0].c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvroute: %s\n", error.what());
    return 1;
  }
}
