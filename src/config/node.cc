#include "config/node.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/text.h"
#include "config/nearest.h"

namespace kvr::config {
namespace {

// What stands there instead of what was wanted, for an error.
std::string Found(const Node& node) {
  static constexpr std::size_t kShownMax = 60;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "has no value; give one, or remove the key to get the default";
    case Node::Kind::kList:
      return "got a list";
    case Node::Kind::kMap:
      return "got a map";
    case Node::Kind::kScalar:
      break;
  }
  const std::string shown = node.text.substr(0, kShownMax);
  return node.quoted ? fmt::format("got the text \"{}\"", shown) : fmt::format("got `{}`", shown);
}

tl::unexpected<Error> FailMust(const Node& node, std::string_view what) {
  if (node.kind == Node::Kind::kNull) return FailAt(node, Found(node));
  return FailAt(node, fmt::format("must be {}, {}", what, Found(node)));
}

template <typename Number>
std::optional<Number> NumberIn(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted) return std::nullopt;
  return ParseNumber<Number>(node.text);
}

template <typename Integer>
Result<Integer> AsInteger(const Node& node, Integer min, Integer max) {
  const auto value = NumberIn<Integer>(node);
  if (value && min <= *value && *value <= max) return *value;
  std::string what = "a whole number";
  if (max != std::numeric_limits<Integer>::max()) {
    what += fmt::format(" of {} to {}", min, max);
  } else if (min != std::numeric_limits<Integer>::min()) {
    what += fmt::format(" of at least {}", min);
  } else if (min == 0) {
    what += " of at least 0";
  }
  return FailMust(node, what);
}

}  // namespace

const Node* Node::Find(std::string_view key) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [key](const Field& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &found->value;
}

tl::unexpected<Error> FailAt(const Node& node, std::string_view message) {
  const std::string_view gap = node.path.empty() ? "" : " ";
  return Fail(ErrorCode::kUnprocessable,
              fmt::format("{}: {}{}{}", node.where, node.path, gap, message));
}

Result<bool> AsBool(const Node& node) {
  if (node.kind == Node::Kind::kScalar && !node.quoted) {
    if (node.text == "true") return true;
    if (node.text == "false") return false;
  }
  return FailMust(node, "true or false");
}

Result<std::int64_t> AsSigned(const Node& node, std::int64_t min, std::int64_t max) {
  return AsInteger(node, min, max);
}

Result<std::uint64_t> AsUnsigned(const Node& node, std::uint64_t min, std::uint64_t max) {
  return AsInteger(node, min, max);
}

Result<double> AsDouble(const Node& node, double min, double max) {
  const auto value = NumberIn<double>(node);
  if (value && std::isfinite(*value) && min <= *value && *value <= max) return *value;
  std::string what = "a number";
  if (max != std::numeric_limits<double>::max()) {
    what += fmt::format(" of {} to {}", min, max);
  } else if (min != std::numeric_limits<double>::lowest()) {
    what += fmt::format(" of at least {}", min);
  }
  return FailMust(node, what);
}

Result<std::string> AsString(const Node& node) {
  if (node.kind != Node::Kind::kScalar) return FailMust(node, "a text");
  return node.text;
}

Result<std::vector<std::string>> AsStrings(const Node& node) {
  if (node.kind != Node::Kind::kList) return FailMust(node, "a list of texts");
  std::vector<std::string> out;
  for (const Node& item : node.items) {
    KVR_TRY(auto text, AsString(item));
    out.push_back(std::move(text));
  }
  return out;
}

Result<Millis> AsMillis(const Node& node, Millis min, Millis max) {
  KVR_TRY(const auto count, AsSigned(node, min.count(), max.count()));
  return Millis{count};
}

Result<std::size_t> AsName(const Node& node, std::span<const std::string_view> names) {
  if (node.kind == Node::Kind::kScalar) {
    const auto found = std::find(names.begin(), names.end(), node.text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  }
  return FailMust(node, fmt::format("one of {}", fmt::join(names, ", ")));
}

Fields::Fields(const Node& node) : node_(node) {
  if (node.kind != Node::Kind::kMap) result_ = FailMust(node, "a map of keys and values");
}

const Node* Fields::Ask(std::string_view key, bool required) {
  asked_.push_back(key);
  if (!result_) return nullptr;
  const Node* found = node_.Find(key);
  if (found == nullptr && required) {
    result_ = FailAt(node_, fmt::format("lacks the key `{}`", key));
    lacks_key_ = true;
  }
  return found;
}

void Fields::Keep(Result<void> result) {
  if (result_ && !result) result_ = std::move(result);
}

Result<void> Fields::Done() {
  if (!result_ && !lacks_key_) return result_;
  for (const Field& field : node_.fields) {
    if (std::find(asked_.begin(), asked_.end(), field.key) != asked_.end()) continue;
    std::vector<std::string> known(asked_.begin(), asked_.end());
    if (node_.where.starts_with("--")) {  // a flag has them with hyphens
      for (std::string& key : known)
        std::replace(key.begin(), key.end(), '_', '-');
    }
    return Fail(ErrorCode::kUnprocessable,
                fmt::format("{}: unknown key `{}`; {}", field.where, field.value.path,
                            Suggest(field.key, known)));
  }
  return result_;
}

Result<void> Fields::Read(const Node& node, bool& out) {
  KVR_TRY(out, AsBool(node));
  return {};
}

Result<void> Fields::Read(const Node& node, double& out, double min, double max) {
  KVR_TRY(out, AsDouble(node, min, max));
  return {};
}

Result<void> Fields::Read(const Node& node, std::string& out) {
  KVR_TRY(out, AsString(node));
  return {};
}

Result<void> Fields::Read(const Node& node, std::vector<std::string>& out) {
  KVR_TRY(out, AsStrings(node));
  return {};
}

Result<void> Fields::Read(const Node& node, Millis& out, Millis min, Millis max) {
  KVR_TRY(out, AsMillis(node, min, max));
  return {};
}

}  // namespace kvr::config
