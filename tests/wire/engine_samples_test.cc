// Every payload of tests/vectors/engine_samples.jsonl, with what becomes of it.
#include "support/engine_samples.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "hashing/block_hash.h"
#include "hashing/xxh3.h"
#include "support/json_msgpack.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

// The engines' names of the two blocks the samples are made of, per engine.
constexpr std::string_view kV0 = "2164874634404590027";
constexpr std::string_view kV1 = "17270480062156288726";
constexpr std::string_view kS0 = "14958615928728313947";
constexpr std::string_view kS1 = "5674439469042975057";

// "%0" is vLLM's block 0, "$0" SGLang's.
std::string Named(std::string text) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"%0", kV0}, {"%1", kV1}, {"$0", kS0}, {"$1", kS1}};
  for (const auto& [mark, name] : names) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += name.size())
      text.replace(at, mark.size(), name);
  }
  return text;
}

// The hash of a block of these tokens with multimodal objects, a key without a name in its encoded
// form, and names.
std::string Hashed(const std::vector<TokenId>& tokens, std::vector<std::uint64_t> mm,
                   std::string_view unmapped = {}, std::string_view lora = {},
                   std::string_view salt = {}) {
  std::uint64_t seed = hashing::Seed(lora, salt).raw();
  if (!unmapped.empty()) seed += hashing::Xxh3(unmapped, 2);
  return std::to_string(Raw(hashing::HashBlock(tokens, hashing::Seed::FromRaw(seed), mm)));
}

