// What every form of a body has in common. The texts are JSON, written anew in the form under test.
#include "service/request_body.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/json_to_msgpack.h"

namespace kvr::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kU64Max = ~std::uint64_t{0};

// "CODE: message", or "ok".
template <typename T>
std::string Outcome(const Result<T>& result) {
  if (result) return "ok";
  return std::string(CodeName(result.error().code)) + ": " + result.error().message;
}

class RequestBodyOf : public ::testing::TestWithParam<BodyForm> {
 protected:
  // The body reads from memory of this object.
  Result<std::unique_ptr<RequestBody>> Parse(std::string_view json) {
    auto& bytes = *texts_.emplace_back(std::make_unique<std::string>(json));
    if (GetParam() == BodyForm::kMsgpack) {
      const std::span text(json.data(), json.size());
      EXPECT_TRUE(wire::JsonToMsgpack().Convert(std::as_bytes(text), {}, bytes)) << json;
    }
    return RequestBody::Parse(bytes, GetParam());
  }
  std::unique_ptr<RequestBody> Parsed(std::string_view json) {
    auto body = Parse(json);
    EXPECT_TRUE(body) << body.error().message;
    return *std::move(body);
  }

 private:
  std::vector<std::unique_ptr<std::string>> texts_;
};

INSTANTIATE_TEST_SUITE_P(Form, RequestBodyOf,
                         ::testing::Values(BodyForm::kJson, BodyForm::kMsgpack),
                         [](const auto& form) {
                           return form.param == BodyForm::kJson ? "Json" : "Msgpack";
                         });

TEST_P(RequestBodyOf, Row7DuplicateFields) {
  EXPECT_EQ(Outcome(Parse(R"({"a":1,"b":2,"a":1})")), "unprocessable: duplicate field `a`");
  EXPECT_EQ(Outcome(Parse(R"({"a":{"b":1,"b":2}})")), "ok");  // only our own fields are ours
}

TEST_P(RequestBodyOf, Unsigned) {
  const auto body = Parsed(
      R"({"a":16,"max":18446744073709551615,"minus":-1,"half":1.5,"whole":2.0,"text":"16",
          "yes":true,"none":null,"list":[1]})");
  EXPECT_EQ(body->Unsigned("a", 16).value(), 16u);
  EXPECT_EQ(Outcome(body->Unsigned("a", 15)),
            "unprocessable: field `a` must be an integer of 0 to 15, not 16");
  EXPECT_EQ(body->Unsigned("max", kU64Max).value(), kU64Max);
  for (const auto* field : {"minus", "half", "whole", "text", "yes", "list"}) {
    EXPECT_THAT(Outcome(body->Unsigned(field, kU64Max)), HasSubstr("unprocessable: field `"))
        << field;
    EXPECT_THAT(Outcome(body->OptionalUnsigned(field, kU64Max)), HasSubstr(field)) << field;
  }
  EXPECT_EQ(Outcome(body->Unsigned("none", 1)), "unprocessable: missing field `none`");
  EXPECT_EQ(Outcome(body->Unsigned("gone", 1)), "unprocessable: missing field `gone`");
  EXPECT_EQ(body->OptionalUnsigned("none", 1).value(), std::nullopt);
  EXPECT_EQ(body->OptionalUnsigned("gone", 1).value(), std::nullopt);
}

TEST_P(RequestBodyOf, LongValuesAreNotRepeatedInErrors) {
  const auto body = Parsed(R"({"a":")" + std::string(100'000, 'x') + R"("})");
  EXPECT_LT(Outcome(body->Unsigned("a", 1)).size(), 300u);
}

TEST_P(RequestBodyOf, StringsAndFlags) {
  const auto body =
      Parsed("{\"s\":\"a\\u00fc\\n\",\"empty\":\"\",\"n\":5,\"t\":true,\"none\":null}");
  EXPECT_EQ(body->String("s").value(), "a\xC3\xBC\n");
  EXPECT_EQ(body->String("empty").value(), "");
  EXPECT_EQ(body->OptionalString("none").value(), std::nullopt);
  EXPECT_EQ(Outcome(body->String("none")), "unprocessable: missing field `none`");
  EXPECT_EQ(Outcome(body->String("n")),
            "unprocessable: field `n` must be a string, not an integer");
  EXPECT_TRUE(body->Flag("t", false).value());
  EXPECT_TRUE(body->Flag("gone", true).value());
  EXPECT_TRUE(body->Flag("none", true).value());
  EXPECT_EQ(Outcome(body->Flag("n", true)),
            "unprocessable: field `n` must be true or false, not an integer");
  EXPECT_TRUE(body->Has("empty"));
  EXPECT_FALSE(body->Has("none"));
  EXPECT_FALSE(body->Has("gone"));
}

