#include "service/json_body.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http.h"
#include "service/media_type.h"

namespace kvr::service {
namespace {

using ::testing::HasSubstr;

Result<std::unique_ptr<RequestBody>> Parse(std::string_view body) {
  return JsonBody::Parse(body);
}

Result<void> RequireJsonOf(std::string_view content_type) {
  net::HttpRequest request;
  if (!content_type.empty()) request.headers.Set("Content-Type", content_type);
  return RequireJson(request);
}

// "CODE: message", or "ok".
template <typename T>
std::string Outcome(const Result<T>& result) {
  if (result) return "ok";
  return std::string(CodeName(result.error().code)) + ": " + result.error().message;
}

TEST(JsonBody, Row3ContentType) {
  for (const auto* type : {"application/json", "application/json; charset=utf-8",
                           "APPLICATION/Json ;x=y", "application/json\t"}) {
    EXPECT_EQ(Outcome(RequireJsonOf(type)), "ok") << type;
  }
  for (const auto* type : {"", "text/plain", "application/jsonx", "application", ";",
                           "application/x-www-form-urlencoded", "xapplication/json"}) {
    EXPECT_THAT(Outcome(RequireJsonOf(type)), HasSubstr("application/json`")) << type;
    EXPECT_EQ(RequireJsonOf(type).error().code, ErrorCode::kUnsupportedMedia) << type;
  }
}

struct BadText {
  const char* name;
  std::string text;
  const char* part;
};

class JsonBodyBadText : public ::testing::TestWithParam<BadText> {};

TEST_P(JsonBodyBadText, IsBadJson) {
  const auto parsed = Parse(GetParam().text);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kBadJson);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().part));
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i)
    out += text;
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, JsonBodyBadText,
    ::testing::Values(
        BadText{"Row1Open", "{", ""}, BadText{"Row2Empty", "", "empty"},
        BadText{"Row2Blank", " \n", "empty"}, BadText{"Array", "[]", "must be a JSON object"},
        BadText{"Text", "\"x\"", "must be a JSON object"},
        BadText{"Null", "null", "must be a JSON object"}, BadText{"Trailing", "{} 1", ""},
        BadText{"TrailingComma", "{\"a\":1,}", ""}, BadText{"Comment", "{/**/}", ""},
        BadText{"Row11", "{\"a\":" + Repeat("[", 1000) + Repeat("]", 1000) + "}",
                "nests deeper than 64 levels"},
        BadText{"Row11Open", Repeat("[", 100'000), ""}, BadText{"Row12", "{\"a\":\"\xFF\"}", ""},
        BadText{"Row12Surrogate", R"({"a":"\ud800"})", ""},
        BadText{"Row12Control", "{\"a\":\"\x01\"}", ""}, BadText{"Row13NaN", R"({"a":NaN})", ""},
        BadText{"Row13Infinity", R"({"a":Infinity})", ""},
        BadText{"Row13MinusInfinity", R"({"a":-Infinity})", "number"},
        BadText{"Minus", R"({"a":-})", "number"}, BadText{"TwoMinus", R"({"a":--1})", "number"},
        BadText{"LeadingZero", R"({"a":01})", "number"},
        BadText{"MinusLeadingZero", R"({"a":-01})", "number"},
        BadText{"NoFraction", R"({"a":1.})", "number"},
        BadText{"NoFractionExponent", R"({"a":1.e3})", "number"},
        BadText{"NoExponent", R"({"a":1e})", "number"},
        BadText{"NoExponentDigits", R"({"a":1e+})", "number"},
        BadText{"Hex", R"({"a":0x1})", "number"},
        BadText{"MalformedBehindAFarOne", R"({"\\\"-":99999999999999999999,"b":1.})", "number"}),
    [](const auto& row) { return row.param.name; });

TEST(JsonBody, NumbersBeyond64BitsAreNamed) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {R"({"a":18446744073709551616})", "`a`"},
      {R"({"a":-9223372036854775809})", "`a`"},
      {R"({"a":1e999})", "`a`"},
      {R"({"text":"12","b" : [1, "[,", {"x":[1,2]}, 1e999, 2e999]})", "`b`[3]"},
      {R"({"b":[1,{"c":[0,99999999999999999999]}]})", "`b`[1]"},
      {R"({"b":{"c":[0,99999999999999999999]},"d":1e999})", "`b`"},
      {R"({"x-":"\"01","a":[-99999999999999999999]})", "`a`[0]"},
      {R"({"a\"":99999999999999999999})", R"(`a\"`)"},
  };
  for (const auto& [text, where] : rows) {
    EXPECT_EQ(Outcome(Parse(text)),
              "unprocessable: field " + std::string(where) + " holds a number beyond 64 bits")
        << text;
  }
}

TEST(JsonBody, NumbersBeyond64BitsDoNotHideBadJson) {
  for (const auto* text : {R"({"a":99999999999999999999)", R"({"a":1e999]})", R"([1e999])", "1e999",
                           R"({1e999:1})", R"({"a":1e999} x)"}) {
    const auto parsed = Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadJson) << text;
  }
}

}  // namespace
}  // namespace kvr::service
