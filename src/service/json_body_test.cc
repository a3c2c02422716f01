#include "service/json_body.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/http.h"
#include "service/media_type.h"

namespace kvr::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kU64Max = ~std::uint64_t{0};

Result<JsonBody> Parse(std::string_view body) {
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

JsonBody Parsed(std::string_view body) {
  auto parsed = Parse(body);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *std::move(parsed);
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

TEST(JsonBody, Row7DuplicateFields) {
  EXPECT_EQ(Outcome(Parse(R"({"a":1,"b":2,"a":1})")), "unprocessable: duplicate field `a`");
  EXPECT_EQ(Outcome(Parse(R"({"a":{"b":1,"b":2}})")), "ok");  // only our own fields are ours
}

TEST(JsonBody, Unsigned) {
  JsonBody body = Parsed(
      R"({"a":16,"max":18446744073709551615,"minus":-1,"half":1.5,"whole":2.0,"text":"16",
          "yes":true,"none":null,"list":[1]})");
  EXPECT_EQ(body.Unsigned("a", 16).value(), 16u);
  EXPECT_EQ(Outcome(body.Unsigned("a", 15)),
            "unprocessable: field `a` must be an integer of 0 to 15, not 16");
  EXPECT_EQ(body.Unsigned("max", kU64Max).value(), kU64Max);
  for (const auto* field : {"minus", "half", "whole", "text", "yes", "list"}) {
    EXPECT_THAT(Outcome(body.Unsigned(field, kU64Max)), HasSubstr("unprocessable: field `"))
        << field;
    EXPECT_THAT(Outcome(body.OptionalUnsigned(field, kU64Max)), HasSubstr(field)) << field;
  }
  EXPECT_EQ(Outcome(body.Unsigned("none", 1)), "unprocessable: missing field `none`");
  EXPECT_EQ(Outcome(body.Unsigned("gone", 1)), "unprocessable: missing field `gone`");
  EXPECT_EQ(body.OptionalUnsigned("none", 1).value(), std::nullopt);
  EXPECT_EQ(body.OptionalUnsigned("gone", 1).value(), std::nullopt);
}

TEST(JsonBody, LongValuesAreNotRepeatedInErrors) {
  JsonBody body = Parsed(R"({"a":")" + std::string(100'000, 'x') + R"("})");
  EXPECT_LT(Outcome(body.Unsigned("a", 1)).size(), 300u);
}

TEST(JsonBody, StringsAndFlags) {
  JsonBody body = Parsed("{\"s\":\"a\\u00fc\\n\",\"empty\":\"\",\"n\":5,\"t\":true,\"none\":null}");
  EXPECT_EQ(body.String("s").value(), "a\xC3\xBC\n");
  EXPECT_EQ(body.String("empty").value(), "");
  EXPECT_EQ(body.OptionalString("none").value(), std::nullopt);
  EXPECT_EQ(Outcome(body.String("none")), "unprocessable: missing field `none`");
  EXPECT_EQ(Outcome(body.String("n")), "unprocessable: field `n` must be a string, not an integer");
  EXPECT_TRUE(body.Flag("t", false).value());
  EXPECT_TRUE(body.Flag("gone", true).value());
  EXPECT_TRUE(body.Flag("none", true).value());
  EXPECT_EQ(Outcome(body.Flag("n", true)),
            "unprocessable: field `n` must be true or false, not an integer");
  EXPECT_TRUE(body.Has("empty"));
  EXPECT_FALSE(body.Has("none"));
  EXPECT_FALSE(body.Has("gone"));
}

TEST(JsonBody, Row51Tokens) {
  std::vector<TokenId> tokens = {9};
  EXPECT_EQ(Outcome(Parsed(R"({"t":[]})").Tokens("t", tokens)), "ok");
  EXPECT_THAT(tokens, IsEmpty());
  EXPECT_EQ(Outcome(Parsed(R"({"t":[0,4294967295]})").Tokens("t", tokens)), "ok");
  EXPECT_THAT(tokens, ElementsAre(0u, 4294967295u));
  for (const auto* bad : {"-1", "4294967296", "1.5", "1.0", "\"7\"", "null", "true", "[]", "{}"}) {
    EXPECT_EQ(Outcome(Parsed(std::string("{\"t\":[1,") + bad + "]}").Tokens("t", tokens)),
              "unprocessable: `t`[1] must be an integer of 0 to 4294967295")
        << bad;
  }
  EXPECT_EQ(Outcome(Parsed("{}").Tokens("t", tokens)), "unprocessable: missing field `t`");
  EXPECT_EQ(Outcome(Parsed(R"({"t":null})").Tokens("t", tokens)),
            "unprocessable: missing field `t`");
  EXPECT_EQ(Outcome(Parsed(R"({"t":"1"})").Tokens("t", tokens)),
            "unprocessable: field `t` must be an array of token ids, not a string");
}

TEST(JsonBody, Row60Hashes) {
  std::vector<BlockHash> hashes;
  JsonBody body = Parsed(
      R"({"h":[-1,18446744073709551615,9223372036854775807,-9223372036854775808,0],
          "bad":[1,2.5],"text":5})");
  EXPECT_EQ(Outcome(body.Hashes("h", hashes)), "ok");
  EXPECT_THAT(hashes, ElementsAre(BlockHash{kU64Max}, BlockHash{kU64Max}, BlockHash{kU64Max >> 1},
                                  BlockHash{std::uint64_t{1} << 63}, BlockHash{0}));
  EXPECT_EQ(Outcome(body.Hashes("bad", hashes)),
            "unprocessable: `bad`[1] must be a 64-bit integer, signed or unsigned");
  EXPECT_THAT(Outcome(body.Hashes("text", hashes)), HasSubstr("must be an array of hashes"));
  EXPECT_EQ(Outcome(body.Hashes("gone", hashes)), "unprocessable: missing field `gone`");
}

TEST(JsonBody, BlockMmInfos) {
  std::vector<hashing::BlockMm> mm;
  JsonBody body = Parsed(
      R"({"mm":[null,{"mm_objects":[{"mm_hash":7,"offsets":[[0,1]]},{"mm_hash":5}]},
                {"mm_objects":[]}]})");
  EXPECT_EQ(Outcome(body.BlockMmInfos("mm", mm)), "ok");
  ASSERT_EQ(mm.size(), 2u);
  EXPECT_EQ(mm[0].block, 1u);
  EXPECT_EQ(mm[0].hash, 7u);
  EXPECT_EQ(mm[1].hash, 5u);
  EXPECT_EQ(Outcome(Parsed("{}").BlockMmInfos("mm", mm)), "ok");
  EXPECT_THAT(mm, IsEmpty());
  for (const auto* bad : {"5", "[5]", "[{}]", R"([{"mm_objects":5}])", R"([{"mm_objects":[5]}])",
                          R"([{"mm_objects":[{}]}])", R"([{"mm_objects":[{"mm_hash":-1}]}])",
                          R"([{"mm_objects":[{"mm_hash":"7"}]}])"}) {
    EXPECT_THAT(Outcome(Parsed(std::string("{\"mm\":") + bad + "}").BlockMmInfos("mm", mm)),
                HasSubstr("unprocessable: field `mm` must be an array"))
        << bad;
  }
}

TEST(JsonBody, Row6UnknownFields) {
  JsonBody body = Parsed(R"({"z":1,"used":2,"none":null,"ignored":3,"a":4})");
  (void)body.Unsigned("used", 9);
  body.Ignore("ignored");
  EXPECT_THAT(body.UnknownFields(), ElementsAre("z", "none", "a"));
}

}  // namespace
}  // namespace kvr::service
