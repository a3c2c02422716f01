// Producers beside the engines themselves, and what sets engines apart that share one wire.
#include <string>

#include <gtest/gtest.h>

#include "support/engine_samples.h"
#include "support/json_msgpack.h"
#include "wire/medium.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

std::string Feed(Stream& stream, const std::string& json) {
  return stream.FeedBytes(MsgpackFromJson(json));
}

constexpr std::string_view kDigest =
    "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb";

// A digest has two integer forms, and the bytes do not say which one its engine uses.
TEST(Producers, DigestsAreFoldedAsTheEngineDoes) {
  const std::string store = R"({"type":"BlockStored","block_hashes":[{"$bytes":")" +
                            std::string(kDigest) +
                            R"("}],"parent_block_hash":null,"token_ids":[1,2,3,4],"block_size":4})";
  Stream vllm;
  EXPECT_EQ(vllm.Feed(Batch({store})), "stored device 2164874634404590027=A");
  auto options = StreamOptions();
  options.limits.digests = wire::DigestEnd::kFirst;
  Stream sglang(options);
  EXPECT_EQ(sglang.Feed(Batch({store})), "stored device 14543684119246146921=A");
  // Integers are what they are in both.
  EXPECT_EQ(sglang.Feed(Batch({Rm("14543684119246146921")})),
            "removed device 14543684119246146921");
  // Shorter ones leave no choice.
  const std::string brief = Rm(R"({"$bytes":"010203"})");
  EXPECT_EQ(vllm.Feed(Batch({brief})), "removed device 66051");
  EXPECT_EQ(sglang.Feed(Batch({brief})), "removed device 66051");
}

// LMCache and Mooncake's connector write "cpu", vLLM 0.26 FS and OBJ. They are dropped unless the
// operator says that this worker's are meant.
TEST(Producers, LenientMedia) {
  auto options = StreamOptions();
  options.lenient_media = true;
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"cpu", "host_pinned"}, {"Cpu", "host_pinned"},
      {"gpu", "device"},      {"FS", "disk"},
      {"fs", "disk"},         {"OBJ", "disk"},
      {"storage", "disk"},    {"shared_storage", "external"}};
  for (const auto& [medium, tier] : rows) {
    const std::string event = St("11", "null", kA, R"("medium":")" + std::string(medium) + R"(")");
    Stream lenient(options);
    EXPECT_EQ(lenient.Feed(Batch({event})), "stored " + std::string(tier) + " 11=A") << medium;
    Stream strict;
    EXPECT_EQ(strict.Feed(Batch({event})), "drop 0 unknown_medium") << medium;
  }
  Stream lenient(options);
  for (const std::string medium : {"cuda:0", "GPUS", "cpuu", "a name that is longer than all"})
    EXPECT_EQ(lenient.Feed(Batch({St("11", "null", kA, R"("medium":")" + medium + R"(")")})),
              "drop 0 unknown_medium")
        << medium;
}

// llm-d's file backend.
TEST(Producers, SharedStorage) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", "", R"("medium":"SHARED_STORAGE")")})),
            "named external 11");
}

TEST(Producers, LmcacheChunks) {
  auto options = StreamOptions();
  options.lenient_media = true;
  options.block_size = 0;
  Stream stream(options);
  EXPECT_EQ(
      stream.FeedBytes(SampleByName("vllm-lmcache-cpu-partial-chunk-bytes").payload).substr(0, 39),
      "stored host_pinned 2164874634404590027=");
}

// The master of Mooncake tells of a pool that workers share: no worker's own cache.
TEST(Producers, MooncakeMaster) {
  auto options = StreamOptions();
  options.lenient_media = true;
  Stream stream(options);
  for (const std::string name :
       {"mooncake-master-stored-object-key-only", "mooncake-master-removed"})
    EXPECT_EQ(stream.FeedBytes(SampleByName(name).payload), "drop 0 unsupported_ownership") << name;
  // Its signed twins are one hash.
  EXPECT_EQ(stream.translator().decoded().hashes.at(0), EngineHash{17270480062156288726u});
  EXPECT_EQ(stream.batch().ts, 1700000000250.0);
}

TEST(Producers, Atom) {
  Stream stream;
  EXPECT_EQ(stream.FeedBytes(SampleByName("atom-array-token-offset-index12").payload),
            "stored device <2164874634404590027 17270480062156288726=B");
  EXPECT_EQ(stream.translator().decoded().events.at(0).token_offset, 4u);
  EXPECT_EQ(Feed(stream, R"([1.5,[["BlockTransferred",[11],"REMOTE"],
                             ["BlockStored",[12],null,[1,2,3,4],4,null,"REMOTE"]],0])"),
            "stored external 12=A; drop 0 unknown_event");
}

// Dynamo's relay writes no medium, and several ranks go through one socket.
TEST(Producers, DynamoRelay) {
  Stream stream;
  const auto relayed = [&](int rank) {
    return Feed(stream, R"([1.5,[{"type":"BlockStored","block_hashes":[11],"parent_block_hash":null,
                                "token_ids":[1,2,3,4],"block_size":4}],)" +
                            std::to_string(rank) + "]");
  };
  EXPECT_EQ(relayed(0), "stored device 11=A");
  EXPECT_EQ(relayed(3), "stored @3 device 11=A");
  EXPECT_EQ(relayed(1), "stored @1 device 11=A");
}

}  // namespace
}  // namespace kvr::test
