// A value as an operator wrote it, and where: the tree behind a configuration file, an environment
// variable or a flag. Reading a value is strict; each error says where it stands and how to mend
// it.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::config {

struct Field;

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string where;          // "kvroute.yaml:12", "KVR_SERVER_PORT" or "--port"
  std::string path;           // "server.port", "workers[2].url"; empty at the root
  std::string text;           // of a scalar
  bool quoted = false;        // a scalar in quotes is a string, whatever it looks like
  std::vector<Node> items;    // of a list
  std::vector<Field> fields;  // of a map, in the order written; keys are unique

  // The field of a map, or nullptr.
  [[nodiscard]] const Node* Find(std::string_view key) const;
};

struct Field {
  std::string key;
  std::string where;  // of the key
  Node value;
};

// kUnprocessable "WHERE: PATH MESSAGE".
tl::unexpected<Error> FailAt(const Node& node, std::string_view message);

// All of these fail on another kind, on null and on a value out of range.
Result<bool> AsBool(const Node& node);  // true or false
Result<std::int64_t> AsSigned(const Node& node,
                              std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                              std::int64_t max = std::numeric_limits<std::int64_t>::max());
Result<std::uint64_t> AsUnsigned(const Node& node, std::uint64_t min = 0,
                                 std::uint64_t max = std::numeric_limits<std::uint64_t>::max());
// Finite.
Result<double> AsDouble(const Node& node, double min = std::numeric_limits<double>::lowest(),
                        double max = std::numeric_limits<double>::max());
// Any scalar; a plain 12 is the text "12".
Result<std::string> AsString(const Node& node);
Result<std::vector<std::string>> AsStrings(const Node& node);
// A whole number of milliseconds.
Result<Millis> AsMillis(const Node& node, Millis min = Millis{0}, Millis max = Millis::max());
// The position of the text in `names`.
Result<std::size_t> AsName(const Node& node, std::span<const std::string_view> names);

// Reads the fields of one map, for lists of structures:
//
//   Fields fields(node);
//   fields.Required("url", spec.url);
//   fields.Optional("dp_size", spec.dp_size, 1u, 1024u);
//   KVR_TRY_VOID(fields.Done());
//
// The first error is kept and returned by Done(), which also fails on a key that nobody asked for.
// An optional field that is absent leaves its variable alone. `node` must outlive the reader.
class Fields {
 public:
  explicit Fields(const Node& node);

  template <typename T, typename... Limits>
  void Required(std::string_view key, T& out, Limits... limits) {
    if (const Node* node = Ask(key, true)) Keep(Read(*node, out, limits...));
  }
  template <typename T, typename... Limits>
  void Optional(std::string_view key, T& out, Limits... limits) {
    if (const Node* node = Ask(key, false)) Keep(Read(*node, out, limits...));
  }
  // A value that the caller reads himself; nullptr when absent.
  const Node* Raw(std::string_view key) { return Ask(key, false); }

  Result<void> Done();

 private:
  const Node* Ask(std::string_view key, bool required);
  void Keep(Result<void> result);

  static Result<void> Read(const Node& node, bool& out);
  static Result<void> Read(const Node& node, double& out,
                           double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max());
  static Result<void> Read(const Node& node, std::string& out);
  static Result<void> Read(const Node& node, std::vector<std::string>& out);
  static Result<void> Read(const Node& node, Millis& out, Millis min = Millis{0},
                           Millis max = Millis::max());
  template <std::integral T>
  static Result<void> Read(const Node& node, T& out, T min = std::numeric_limits<T>::min(),
                           T max = std::numeric_limits<T>::max()) {
    if constexpr (std::signed_integral<T>) {
      KVR_TRY(const auto value, AsSigned(node, min, max));
      out = static_cast<T>(value);
    } else {
      KVR_TRY(const auto value, AsUnsigned(node, min, max));
      out = static_cast<T>(value);
    }
    return {};
  }

  const Node& node_;
  std::vector<std::string_view> asked_;
  bool lacks_key_ = false;  // so says result_; it may stand there, misspelt
  Result<void> result_;
};

}  // namespace kvr::config
