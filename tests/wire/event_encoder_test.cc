#include "wire/event_encoder.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "support/engine_samples.h"
#include "support/json_msgpack.h"
#include "wire/event_decoder.h"

namespace kvr::wire {
namespace {

std::string Hex(std::string_view bytes) {
  return ToHex(std::as_bytes(std::span(bytes)));
}

// Samples whose content a dialect says in full.
constexpr struct {
  std::string_view sample;
  std::string_view dialect;
} kExact[] = {
    {"vllm-0.9.0-stored-lora-id", "vllm-0.9"},
    {"vllm-0.9.0-cleared", "vllm-0.9"},
    {"vllm-0.9.1-stored-rank0", "vllm-0.9"},
    {"vllm-0.9.1-multi-event-rank3", "vllm-0.9"},
    {"vllm-0.10.2-stored-u64-gpu", "vllm-0.10"},
    {"vllm-0.10.2-removed-gpu", "vllm-0.10"},
    {"vllm-0.14-stored-lora-name", "vllm-0.14"},
    {"vllm-0.17-extra-keys-all-null", "vllm-0.17"},
    {"vllm-0.17-cache-salt-first-block-only", "vllm-0.17"},
    {"vllm-0.17-mm-flat-strings", "vllm-0.17"},
    {"vllm-0.17-prompt-embeds", "vllm-0.17"},
    {"vllm-0.19-mm-id-offset-pairs", "vllm-0.17"},
    {"vllm-0.20-stored-group0", "vllm-0.20"},
    {"vllm-0.20-removed-group1", "vllm-0.20"},
    {"vllm-0.22-stored-full-attention", "vllm-0.22"},
    {"vllm-0.22-sliding-window-masked-blocks", "vllm-0.22"},
    {"vllm-0.24-map-stored", "vllm-0.24"},
    {"vllm-0.24-map-stored-minimal", "vllm-0.24"},
    {"vllm-0.24-map-lora-mm-salt", "vllm-0.24"},
    {"vllm-0.24-map-removed", "vllm-0.24"},
    {"vllm-0.24-map-cpu-placeholder", "vllm-0.24"},
    {"vllm-0.24-map-cpu-self-describing-chunk2", "vllm-0.24"},
    {"vllm-0.24-map-all-masked-empty-hashes", "vllm-0.24"},
    {"vllm-0.24-map-mamba-align-sparse", "vllm-0.24"},
    {"vllm-0.26-map-fs-locality-local", "vllm-0.24"},
    {"vllm-0.26-map-obj-no-locality", "vllm-0.24"},
    {"vllm-0.29-map-ownership", "vllm-0.24"},
    {"vllm-main-202609-map-session-id", "vllm-0.24"},
    {"sglang-2026-stored-gpu", "sglang"},
    {"sglang-2026-hicache-backup-demote", "sglang"},
    {"sglang-2026-medium-nil", "sglang"},
    {"sglang-2026-eagle-bigram", "sglang"},
    {"sglang-202609-map-salt-session", "sglang-map"},
    {"sglang-202609-map-removed-cleared-rank-nil", "sglang-map"},
    {"trtllm-native-zmq-map-removed", "sglang-map"},
};

TEST(EventEncoder, RepeatsTheBytesOfEngines) {
  for (const auto& row : kExact) {
    SCOPED_TRACE(row.sample);
    const auto& payload = test::SampleByName(row.sample).payload;
    EventBatch batch;
    ASSERT_TRUE(DecodeEventBatch(payload, {}, batch));
    ASSERT_TRUE(batch.bad.empty());
    std::string out;
    EncodeEventBatch(batch, *DialectByName(row.dialect), out);
    EXPECT_EQ(Hex(out), ToHex(payload));
  }
}

TEST(EventEncoder, EncodesWhatAProducerBuilds) {
  const std::array hashes = {EngineHash{1}, EngineHash{0xFFFFFFFFFFFFFFFFu}};
  const std::array<TokenId, 8> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  EventBatch batch;
  batch.ts = 1.5;
  batch.dp_rank = 2;
  batch.AddStored(hashes, EngineHash{9}, tokens, 4).medium = "GPU";
  batch.AddRemoved(std::span(hashes).first(1));
  batch.AddCleared();

  std::string arrays;
  EncodeEventBatch(batch, *DialectByName("vllm-0.14"), arrays);
  EXPECT_EQ(
      Hex(arrays),
      ToHex(test::MsgpackFromJson(
          R"([1.5,[["BlockStored",[1,18446744073709551615],9,[1,2,3,4,5,6,7,8],4,null,"GPU",null],
                         ["BlockRemoved",[1],null],["AllBlocksCleared"]],2])")));
  std::string maps;
  EncodeEventBatch(batch, *DialectByName("sglang-map"), maps);
  EXPECT_EQ(Hex(maps),
            ToHex(test::MsgpackFromJson(
                R"([1.5,[{"type":"BlockStored","block_hashes":[1,-1],"parent_block_hash":9,
                    "token_ids":[1,2,3,4,5,6,7,8],"block_size":4,"lora_id":null,"medium":"GPU"},
                   {"type":"BlockRemoved","block_hashes":[1]},{"type":"AllBlocksCleared"}],2])")));
}

TEST(EventEncoder, SaltGoesWhereTheDialectHasAPlaceForIt) {
  const std::array hashes = {EngineHash{1}};
  const std::array<TokenId, 1> tokens = {1};
  EventBatch batch;
  auto& event = batch.AddStored(hashes, std::nullopt, tokens, 1);
  event.cache_salt = "a";
  event.session_id = "s";
  std::string out;
  EncodeEventBatch(batch, *DialectByName("sglang"), out);
  EXPECT_EQ(Hex(out), ToHex(test::MsgpackFromJson(
                          R"([0.0,[["BlockStored",[1],null,[1],1,null,null,
                          {"cache_salt":"a","session_id":"s"}]],null])")));
}

TEST(EventEncoder, DialectsHaveNames) {
  for (const Dialect& dialect : Dialects())
    EXPECT_EQ(DialectByName(dialect.name), &dialect);
  EXPECT_EQ(DialectByName("vllm"), nullptr);
}

}  // namespace
}  // namespace kvr::wire
