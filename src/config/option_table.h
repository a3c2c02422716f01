// One table of options, four things made from it: the reader of the configuration file, the reader
// of the environment, the command line flags, and the reference page.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "config/node.h"

namespace CLI {
class App;
}

namespace kvr::config {

// One option, bound to a field of some module's Options.
class Option {
 public:
  Option& Unit(std::string unit);
  // Instead of --SECTION-KEY, for example "--port" or "-p,--port". Errors call it by the last one.
  Option& Flag(std::string flag);
  // A path that the option had before. Whoever still uses it, in the file, the environment or as
  // the flag made of it, is told the present one.
  Option& Was(std::string path);

 private:
  friend class OptionTable;

  // "1 to 65535, in ms", and what --help says.
  [[nodiscard]] std::string Values() const;
  [[nodiscard]] std::string HelpText() const;

  std::string section_;  // "server", "sched.queue" or "" for the top level
  std::string key_;
  std::string path_;         // "server.port"
  std::string environment_;  // "KVR_SERVER_PORT"
  std::string flag_;
  std::string type_;  // for people: "1 to 65535", "true or false"
  std::string unit_;
  std::string help_;
  std::string default_;  // as JSON
  bool is_bool_ = false;
  bool is_list_ = false;
  std::vector<std::string> flag_values_;  // as given on the command line
  std::function<Result<void>(const Node&)> read_;
  std::function<std::string()> json_;
  std::vector<std::string> was_;
};

// Bind every field first, then AddFlags() and parse the command line, then Load(). Fields keep
// their value (the default) unless a source gives another: flag over environment over file over
// default. Absent means default; present but wrong, or unknown, is an error. Bound fields must
// outlive the table. One thread uses it.
class OptionTable {
 public:
  OptionTable();
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Two options with one path, environment variable or flag are a bug of ours.
  Option& Bind(std::string section, std::string key, bool* field, std::string help);
  Option& Bind(std::string section, std::string key, std::string* field, std::string help);
  Option& Bind(std::string section, std::string key, std::vector<std::string>* field,
               std::string help);
  Option& Bind(std::string section, std::string key, double* field, std::string help,
               double min = std::numeric_limits<double>::lowest(),
               double max = std::numeric_limits<double>::max());
  // Its unit is ms.
  Option& Bind(std::string section, std::string key, Millis* field, std::string help,
               Millis min = Millis{0}, Millis max = Millis::max());
  template <std::integral T>
  Option& Bind(std::string section, std::string key, T* field, std::string help,
               T min = std::numeric_limits<T>::min(), T max = std::numeric_limits<T>::max());
  template <typename E>
  requires std::is_enum_v<E> Option& Bind(std::string section, std::string key, E* field,
                                          std::string help,
                                          std::vector<std::pair<std::string_view, E>> names);

  // A top-level key whose value the caller reads himself, such as a list of workers. `type` is for
  // people.
  void AddSubtree(std::string key, std::string type, std::string help);
  // What the file has there, or nullptr. Valid until the next LoadFile() or LoadYaml().
  [[nodiscard]] const Node* Subtree(std::string_view key) const;

  // Adds one flag per option. The table keeps what `app` parses; it must outlive the parsing.
  void AddFlags(CLI::App& app);

  // The variables of all options, former ones included.
  [[nodiscard]] std::vector<std::string> Variables() const;

  using Environment = std::vector<std::pair<std::string, std::string>>;

  // File (none when `path` is empty), environment and flags, in this order.
  Result<void> Load(const std::string& path, const Environment& environment);

  // The steps of Load().
  Result<void> LoadFile(const std::string& path);
  Result<void> LoadYaml(std::string_view text, std::string_view name);
  // Variables that do not start with KVR_ are not ours. A list is separated by commas.
  Result<void> LoadEnvironment(const Environment& environment);
  Result<void> LoadFlags();

  // All options as a Markdown table, one section after the other.
  [[nodiscard]] std::string Markdown() const;
  // The values in force as one line of JSON, nested as in the file, with those of the subtrees,
  // which the caller gives as keys and JSON.
  using SubtreeJson = std::vector<std::pair<std::string, std::string>>;
  [[nodiscard]] std::string EffectiveJson(const SubtreeJson& subtrees = {}) const;

 private:
  struct SubtreeSlot {
    std::string key;
    std::string type;
    std::string help;
  };

  Option& Add(std::string section, std::string key, std::string help, std::string type,
              std::function<Result<void>(const Node&)> read, std::function<std::string()> json);
  [[nodiscard]] Option* FindPath(std::string_view path) const;
  // By a path that it had before; nullptr when there is none.
  [[nodiscard]] const Option* FindFormer(std::string_view path) const;
  void AddFormerFlags(CLI::App& app) const;
  [[nodiscard]] std::vector<std::string> ChildrenOf(std::string_view prefix) const;
  Result<void> LoadMap(const Node& map, std::string_view prefix);
  void CheckUnique() const;

  Node file_;
  std::vector<SubtreeSlot> subtrees_;
  std::vector<std::unique_ptr<Option>> options_;
};

// The variables of this process that start with KVR_.
OptionTable::Environment KvrEnvironment();

namespace internal {

// How values look in JSON and in the reference page.
std::string Json(std::int64_t value);
std::string Json(std::uint64_t value);
std::string Json(std::string_view value);
std::string RangeText(std::int64_t min, std::int64_t max);
std::string RangeText(std::uint64_t min, std::uint64_t max);
std::string AtLeastText(std::int64_t min);
std::string AtLeastText(std::uint64_t min);
std::string NamesText(std::span<const std::string_view> names);

}  // namespace internal

template <std::integral T>
Option& OptionTable::Bind(std::string section, std::string key, T* field, std::string help, T min,
                          T max) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  // A maximum that only the type sets says nothing to people, unless it is a small one.
  const bool open = sizeof(T) >= sizeof(std::uint32_t) && max == std::numeric_limits<T>::max();
  return Add(
      std::move(section), std::move(key), std::move(help),
      open ? internal::AtLeastText(Wide{min}) : internal::RangeText(Wide{min}, Wide{max}),
      [field, min, max](const Node& node) -> Result<void> {
        if constexpr (std::is_signed_v<T>) {
          KVR_TRY(const auto value, AsSigned(node, min, max));
          *field = static_cast<T>(value);
        } else {
          KVR_TRY(const auto value, AsUnsigned(node, min, max));
          *field = static_cast<T>(value);
        }
        return {};
      },
      [field] { return internal::Json(Wide{*field}); });
}

template <typename E>
requires std::is_enum_v<E> Option& OptionTable::Bind(
    std::string section, std::string key, E* field, std::string help,
    std::vector<std::pair<std::string_view, E>> names) {
  std::vector<std::string_view> texts;
  texts.reserve(names.size());
  for (const auto& [text, value] : names)
    texts.push_back(text);
  std::string type = internal::NamesText(texts);
  return Add(
      std::move(section), std::move(key), std::move(help), std::move(type),
      [field, names, texts](const Node& node) -> Result<void> {
        KVR_TRY(const std::size_t index, AsName(node, texts));
        *field = names[index].second;
        return {};
      },
      [field, names] {
        for (const auto& [text, value] : names) {
          if (value == *field) return internal::Json(text);
        }
        return std::string("null");
      });
}

}  // namespace kvr::config
