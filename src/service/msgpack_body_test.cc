#include "service/msgpack_body.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/msgpack_writer.h"

namespace kvr::service {
namespace {

using std::string_literals::operator""s;
using ::testing::HasSubstr;

struct BadBytes {
  const char* name;
  std::string bytes;
  const char* part;
};

class MsgpackBodyBadBytes : public ::testing::TestWithParam<BadBytes> {};

TEST_P(MsgpackBodyBadBytes, AreRefused) {
  const auto parsed = RequestBody::Parse(GetParam().bytes, BodyForm::kMsgpack);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kBadJson);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().part));
}

INSTANTIATE_TEST_SUITE_P(Rows, MsgpackBodyBadBytes,
                         ::testing::Values(BadBytes{"Empty", "", "empty"},
                                           BadBytes{"Array", "\x90", "must be a MessagePack map"},
                                           BadBytes{"Json", "{\"a\":1}",
                                                    "must be a MessagePack map"},
                                           BadBytes{"Unused", "\xc1", "not_msgpack at byte 0"},
                                           BadBytes{"CutMap", "\x81", "truncated"},
                                           BadBytes{"CutValue",
                                                    "\x81\xa1"
                                                    "a\xcd\x01",
                                                    "truncated"},
                                           BadBytes{"MorePairsThanBytes",
                                                    "\xdf\xff\xff\xff\xff\xa1"
                                                    "a\x01",
                                                    "truncated"},
                                           BadBytes{"MoreTokensThanBytes",
                                                    "\x81\xa1"
                                                    "a\xdd\xff\xff\xff\xff\x01",
                                                    "truncated"},
                                           BadBytes{"NumberAsKey", "\x81\x01\x01", "wrong_type"},
                                           BadBytes{"KeyNoUtf8", "\x81\xa1\xff\x01", "bad_text"},
                                           BadBytes{"GoesOn", "\x80\x80",
                                                    "goes on after its MessagePack map, at byte 1"},
                                           BadBytes{"Deep",
                                                    "\x81\xa1"
                                                    "a" +
                                                        std::string(64, '\x91') + "\x01",
                                                    "nests deeper than 64 levels"}),
                         [](const auto& row) { return row.param.name; });

TEST(MsgpackBody, NestsAsDeepAsItMay) {
  const std::string bytes =
      "\x81\xa1"
      "a" +
      std::string(62, '\x91') + "\x01";
  EXPECT_TRUE(RequestBody::Parse(bytes, BodyForm::kMsgpack));
}

TEST(MsgpackBody, BytesAreNoText) {
  for (const std::string& value : {"\xc4\x01x"s, "\xa1\xff"s, "\xd4\x01x"s}) {
    const std::string bytes =
        "\x81\xa1"
        "a" +
        value;
    const auto body = RequestBody::Parse(bytes, BodyForm::kMsgpack);
    ASSERT_TRUE(body);
    const auto text = (*body)->String("a");
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().message, "field `a` must be a string, not bytes");
  }
}

TEST(MsgpackBody, TokensOfEveryWidth) {
  std::string bytes;
  wire::MsgpackWriter writer(bytes);
  writer.Map(1);
  writer.Text("t");
  const std::vector<TokenId> tokens = {0, 127, 128, 255, 256, 65'535, 65'536, 4'294'967'295};
  writer.Array(tokens.size());
  for (const TokenId token : tokens)
    writer.Uint(token);
  const auto body = RequestBody::Parse(bytes, BodyForm::kMsgpack);
  ASSERT_TRUE(body);
  std::vector<TokenId> read;
  ASSERT_TRUE((*body)->Tokens("t", read));
  EXPECT_EQ(read, tokens);
}

}  // namespace
}  // namespace kvr::service
