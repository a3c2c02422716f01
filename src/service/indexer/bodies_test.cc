#include "service/indexer/bodies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Bodies, RegisterTakesAllFields) {
  const auto body = ReadRegisterBody(
      R"({"instance_id":18446744073709551615,"endpoint":"tcp://h:1","model_name":"m",
          "block_size":4294967295,"routing_group":"g","dp_rank":4294967295,
          "replay_endpoint":"tcp://h:2","topic":"kv","replace":true,"tenant_id":"t",
          "additional_salt":"s","extra":1})");
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->rank, (Rank{WorkerId{~std::uint64_t{0}}, 4294967295u}));
  EXPECT_EQ(body->partition, (Partition{"m", "g"}));
  EXPECT_EQ(body->source, (fleet::EventSource{"tcp://h:1", "tcp://h:2", "kv"}));
  EXPECT_EQ(body->block_size, 4294967295u);
  EXPECT_TRUE(body->replace);
  EXPECT_TRUE(body->notes.tenant_id);
  EXPECT_THAT(body->notes.unknown_fields, ElementsAre("extra"));
}

TEST(Bodies, RegisterTakesPlaceholders) {
  const std::string head =
      R"({"instance_id":1,"endpoint":"tcp://h:1","model_name":"m","block_size":4)";
  const auto body = ReadRegisterBody(head + R"(,"image_token_id":9,"video_token_id":0})");
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->source.image_token, TokenId{9});
  EXPECT_EQ(body->source.video_token, TokenId{0});
  const auto none = ReadRegisterBody(head + R"(,"image_token_id":null})");
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->source.image_token, std::nullopt);
  for (const std::string bad : {"-1", "4294967296", R"("9")", "1.5"})
    EXPECT_FALSE(ReadRegisterBody(head + R"(,"image_token_id":)" + bad + "}")) << bad;
}

TEST(Bodies, RegisterDefaults) {
  const auto body = ReadRegisterBody(
      R"({"instance_id":0,"endpoint":"","model_name":"m","block_size":16,"dp_rank":null})");
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->rank, Rank{});
  EXPECT_EQ(body->partition.routing_group, "default");
  EXPECT_EQ(body->source, fleet::EventSource{});
  EXPECT_FALSE(body->replace);
  EXPECT_FALSE(body->notes.tenant_id);
  EXPECT_THAT(body->notes.unknown_fields, IsEmpty());
}

TEST(Bodies, UnregisterToldApartFromDefaults) {
  const auto all = ReadUnregisterBody(R"({"instance_id":7,"model_name":"m"})");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->routing_group, std::nullopt);
  EXPECT_EQ(all->dp_rank, std::nullopt);
  const auto one =
      ReadUnregisterBody(R"({"instance_id":7,"model_name":"m","routing_group":"","dp_rank":0})");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->routing_group, "");
  EXPECT_EQ(one->dp_rank, 0u);
}

TEST(Bodies, QueryTakesAllFields) {
  const auto body = ReadQueryBody(
      R"({"token_ids":[1,2],"model_name":"m","lora_name":"l","cache_salt":"s","is_eagle":true,
          "block_mm_infos":[null,{"mm_objects":[{"mm_hash":5}]}],"include_zero":true})");
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_THAT(body->tokens, ElementsAre(1u, 2u));
  EXPECT_EQ(body->lora_name, "l");
  EXPECT_EQ(body->cache_salt, "s");
  EXPECT_TRUE(body->eagle);
  EXPECT_TRUE(body->include_zero);
  ASSERT_EQ(body->mm.size(), 1u);
  EXPECT_EQ(body->mm[0].block, 1u);
}

TEST(Bodies, Row61QueryByHashSaysWhatItsHashesAre) {
  const auto read = [](const std::string& kind) {
    return ReadQueryByHashBody(R"({"block_hashes":[1],"model_name":"m")" + kind + "}");
  };
  EXPECT_FALSE(read("")->are_sequences);
  EXPECT_FALSE(read(R"(,"kind":null)")->are_sequences);
  EXPECT_FALSE(read(R"(,"kind":"block")")->are_sequences);
  EXPECT_TRUE(read(R"(,"kind":"sequence")")->are_sequences);
  EXPECT_EQ(read(R"(,"kind":"tokens")").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read(R"(,"kind":7)").error().code, ErrorCode::kUnprocessable);
}

TEST(Bodies, QueryByHashRefusesASalt) {
  const auto body =
      ReadQueryByHashBody(R"({"block_hashes":[1],"model_name":"m","cache_salt":"s"})");
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(ReadQueryByHashBody(R"({"block_hashes":[-1],"model_name":"m","cache_salt":null})"));
}

TEST(Bodies, NumbersBeyond64BitsAreNamed) {
  const auto message = [](const auto& read) { return read ? "ok" : read.error().message; };
  EXPECT_EQ(message(ReadQueryBody(R"({"model_name":"m","token_ids":[1,18446744073709551616]})")),
            "field `token_ids`[1] holds a number beyond 64 bits");
  EXPECT_EQ(message(ReadQueryByHashBody(R"({"block_hashes":[-9223372036854775809]})")),
            "field `block_hashes`[0] holds a number beyond 64 bits");
  EXPECT_EQ(message(ReadUnregisterBody(R"({"instance_id":18446744073709551616})")),
            "field `instance_id` holds a number beyond 64 bits");
}

}  // namespace
}  // namespace kvr::service
