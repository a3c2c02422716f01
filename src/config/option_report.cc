// What the option table tells people: the reference page and the effective configuration.
#include <string>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "config/option_table.h"

namespace kvr::config {
namespace {

// A bar would end the cell.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string OptionTable::Markdown() const {
  std::string out =
      "| key | flag | environment | values | default | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const auto& option : options_) {
    out += fmt::format("| `{}` | `{}` | `{}` | {} | `{}` | {} |\n", option->path_,
                       Cell(option->flag_), option->environment_, Cell(option->Values()),
                       Cell(option->default_), Cell(option->help_));
  }
  for (const auto& subtree : subtrees_) {
    out += fmt::format("| `{}` | | | {} | | {} |\n", subtree.key, Cell(subtree.type),
                       Cell(subtree.help));
  }
  return out;
}

std::string OptionTable::EffectiveJson(const SubtreeJson& subtrees) const {
  std::string out;
  JsonWriter json(out);
  const auto write = [&](const auto& self, std::string_view prefix) -> void {
    json.BeginObject();
    for (const std::string& child : ChildrenOf(prefix)) {
      const std::string path = prefix.empty() ? child : fmt::format("{}.{}", prefix, child);
      if (const Option* option = FindPath(path)) {
        json.Key(child);
        json.Raw(option->json_());
      } else if (!ChildrenOf(path).empty()) {
        json.Key(child);
        self(self, path);
      }
    }
    json.EndObject();
  };
  write(write, "");
  if (subtrees.empty()) return out;
  out.pop_back();
  for (const auto& [key, value] : subtrees)
    out += fmt::format("{}\"{}\":{}", out.size() > 1 ? "," : "", key, value);
  return out + '}';
}

}  // namespace kvr::config
