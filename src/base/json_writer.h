// Writes JSON into a string, in one pass and without a tree.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvr {

// Appends `text` as a JSON string with quotes. Control characters, quote and backslash are escaped;
// bytes that are no UTF-8 become U+FFFD, so that the output is always valid JSON.
void AppendJsonString(std::string& out, std::string_view text);

// JsonWriter w(out); w.BeginObject(); w.Key("a"); w.Value(1); w.EndObject();
// Commas are set by the writer. Nesting is the caller's: an unbalanced document is our bug.
// Not thread-safe. Appends to `out`, which must outlive the writer.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }

  void Key(std::string_view name);

  void Value(std::string_view text);
  void Value(const char* text) { Value(std::string_view(text)); }
  void Value(bool value);
  void Value(double value);  // shortest form that reads back equal; null when not finite
  void Value(std::integral auto value) {
    if constexpr (std::signed_integral<decltype(value)>) {
      Signed(static_cast<std::int64_t>(value));
    } else {
      Unsigned(static_cast<std::uint64_t>(value));
    }
  }
  // A list; faster than one by one.
  void Numbers(std::span<const std::uint32_t> values);
  void Null();
  // `json` must be one valid JSON value.
  void Raw(std::string_view json);

  // Key(name) and Value(value) in one call.
  void Field(std::string_view name, const auto& value) {
    Key(name);
    Value(value);
  }

 private:
  void Open(char bracket);
  void Close(char bracket);
  void Separate();
  void Signed(std::int64_t value);
  void Unsigned(std::uint64_t value);

  std::string& out_;
  bool need_comma_ = false;
};

}  // namespace kvr
