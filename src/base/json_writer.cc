#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "base/utf8.h"

namespace kvr {
namespace {

// Neither escaped nor looked at twice.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    std::size_t plain = i;
    while (plain < text.size() && IsPlain(text[plain]))
      ++plain;
    out.append(text, i, plain - i);
    i = plain;
    if (i == text.size()) break;
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
      ++i;
    } else if (c == '\n') {
      out += "\\n";
      ++i;
    } else if (byte < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(byte));
      ++i;
    } else if (const std::size_t length = Utf8Length(text, i); length > 0) {
      out.append(text, i, length);
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  out += '"';
}

void JsonWriter::Open(char bracket) {
  Separate();
  out_ += bracket;
  need_comma_ = false;
}

void JsonWriter::Close(char bracket) {
  out_ += bracket;
  need_comma_ = true;
}

void JsonWriter::Separate() {
  if (need_comma_) out_ += ',';
  need_comma_ = true;
}

void JsonWriter::Key(std::string_view name) {
  Separate();
  AppendJsonString(out_, name);
  out_ += ':';
  need_comma_ = false;
}

void JsonWriter::Value(std::string_view text) {
  Separate();
  AppendJsonString(out_, text);
}

void JsonWriter::Value(bool value) {
  Raw(value ? "true" : "false");
}

void JsonWriter::Value(double value) {
  if (!std::isfinite(value)) {
    Null();
    return;
  }
  Separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
}

void JsonWriter::Signed(std::int64_t value) {
  Separate();
  const fmt::format_int digits(value);
  out_.append(digits.data(), digits.size());
}

void JsonWriter::Unsigned(std::uint64_t value) {
  Separate();
  const fmt::format_int digits(value);
  out_.append(digits.data(), digits.size());
}

void JsonWriter::Numbers(std::span<const std::uint32_t> values) {
  constexpr std::size_t kNumberMax = std::numeric_limits<std::uint32_t>::digits10 + 2;  // and comma
  BeginArray();
  std::array<char, 4096> buffer;
  char* at = buffer.data();
  for (const std::uint32_t value : values) {
    if (buffer.data() + buffer.size() - at < static_cast<std::ptrdiff_t>(kNumberMax)) {
      out_.append(buffer.data(), at);
      at = buffer.data();
    }
    if (need_comma_) *at++ = ',';
    need_comma_ = true;
    at = std::to_chars(at, buffer.data() + buffer.size(), value).ptr;
  }
  out_.append(buffer.data(), at);
  EndArray();
}

void JsonWriter::Null() {
  Raw("null");
}

void JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
}

}  // namespace kvr
