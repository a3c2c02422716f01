// The subcommands of the kvroute binary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvr::cmd {

// One subcommand. `run` gets the words after the command's name, parses them itself, prints results
// to stdout and errors to stderr, and returns the exit code: 0 done, 1 failed, 2 usage (one line on
// stderr says what is wrong and how to mend it).
struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const std::vector<std::string>& words);
  // It runs until a signal ends it, so that one which comes before it is ready found nothing to do.
  bool serves = false;
};

// All commands, in the order `kvroute --help` shows them.
const std::vector<const Command*>& Commands();

}  // namespace kvr::cmd
