// Mutations that keep JSON well formed: one value is exchanged for another one of the input or for
// an awkward one, and one time in eight a key is.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "value_mutator.h"

namespace kvr::fuzz {
namespace {

constexpr std::array<std::string_view, 32> kAwkwardValues = {
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e400",
    "255",
    "65535",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    R"("")",
    R"("\ud800")",
    R"("\u0000")",
    R"("GPU")",
    R"("device")",
    R"("stored")",
    R"("removed")",
    R"("cleared")",
    R"("updated")",
    R"("c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb")",
    "[]",
    "[null]",
    "[1,2]",
    "[[0,4]]",
    "{}",
    R"({"type":"unique_token","token_id":1,"token_extra_id":0})",
    R"({"type":"mm_key","hash":"ab","start_offset":0})",
    R"({"mm_objects":[{"mm_hash":1,"offsets":[[0,4]]}]})",
};
constexpr std::array<std::string_view, 12> kAwkwardKeys = {
    R"("")",          R"("type")",          R"("data")",       R"("event_id")",
    R"("tokens")",    R"("block_hash")",    R"("mm_keys")",    R"("cache_salt")",
    R"("lora_name")", R"("mm_extra_info")", R"("session_id")", R"("residency_domain")"};

struct Parts {
  std::vector<Part> values;  // containers and what is in them
  std::vector<Part> keys;
};

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// One past the string that begins at `at`; the size of the text when it has no end.
std::size_t EndOfString(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at < text.size() ? at + 1 : text.size();
}

std::size_t EndOfWord(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_of(" \t\r\n,:[]{}\"", at);
  return end == std::string_view::npos ? text.size() : end;
}

bool IsKey(std::string_view text, std::size_t end) {
  while (end < text.size() && IsSpace(text[end]))
    ++end;
  return end < text.size() && text[end] == ':';
}

// What looks like values and keys; whether the text is JSON the target finds out.
Parts PartsOf(std::string_view text) {
  Parts parts;
  std::vector<std::size_t> open;  // of values
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == '[' || c == '{') {
      open.push_back(parts.values.size());
      parts.values.push_back({at, text.size()});
    } else if (c == ']' || c == '}') {
      if (open.empty()) return parts;
      parts.values[open.back()].end = end;
      open.pop_back();
    } else if (c == '"') {
      end = EndOfString(text, at);
      (IsKey(text, end) ? parts.keys : parts.values).push_back({at, end});
    } else if (!IsSpace(c) && c != ',' && c != ':') {
      end = EndOfWord(text, at);
      parts.values.push_back({at, end});
    }
    at = end;
  }
  return parts;
}

}  // namespace

std::vector<std::uint8_t> MutatedJson(std::span<const std::byte> input, Rng& rng) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const Parts parts = PartsOf(text);
  if (!parts.keys.empty() && rng.Below(8) == 0) {
    return WithOneExchanged(input, parts.keys, kAwkwardKeys, rng);
  }
  return WithOneExchanged(input, parts.values, kAwkwardValues, rng);
}

}  // namespace kvr::fuzz
