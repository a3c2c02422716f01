// Producers beside the engines themselves, and what sets engines apart that share one wire.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
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
  options.digests = DigestEnd::kFirst;
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

// Blocks by number and by digest: 1e0b... is the last end of kDigest, c9d5... the first.
constexpr std::string_view kLastEnd = "2164874634404590027";
constexpr std::string_view kFirstEnd = "14543684119246146921";

std::string Bytes(std::string_view hex) {
  return R"({"$bytes":")" + std::string(hex) + R"("})";
}

TEST(DigestEnds, AreFoundOut) {
  const std::string digest = Bytes(kDigest);
  const std::string last(kLastEnd);
  const std::string first(kFirstEnd);
  const std::string cpu = R"("medium":"CPU")";
  const std::string salt = R"("cache_salt":"a")";
  const std::string stored_last = "stored device " + last + "=A";
  const std::string stored_first = "stored device " + first + "=A";
  using Evidence = DigestEvidence;
  const struct {
    std::string_view id;
    std::vector<std::pair<std::string, std::string>> batches;  // an event and what it means
    DigestReading reading;
  } rows[] = {
      {"no digest", {{St("11", "null", kA), "stored device 11=A"}}, {}},
      {"8 bytes are no digest",
       {{St(Bytes("000000000000000b"), "null", kA), "stored device 11=A"}},
       {}},
      {"only digests",
       {{St(digest, "null", kA), stored_last}, {Rm(digest), "removed device " + last}},
       {DigestEnd::kLast, Evidence::kAssumed}},
      {"the number first, then its digest off the device",
       {{St(last, "null", kA), stored_last},
        {St(digest, "null", "", cpu), "named host_pinned " + last}},
       {DigestEnd::kLast, Evidence::kNames}},
      {"the same of the other engine",
       {{St(first, "null", kA), stored_first},
        {St(digest, "null", "", cpu), "named host_pinned " + first},
        {Rm(digest), "removed device " + first}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"removed by digest",
       {{St(first, "null", kA), stored_first}, {Rm(digest), "removed device " + first}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"a digest for a parent",
       {{St(first, "null", kA), stored_first},
        {St("12", digest, kB), "stored device <" + first + " 12=B"}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"removed by number",
       {{St(digest, "null", kA), stored_last}, {Rm(first), "forget; removed device " + first}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"the child names its parent by number",
       {{St(digest, "null", kA), stored_last},
        {St("12", first, kB), "forget; stored device <" + first + " 12=B"}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"a salt of its own, as SGLang sends it",
       {{St(digest, "null", kA, salt), "stored device " + first + "=" + Local('A', "", "a")}},
       {DigestEnd::kFirst, Evidence::kForm}},
      {"bigrams",
       {{St(digest, "null", "[1,2],[2,3],[3,4],[4,5]"),
         "stored device " + first + "=1914873892905420881"}},
       {DigestEnd::kFirst, Evidence::kForm}},
      {"keys, as vLLM sends them",
       {{St(digest, "null", kA, R"("extra_keys":[null])"), stored_last}},
       {DigestEnd::kLast, Evidence::kForm}},
      {"a form that comes late",
       {{St(digest, "null", kA), stored_last},
        {Rm(digest, R"("medium":"CPU_PINNED")"), "forget; removed host_pinned " + first}},
       {DigestEnd::kFirst, Evidence::kForm}},
      {"names overrule the form",
       {{St(first, "null", kA), stored_first},
        {Rm(digest, R"("group_idx":0)"), "removed device " + first}},
       {DigestEnd::kFirst, Evidence::kNames}},
      {"what is proven stays so",
       {{St(last, "null", kA), stored_last},
        {Rm(digest), "removed device " + last},
        {St(digest, "null", kA, salt), "stored device " + last + "=" + Local('A', "", "a")}},
       {DigestEnd::kLast, Evidence::kNames}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    for (const auto& [event, outcome] : row.batches)
      EXPECT_EQ(stream.Feed(Batch({event})), outcome);
    EXPECT_EQ(stream.translator().digests(), row.reading);
    std::uint64_t changes = 0;
    for (const auto& [event, outcome] : row.batches)
      changes += outcome.starts_with("forget") ? 1u : 0u;
    EXPECT_EQ(stream.translator().stats().digest_changes, changes);
    stream.translator().Reset();
    EXPECT_EQ(stream.translator().digests(), DigestReading());
  }
}

// Some producers write 0 for the root, and what is filled up to the length of a digest has zeros.
TEST(DigestEnds, ZeroProvesNothing) {
  const std::string zeros(48, '0');
  const auto digest = [&](const std::string& end) {
    return R"({"$bytes":")" + zeros + end + R"("})";
  };
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St(digest("00000000000003e9"), "null", kA)})),
            "stored device 1001=A");
  EXPECT_EQ(stream.Feed(Batch({St(digest("00000000000003ea"), "0", kB)})),
            "stored device <0 1002=B");
  EXPECT_EQ(stream.Feed(Batch({St("0", "null", kC)})), "stored device 0=C");
  EXPECT_EQ(stream.Feed(Batch({St(digest("00000000000003eb"), digest("00000000000003e9"), kD)})),
            "stored device <1001 1003=D");
  EXPECT_EQ(stream.translator().stats().digest_changes, 0u);
  EXPECT_EQ(stream.translator().digests().evidence, DigestEvidence::kAssumed);
}

TEST(DigestEnds, WithinOneBatch) {
  Stream vllm;
  EXPECT_EQ(vllm.Feed(Batch({St(kLastEnd, "null", kA), Rm(Bytes(kDigest))})),
            "stored device 2164874634404590027=A; removed device 2164874634404590027");
  Stream sglang;
  EXPECT_EQ(sglang.Feed(Batch({St(kFirstEnd, "null", kA), Rm(Bytes(kDigest))})),
            "stored device 14543684119246146921=A; removed device 14543684119246146921");
  // The digest comes before the number.
  Stream later;
  EXPECT_EQ(later.Feed(Batch({St(Bytes(kDigest), "null", kA), Rm(kFirstEnd)})),
            "stored device 14543684119246146921=A; removed device 14543684119246146921");
}

TEST(DigestEnds, WhatIsConfiguredWins) {
  auto options = StreamOptions();
  options.digests = DigestEnd::kLast;
  Stream stream(options);
  EXPECT_EQ(stream.Feed(Batch({St(kFirstEnd, "null", kA), Rm(Bytes(kDigest))})),
            "stored device 14543684119246146921=A; removed device 2164874634404590027");
  const DigestReading configured{DigestEnd::kLast, DigestEvidence::kConfigured};
  EXPECT_EQ(stream.translator().digests(), configured);
  stream.translator().Reset();
  EXPECT_EQ(stream.translator().digests(), configured);
}

// Memory of digests that nothing has proven is bounded, and an undecodable sibling leaves nothing.
TEST(DigestEnds, Bounds) {
  Stream stream;
  for (int i = 0; i < 70; ++i) {
    std::string hashes;
    for (int k = 0; k < 1'000; ++k)
      hashes += (k == 0 ? "" : ",") + Bytes(fmt::format("f{0:015x}{0:016x}", 1'000 * i + k + 1));
    stream.Feed(Batch({St(hashes, "null", "")}));
  }
  const DigestReading assumed{DigestEnd::kLast, DigestEvidence::kAssumed};
  EXPECT_EQ(stream.translator().digests(), assumed);
  EXPECT_EQ(stream.Feed(Batch({Rm(Bytes("f0000000000000010000000000000001"))})),
            "removed device 1");
  EXPECT_EQ(stream.translator().digests(), assumed);
  EXPECT_EQ(stream.translator().stats().forgotten_digests, 70'000u - 65'536u);

  auto none = StreamOptions();
  none.memory.digests_max = 0;
  Stream unproven(none);
  unproven.Feed(Batch({St(Bytes(kDigest), "null", kA)}));
  EXPECT_EQ(unproven.Feed(Batch({Rm(kFirstEnd)})), "removed device " + std::string(kFirstEnd));
  EXPECT_EQ(unproven.translator().digests(), assumed);
  EXPECT_EQ(unproven.translator().stats().forgotten_digests, 1u);

  Stream bad;
  const std::string broken = R"(["BlockStored",[)" + Bytes(kDigest) + R"(],null,["x"],4])";
  EXPECT_EQ(bad.Feed(Batch({broken})), "drop 0 decode_error");
  EXPECT_EQ(bad.translator().digests(), DigestReading());
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
  // Beside a group as well, whose window it is not.
  for (const std::string_view tail : {R"(1,"sliding_window",null,4096)", R"(1,null,null,4096)"}) {
    Stream numbered;
    numbered.Feed(R"([1.5,[["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",null,null,)" +
                  std::string(tail) + "]],0]");
    const wire::EngineEvent& event = numbered.translator().decoded().events.at(0);
    EXPECT_EQ(event.group, 1u);
    EXPECT_EQ(event.window, std::nullopt);
    EXPECT_EQ(event.token_offset, 4096u);
  }
  // A removal has no such number; it names no group either.
  Stream removal;
  EXPECT_EQ(removal.Feed(R"([1.5,[["BlockRemoved",[11],"CPU",null,null,null,4]],0])"),
            "removed host_pinned 11");
  EXPECT_FALSE(removal.translator().decoded().events.at(0).token_offset);
  EXPECT_FALSE(removal.translator().decoded().events.at(0).group);
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
