#include "config/option_table.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "config/nearest.h"
#include "config/yaml.h"

namespace kvr::config {
namespace {

constexpr std::string_view kPrefix = "KVR_";

std::string Join(std::string_view prefix, std::string_view key) {
  return prefix.empty() ? std::string(key) : fmt::format("{}.{}", prefix, key);
}

// "server.port" → "KVR_SERVER_PORT".
std::string EnvironmentName(std::string_view path) {
  std::string out(kPrefix);
  for (const char c : path)
    out += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

// "server.port" → "--server-port".
std::string FlagName(std::string_view path) {
  std::string out = "--";
  for (const char c : path)
    out += c == '.' || c == '_' ? '-' : c;
  return out;
}

// "--port" of "-p,--port".
std::string LongFlag(const std::string& flag) {
  return flag.substr(flag.rfind(',') + 1);
}

Node Scalar(std::string_view where, std::string_view path, std::string_view text) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.where = where;
  node.path = path;
  node.text = text;
  return node;
}

Node List(std::string_view where, std::string_view path, const std::vector<std::string>& texts) {
  Node node;
  node.kind = Node::Kind::kList;
  node.where = where;
  node.path = path;
  for (const auto& text : texts)
    node.items.push_back(Scalar(where, path, text));
  return node;
}

std::vector<std::string> ListItems(std::string_view text) {
  std::vector<std::string> items;
  for (const std::string_view item : Split(text, ',')) {
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

template <typename T>
std::string WrittenJson(const T& value) {
  std::string out;
  JsonWriter(out).Value(value);
  return out;
}

}  // namespace

namespace internal {

std::string Json(std::int64_t value) {
  return WrittenJson(value);
}
std::string Json(std::uint64_t value) {
  return WrittenJson(value);
}
std::string Json(std::string_view value) {
  return WrittenJson(value);
}

std::string RangeText(std::int64_t min, std::int64_t max) {
  return fmt::format("{} to {}", min, max);
}
std::string RangeText(std::uint64_t min, std::uint64_t max) {
  return fmt::format("{} to {}", min, max);
}

std::string AtLeastText(std::int64_t min) {
  return fmt::format("at least {}", min);
}
std::string AtLeastText(std::uint64_t min) {
  return fmt::format("at least {}", min);
}

std::string NamesText(std::span<const std::string_view> names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace internal

Option& Option::Unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}

Option& Option::Flag(std::string flag) {
  flag_ = std::move(flag);
  return *this;
}

Option& Option::Was(std::string path) {
  was_.push_back(std::move(path));
  return *this;
}

std::string Option::Values() const {
  return unit_.empty() ? type_ : fmt::format("{}, in {}", type_, unit_);
}

std::string Option::HelpText() const {
  if (is_bool_) return fmt::format("{} [default: {}]", help_, default_);
  return fmt::format("{} [{}; default: {}]", help_, Values(), default_);
}

OptionTable::OptionTable() = default;
OptionTable::~OptionTable() = default;

Option& OptionTable::Add(std::string section, std::string key, std::string help, std::string type,
                         std::function<Result<void>(const Node&)> read,
                         std::function<std::string()> json) {
  auto option = std::make_unique<Option>();
  option->section_ = std::move(section);
  option->key_ = std::move(key);
  option->path_ = Join(option->section_, option->key_);
  option->environment_ = EnvironmentName(option->path_);
  option->flag_ = FlagName(option->path_);
  option->help_ = std::move(help);
  option->type_ = std::move(type);
  option->read_ = std::move(read);
  option->json_ = std::move(json);
  option->default_ = option->json_();
  options_.push_back(std::move(option));
  return *options_.back();
}

Option& OptionTable::Bind(std::string section, std::string key, bool* field, std::string help) {
  Option& option = Add(
      std::move(section), std::move(key), std::move(help), "true or false",
      [field](const Node& node) -> Result<void> {
        KVR_TRY(*field, AsBool(node));
        return {};
      },
      [field] { return WrittenJson(*field); });
  option.is_bool_ = true;
  return option;
}

Option& OptionTable::Bind(std::string section, std::string key, std::string* field,
                          std::string help) {
  return Add(
      std::move(section), std::move(key), std::move(help), "text",
      [field](const Node& node) -> Result<void> {
        KVR_TRY(*field, AsString(node));
        return {};
      },
      [field] { return WrittenJson(std::string_view(*field)); });
}

Option& OptionTable::Bind(std::string section, std::string key, std::vector<std::string>* field,
                          std::string help) {
  Option& option = Add(
      std::move(section), std::move(key), std::move(help), "list of texts",
      [field](const Node& node) -> Result<void> {
        KVR_TRY(*field, AsStrings(node));
        return {};
      },
      [field] {
        std::string out;
        JsonWriter json(out);
        json.BeginArray();
        for (const auto& text : *field)
          json.Value(std::string_view(text));
        json.EndArray();
        return out;
      });
  option.is_list_ = true;
  return option;
}

Option& OptionTable::Bind(std::string section, std::string key, double* field, std::string help,
                          double min, double max) {
  std::string type = "number";
  if (max != std::numeric_limits<double>::max()) {
    type = fmt::format("{} to {}", min, max);
  } else if (min != std::numeric_limits<double>::lowest()) {
    type = fmt::format("at least {}", min);
  }
  return Add(
      std::move(section), std::move(key), std::move(help), std::move(type),
      [field, min, max](const Node& node) -> Result<void> {
        KVR_TRY(*field, AsDouble(node, min, max));
        return {};
      },
      [field] { return WrittenJson(*field); });
}

Option& OptionTable::Bind(std::string section, std::string key, Millis* field, std::string help,
                          Millis min, Millis max) {
  return Add(
             std::move(section), std::move(key), std::move(help),
             max == Millis::max()
                 ? internal::AtLeastText(std::int64_t{min.count()})
                 : internal::RangeText(std::int64_t{min.count()}, std::int64_t{max.count()}),
             [field, min, max](const Node& node) -> Result<void> {
               KVR_TRY(*field, AsMillis(node, min, max));
               return {};
             },
             [field] { return WrittenJson(std::int64_t{field->count()}); })
      .Unit("ms");
}

void OptionTable::AddSubtree(std::string key, std::string type, std::string help) {
  subtrees_.push_back({std::move(key), std::move(type), std::move(help)});
}

const Node* OptionTable::Subtree(std::string_view key) const {
  return file_.Find(key);
}

void OptionTable::AddFlags(CLI::App& app) {
  CheckUnique();
  for (const auto& option : options_) {
    const std::string group = option->section_.empty() ? "Options" : option->section_;
    const std::string help = option->HelpText();
    auto* values = &option->flag_values_;
    if (option->is_bool_) {
      const std::string name = LongFlag(option->flag_);
      app.add_flag(fmt::format("{},!--no-{}", option->flag_, name.substr(2)), *values, help)
          ->group(group);
      continue;
    }
    auto* flag = app.add_option(option->flag_, *values, help)->group(group)->type_name("");
    flag->allow_extra_args(false);
    if (!option->is_list_) flag->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  AddFormerFlags(app);
}

void OptionTable::AddFormerFlags(CLI::App& app) const {
  for (const auto& option : options_) {
    for (const std::string& path : option->was_) {
      const std::string former = FlagName(path);
      if (app.get_option_no_throw(former) != nullptr) continue;  // still is, or is again, a flag
      const std::string message =
          fmt::format("{} is now {}", former, fmt::join(Split(option->flag_, ','), " or "));
      app.add_flag_callback(former, [message] { throw CLI::ParseError(message, 2); })->group("");
    }
  }
}

Option* OptionTable::FindPath(std::string_view path) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [path](const auto& option) { return option->path_ == path; });
  return found == options_.end() ? nullptr : found->get();
}

const Option* OptionTable::FindFormer(std::string_view path) const {
  for (const auto& option : options_) {
    if (std::find(option->was_.begin(), option->was_.end(), path) != option->was_.end())
      return option.get();
  }
  return nullptr;
}

std::vector<std::string> OptionTable::ChildrenOf(std::string_view prefix) const {
  std::vector<std::string> out;
  const auto add = [&out](std::string child) {
    if (std::find(out.begin(), out.end(), child) == out.end()) out.push_back(std::move(child));
  };
  const std::string start = prefix.empty() ? std::string() : std::string(prefix) + ".";
  for (const auto& option : options_) {
    if (!option->path_.starts_with(start)) continue;
    const std::string rest = option->path_.substr(start.size());
    add(rest.substr(0, rest.find('.')));
  }
  if (prefix.empty()) {
    for (const auto& subtree : subtrees_)
      add(subtree.key);
  }
  return out;
}

namespace {

// How a path is written in a file: `server: {port: ...}`.
std::string Nested(std::string_view path) {
  const auto keys = Split(path, '.');
  return fmt::format("{}: ...{}", fmt::join(keys, ": {"), std::string(keys.size() - 1, '}'));
}

}  // namespace

Result<void> OptionTable::LoadMap(const Node& map, std::string_view prefix) {
  if (map.kind != Node::Kind::kMap) return FailAt(map, "must be a map of keys and values");
  const auto known = ChildrenOf(prefix);
  for (const Field& field : map.fields) {
    const std::string path = Join(prefix, field.key);
    if (std::find(known.begin(), known.end(), field.key) == known.end()) {
      if (const Option* option = FindFormer(path)) {
        return Fail(ErrorCode::kUnprocessable,
                    fmt::format("{}: `{}` is now `{}`; write `{}`", field.where, path,
                                option->path_, Nested(option->path_)));
      }
      if (FindPath(path) != nullptr) {
        return Fail(ErrorCode::kUnprocessable, fmt::format("{}: keys do not have dots; write `{}`",
                                                           field.where, Nested(path)));
      }
      return Fail(ErrorCode::kUnprocessable, fmt::format("{}: unknown key `{}`; {}", field.where,
                                                         path, Suggest(field.key, known)));
    }
    if (Option* option = FindPath(path)) {
      KVR_TRY_VOID(option->read_(field.value));
    } else if (!ChildrenOf(path).empty()) {
      KVR_TRY_VOID(LoadMap(field.value, path));
    }
  }
  return {};
}

Result<void> OptionTable::Load(const std::string& path, const Environment& environment) {
  if (!path.empty()) KVR_TRY_VOID(LoadFile(path));
  KVR_TRY_VOID(LoadEnvironment(environment));
  return LoadFlags();
}

Result<void> OptionTable::LoadFile(const std::string& path) {
  KVR_TRY(file_, ReadYamlFile(path));
  return LoadMap(file_, "");
}

Result<void> OptionTable::LoadYaml(std::string_view text, std::string_view name) {
  KVR_TRY(file_, ParseYaml(text, name));
  return LoadMap(file_, "");
}

Result<void> OptionTable::LoadEnvironment(const Environment& environment) {
  for (const auto& [name, value] : environment) {
    if (!std::string_view(name).starts_with(kPrefix)) continue;
    const auto found =
        std::find_if(options_.begin(), options_.end(),
                     [&name = name](const auto& option) { return option->environment_ == name; });
    if (found == options_.end()) {
      std::vector<std::string> known;
      for (const auto& option : options_) {
        known.push_back(option->environment_);
        for (const std::string& former : option->was_) {
          if (EnvironmentName(former) != name) continue;
          return Fail(ErrorCode::kUnprocessable,
                      fmt::format("{} is now {}", name, option->environment_));
        }
      }
      const std::string nearest = Suggest(name, known);
      const bool found_one = nearest.starts_with("did you mean");
      return Fail(ErrorCode::kUnprocessable,
                  fmt::format("unknown environment variable {}; {}", name,
                              found_one ? nearest : "`kvroute options` lists all there are"));
    }
    Option& option = **found;
    const Node node = option.is_list_ ? List(name, option.path_, ListItems(value))
                                      : Scalar(name, option.path_, value);
    KVR_TRY_VOID(option.read_(node));
  }
  return {};
}

std::vector<std::string> OptionTable::Variables() const {
  std::vector<std::string> names;
  for (const auto& option : options_) {
    names.push_back(option->environment_);
    for (const std::string& former : option->was_)
      names.push_back(EnvironmentName(former));
  }
  return names;
}

Result<void> OptionTable::LoadFlags() {
  for (const auto& option : options_) {
    if (option->flag_values_.empty()) continue;
    const std::string name = LongFlag(option->flag_);
    const Node node = option->is_list_ ? List(name, option->path_, option->flag_values_)
                                       : Scalar(name, option->path_, option->flag_values_.back());
    KVR_TRY_VOID(option->read_(node));
  }
  return {};
}

void OptionTable::CheckUnique() const {
  std::set<std::string> seen;
  for (const auto& option : options_) {
    KVR_CHECK(seen.insert(option->path_).second);
    KVR_CHECK(FindPath(option->section_) == nullptr);
    KVR_CHECK(seen.insert(option->environment_).second);
    for (const std::string_view flag : Split(option->flag_, ','))
      KVR_CHECK(seen.emplace(flag).second);
  }
  for (const auto& subtree : subtrees_)
    KVR_CHECK(seen.insert(subtree.key).second);
}

OptionTable::Environment KvrEnvironment() {
  OptionTable::Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != text.npos)
      out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace kvr::config