std::string Encoded(std::string_view json) {
  const auto bytes = MsgpackFromJson(json);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const std::map<std::string, std::string>& Expected() {
  static constexpr TokenId kImage = 151655;
  static constexpr std::uint64_t kMm = 0xabababababababab;
  static const std::string embeds0 =
      Encoded(R"({"$bytes":"c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"})");
  static const std::string embeds1 =
      Encoded(R"({"$bytes":"24125b23e68883b5c2141db2959d48433fe6bde2f26bd914efad121d154ab2d6"})");
  static const std::map<std::string, std::string> all = {
      {"vllm-0.9.0-stored-int-norank", "stored device 11529215046068469760=A 1234=B"},
      {"vllm-0.9.0-stored-lora-id",
       "stored device <1234 77=" + NumberedAdapter('C', 7) + " !eligible"},
      {"vllm-0.9.0-cleared", "cleared"},
      {"vllm-0.9.1-stored-rank0", "stored device %0=A"},
      {"vllm-0.9.1-multi-event-rank3",
       "removed @3 device 11; removed @3 device 12; stored @3 device %0=A %1=B; cleared @3"},
      {"vllm-0.10.2-stored-u64-gpu", "stored device %0=A %1=B"},
      {"vllm-0.10.2-removed-gpu", "removed device %1"},
      {"vllm-0.11-gpu-int-plus-cpu-offload-bytes", "stored device %0=A; named host_pinned %0"},
      {"vllm-0.14-stored-lora-name",
       "stored device 10405247036480783630=" + Local('A', "sql-adapter")},
      {"vllm-0.17-extra-keys-all-null", "stored device %0=A %1=B"},
      {"vllm-0.17-cache-salt-first-block-only",
       "stored device %0=" + Local('A', "", "tenant-a") + " %1=" + Local('B', "", "tenant-a")},
      {"vllm-0.17-mm-flat-strings",
       "stored device %0=" + Hashed({1, kImage, kImage, kImage}, {kMm}) + " %1=" +
           Hashed({kImage, kImage, 2, 3}, {kMm}, Encoded(R"("img-uuid-7")")) + " !eligible"},
      {"vllm-0.17-prompt-embeds", "stored device %0=" + Hashed({0, 0, 0, 0}, {}, embeds0) +
                                      " %1=" + Hashed({0, 0, 0, 0}, {}, embeds1) + " !eligible"},
      {"vllm-0.19-mm-id-offset-pairs",
       "stored device %0=" + Hashed({1, kImage, kImage, kImage}, {kMm}) +
           " %1=" + Hashed({kImage, kImage, 2, 3}, {kMm}) + " !eligible"},
      {"vllm-0.20-stored-group0", "stored device %0=A"},
      {"vllm-0.20-removed-group1", "drop 0 unlearned_group"},
      {"vllm-0.22-stored-full-attention", "stored device %0=A %1=B"},
      {"vllm-0.22-sliding-window-masked-blocks", "drop 0 non_main_group"},
      {"vllm-0.24-map-stored", "stored device %0=A %1=B"},
      {"vllm-0.24-map-stored-minimal", "stored device <%0 %1=B"},
      {"vllm-0.24-map-lora-mm-salt",
       "stored device 10405247036480783630=" +
           Hashed({1, kImage, kImage, 2}, {kMm}, {}, "sql-adapter", "tenant-a") + " !eligible"},
      {"vllm-0.24-map-removed", "removed device %1"},
      {"vllm-0.24-map-cpu-placeholder", "named host_pinned %0"},
      {"vllm-0.24-map-cpu-self-describing-chunk2", "stored host_pinned %0=A %1=B"},
      {"vllm-0.24-map-all-masked-empty-hashes", "drop 0 non_main_group"},
      {"vllm-0.24-map-mamba-align-sparse", "drop 0 non_main_group"},
      {"vllm-mooncake-store-connector-cpu-lowercase",
       "drop 0 unknown_medium; drop 1 unknown_medium"},
      {"vllm-lmcache-cpu-partial-chunk-bytes", "drop 0 unknown_medium"},
      {"vllm-0.26-map-fs-locality-local", "drop 0 unknown_medium"},
      {"vllm-0.26-map-obj-no-locality", "drop 0 unknown_medium"},
      {"vllm-0.29-map-ownership", "drop 0 unsupported_ownership; drop 1 unsupported_ownership"},
      {"vllm-main-202609-map-session-id", "stored device %0=A"},
      {"vllm-branch-full-map-batch", "stored device %0=A"},
      {"vllm-future-unknown-event-and-field",
       "stored device %0=A; drop 0 unknown_event"},  // the engine says that a copy is left
      {"sglang-2025-stored-no-medium-no-rank", "stored device $0=A"},
      {"sglang-2025-page1-stored",
       "stored device $0=" + Hashed({1}, {}) + "; stored device <$0 $1=" + Hashed({2}, {})},
      {"sglang-2026-stored-gpu", "stored device $0=A; stored device <$0 $1=B"},
      {"sglang-2026-hicache-backup-demote", "stored @1 host_pinned $0=A; removed @1 device $0"},
      {"sglang-2026-medium-nil", "removed device $0"},
      {"sglang-2026-eagle-bigram", "stored device $0=" + Hashed({21, 22, 23, 24, 25}, {})},
      {"sglang-branch-array-component-types-index7", "stored device $0=A"},
      {"atom-array-token-offset-index12", "stored device <%0 %1=B"},
      {"sglang-202609-map-salt-session", "stored device $0=" + Local('A', "", "tenant-a")},
      {"sglang-202609-map-removed-cleared-rank-nil", "removed host_pinned $0; cleared"},
      {"trtllm-native-zmq-map-removed", "removed device $0"},
      {"dynamo-trtllm-relay-stored-mm",
       "stored @1 device $0=" + Local('A', "sql-adapter", "tenant-a", {12345678901234567890u}) +
           " !eligible"},
      {"trtllm-json-created", "drop 0 ignored_event"},
      {"trtllm-json-stored-with-partial-tail", "stored device 13921853158532342577=A"},
      {"trtllm-json-updated-demoted",
       "named host_pinned 13921853158532342577; removed device 13921853158532342577"},
      {"trtllm-json-v2-sha256-hexhash-mm",
       "stored device 14543684119246146921=" +
           Hashed({1, 0}, {kMm}, "abababababababababababababababababababababababababababababababab",
                  "", "tenant-a") +
           " !eligible"},
      {"mooncake-master-stored-object-key-only", "drop 0 unsupported_ownership"},
      {"mooncake-master-removed", "drop 0 unsupported_ownership"},
  };
  return all;
}

TEST(EngineSamples, EachGivesWhatItMeans) {
  EXPECT_EQ(EngineSamples().size(), Expected().size());
  for (const EngineSample& sample : EngineSamples()) {
    SCOPED_TRACE(sample.name);
    const auto expected = Expected().find(sample.name);
    ASSERT_NE(expected, Expected().end());
    auto options = StreamOptions();
    options.block_size = 0;  // samples come in several sizes
    Stream stream(options);
    EXPECT_EQ(stream.FeedBytes(sample.payload), Named(expected->second));
  }
}

// The bytes and the description beside them are two witnesses: each must give the same decoding.
TEST(EngineSamples, DescriptionsAreTheBytes) {
  for (const EngineSample& sample : EngineSamples()) {
    if (sample.engine == "trtllm-json") continue;
    SCOPED_TRACE(sample.name);
    EXPECT_EQ(ToHex(MsgpackFromJson(sample.decoded)), ToHex(sample.payload));
  }
}

// One stream of all vLLM samples of block size 4 in a row must survive whatever it learns.
TEST(EngineSamples, AsOneStream) {
  Stream stream;
  for (const EngineSample& sample : EngineSamples())
    EXPECT_EQ(stream.FeedBytes(sample.payload).find("error"), std::string::npos) << sample.name;
  EXPECT_EQ(stream.translator().stats().bad_batches, 0u);
  EXPECT_EQ(stream.translator().stats().batches, EngineSamples().size());
}

}  // namespace
}  // namespace kvr::test
