#include "cmd/parse_words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/text.h"
#include "config/nearest.h"

namespace kvr::cmd {
namespace {

// The long flags that help shows.
std::vector<std::string> ShownFlags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames())
      flags.push_back("--" + name);
  }
  return flags;
}

// What is wrong with the first word that looks like a long flag and is none.
std::optional<std::string> UnknownFlag(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with("--")) continue;
    const std::string name = words[i].substr(0, words[i].find('='));
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      const std::string nearest = config::Suggest(name, ShownFlags(app));
      const bool found = nearest.starts_with("did you mean");
      return fmt::format("unknown option `{}`{}", name, found ? "; " + nearest : "");
    }
    // The next word is its value, whatever it looks like.
    if (option->get_items_expected_min() > 0 && name.size() == words[i].size()) ++i;
  }
  return std::nullopt;
}

// The library shows what `--no-NAME` stands for, `--no-NAME{false}`, which nobody can type.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    constexpr std::string_view kMark = "{false}";
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    if (const std::size_t at = name.find(kMark); at != std::string::npos) {
      name.erase(at, kMark.size());
    }
    return name;
  }
};

}  // namespace

CLI::Validator AboveZero() {
  return CLI::Validator(
      [](const std::string& text) {
        const auto value = ParseNumber<double>(text);
        if (value && *value > 0 && std::isfinite(*value)) return std::string();
        return fmt::format("must be a number above 0, got `{}`", text);
      },
      "above 0");
}

std::optional<int> ParseWords(CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    app.formatter(std::make_shared<HelpFormatter>());
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string message = UnknownFlag(app, words).value_or(error.what());
    std::replace(message.begin(), message.end(), '\n', ' ');
    return UsageError(app.get_name(), message + "; `" + app.get_name() + " --help` explains");
  }
}

int UsageError(std::string_view command, std::string_view message) {
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(command.size()), command.data(),
               static_cast<int>(message.size()), message.data());
  return 2;
}

}  // namespace kvr::cmd