TEST_P(RequestBodyOf, Row51Tokens) {
  std::vector<TokenId> tokens = {9};
  EXPECT_EQ(Outcome(Parsed(R"({"t":[]})")->Tokens("t", tokens)), "ok");
  EXPECT_THAT(tokens, IsEmpty());
  EXPECT_EQ(Outcome(Parsed(R"({"t":[0,4294967295]})")->Tokens("t", tokens)), "ok");
  EXPECT_THAT(tokens, ElementsAre(0u, 4294967295u));
  for (const auto* bad : {"-1", "4294967296", "1.5", "1.0", "\"7\"", "null", "true", "[]", "{}"}) {
    EXPECT_EQ(Outcome(Parsed(std::string("{\"t\":[1,") + bad + "]}")->Tokens("t", tokens)),
              "unprocessable: `t`[1] must be an integer of 0 to 4294967295")
        << bad;
  }
  EXPECT_EQ(Outcome(Parsed("{}")->Tokens("t", tokens)), "unprocessable: missing field `t`");
  EXPECT_EQ(Outcome(Parsed(R"({"t":null})")->Tokens("t", tokens)),
            "unprocessable: missing field `t`");
  EXPECT_EQ(Outcome(Parsed(R"({"t":"1"})")->Tokens("t", tokens)),
            "unprocessable: field `t` must be an array of token ids, not a string");
}

TEST_P(RequestBodyOf, Row60Hashes) {
  std::vector<BlockHash> hashes;
  const auto body = Parsed(
      R"({"h":[-1,18446744073709551615,9223372036854775807,-9223372036854775808,0],
          "bad":[1,2.5],"text":5})");
  EXPECT_EQ(Outcome(body->Hashes("h", hashes)), "ok");
  EXPECT_THAT(hashes, ElementsAre(BlockHash{kU64Max}, BlockHash{kU64Max}, BlockHash{kU64Max >> 1},
                                  BlockHash{std::uint64_t{1} << 63}, BlockHash{0}));
  EXPECT_EQ(Outcome(body->Hashes("bad", hashes)),
            "unprocessable: `bad`[1] must be a 64-bit integer, signed or unsigned");
  EXPECT_THAT(Outcome(body->Hashes("text", hashes)), HasSubstr("must be an array of hashes"));
  EXPECT_EQ(Outcome(body->Hashes("gone", hashes)), "unprocessable: missing field `gone`");
}

TEST_P(RequestBodyOf, BlockMmInfos) {
  std::vector<hashing::BlockMm> mm;
  const auto body = Parsed(
      R"({"mm":[null,{"mm_objects":[{"mm_hash":7,"offsets":[[0,1]]},{"mm_hash":5}]},
                {"mm_objects":[]}]})");
  EXPECT_EQ(Outcome(body->BlockMmInfos("mm", mm)), "ok");
  ASSERT_EQ(mm.size(), 2u);
  EXPECT_EQ(mm[0].block, 1u);
  EXPECT_EQ(mm[0].hash, 7u);
  EXPECT_EQ(mm[1].hash, 5u);
  EXPECT_EQ(Outcome(Parsed("{}")->BlockMmInfos("mm", mm)), "ok");
  EXPECT_THAT(mm, IsEmpty());
  for (const auto* bad : {"5", "[5]", "[{}]", R"([{"mm_objects":5}])", R"([{"mm_objects":[5]}])",
                          R"([{"mm_objects":[{}]}])", R"([{"mm_objects":[{"mm_hash":-1}]}])",
                          R"([{"mm_objects":[{"mm_hash":"7"}]}])"}) {
    EXPECT_THAT(Outcome(Parsed(std::string("{\"mm\":") + bad + "}")->BlockMmInfos("mm", mm)),
                HasSubstr("unprocessable: field `mm` must be an array"))
        << bad;
  }
}

TEST_P(RequestBodyOf, Row6UnknownFields) {
  const auto body = Parsed(R"({"z":1,"used":2,"none":null,"ignored":3,"a":4})");
  (void)body->Unsigned("used", 9);
  body->Ignore("ignored");
  EXPECT_THAT(body->UnknownFields(), ElementsAre("z", "none", "a"));
}

}  // namespace
}  // namespace kvr::service
