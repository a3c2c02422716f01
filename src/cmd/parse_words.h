// Command lines the house way: one line on stderr for a usage error, exit code 2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace kvr::cmd {

// Parses `words` with `app`, whose name must be the command's ("kvroute hash"). The exit code when
// the command is done already: 0 after --help was printed, 2 after a usage error was. Nothing when
// it should go on.
std::optional<int> ParseWords(CLI::App& app, const std::vector<std::string>& words);

// For Option::check: a number above 0.
CLI::Validator AboveZero();

// Prints "kvroute hash: MESSAGE" on stderr and returns 2. `message` says what is wrong and how to
// mend it.
int UsageError(std::string_view command, std::string_view message);

}  // namespace kvr::cmd
