#include "wire/event_encoder.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "support/engine_samples.h"
#include "support/json_msgpack.h"
#include "wire/event_decoder.h"
#include "wire/trtllm_json.h"

namespace kvr::wire {
namespace {

std::string Hex(std::string_view bytes) {
  return ToHex(std::as_bytes(std::span(bytes)));
}

// The dialect of each sample, in which its decoded content becomes its bytes again.
constexpr struct {
  std::string_view sample;
  std::string_view dialect;
} kExact[] = {
    {"vllm-0.9.0-stored-int-norank", "vllm-0.9.0"},
    {"vllm-0.9.0-stored-lora-id", "vllm-0.9.0"},
    {"vllm-0.9.0-cleared", "vllm-0.9.0"},
    {"vllm-0.9.1-stored-rank0", "vllm-0.9.1"},
    {"vllm-0.9.1-multi-event-rank3", "vllm-0.9.1"},
    {"vllm-0.10.2-stored-u64-gpu", "vllm-0.10.2"},
    {"vllm-0.10.2-removed-gpu", "vllm-0.10.2"},
    {"vllm-0.14-stored-lora-name", "vllm-0.14"},
    {"vllm-0.17-extra-keys-all-null", "vllm-0.17"},
    {"vllm-0.17-cache-salt-first-block-only", "vllm-0.17"},
    {"vllm-0.17-mm-flat-strings", "vllm-0.17"},
    {"vllm-0.17-prompt-embeds", "vllm-0.17"},
    {"vllm-0.19-mm-id-offset-pairs", "vllm-0.19"},
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
    {"vllm-0.26-map-fs-locality-local", "vllm-0.26"},
    {"vllm-0.26-map-obj-no-locality", "vllm-0.26"},
    {"vllm-0.29-map-ownership", "vllm-0.29"},
    {"vllm-main-202609-map-session-id", "vllm-main"},
    {"vllm-branch-full-map-batch", "vllm-map-batch"},
    {"sglang-2025-stored-no-medium-no-rank", "sglang-0.4.6"},
    {"sglang-2025-page1-stored", "sglang-0.4.7"},
    {"sglang-2026-stored-gpu", "sglang-0.5.9"},
    {"sglang-2026-hicache-backup-demote", "sglang-0.5.9"},
    {"sglang-2026-medium-nil", "sglang-0.5.9"},
    {"sglang-2026-eagle-bigram", "sglang-0.5.9"},
    {"sglang-202609-map-salt-session", "sglang-main"},
    {"sglang-202609-map-removed-cleared-rank-nil", "sglang-main"},
    {"trtllm-native-zmq-map-removed", "trtllm-zmq"},
    {"dynamo-trtllm-relay-stored-mm", "dynamo-relay"},
    {"atom-array-token-offset-index12", "atom"},
    {"mooncake-master-removed", "mooncake"},
    {"vllm-0.11-gpu-int-plus-cpu-offload-bytes", "vllm-offload"},
    {"vllm-lmcache-cpu-partial-chunk-bytes", "vllm-lmcache"},
    {"vllm-mooncake-store-connector-cpu-lowercase", "vllm-mooncake-store"},
};

// The other samples, and what of them a decoded batch does not keep.
constexpr struct {
  std::string_view sample;
  std::string_view lost;
} kExceptions[] = {
    {"vllm-future-unknown-event-and-field", "events and fields that are not known"},
    {"sglang-branch-array-component-types-index7", "the component types"},
    {"mooncake-master-stored-object-key-only", "an object key that is no hash"},
    {"trtllm-json-created", "an event without meaning for an index"},
    {"trtllm-json-stored-with-partial-tail", "the partial block"},
    {"trtllm-json-updated-demoted", "a move becomes a store and a removal"},
    {"trtllm-json-v2-sha256-hexhash-mm", "digests, and objects among the tokens"},
};

TEST(EventEncoder, EverySampleIsRepeatedOrAnException) {
  EXPECT_EQ(std::size(kExact) + std::size(kExceptions), test::EngineSamples().size());
  for (const auto& row : kExceptions)
    EXPECT_FALSE(test::SampleByName(row.sample).payload.empty()) << row.lost;
}

TEST(EventEncoder, RepeatsTheBytesOfEngines) {
  for (const auto& row : kExact) {
    SCOPED_TRACE(row.sample);
    const Dialect* dialect = DialectByName(row.dialect);
    ASSERT_NE(dialect, nullptr);
    const auto& payload = test::SampleByName(row.sample).payload;
    EventBatch batch;
    ASSERT_TRUE(DecodeEventBatch(payload, {}, batch));
    ASSERT_TRUE(batch.bad.empty());
    std::uint64_t event_id = 3;  // of the one sample whose events are numbered
    std::string out;
    EncodeEventBatch(batch, *dialect, out, &event_id);
    EXPECT_EQ(Hex(out), ToHex(payload));
  }
}

// What one dialect says, another one's reader understands: all but what the dialect leaves out.
TEST(EventEncoder, EveryDialectIsReadBack) {
  const std::array hashes = {EngineHash{1}, EngineHash{0xFFFFFFFFFFFFFFFFu}};
  const std::array<TokenId, 8> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const Dialect& dialect : Dialects()) {
    SCOPED_TRACE(dialect.name);
    EventBatch batch;
    batch.dp_rank = 0;
    batch.AddStored(hashes, EngineHash{9}, tokens, 4).medium = "GPU";
    batch.AddRemoved(std::span(hashes).first(1)).medium = "GPU";
    std::string out;
    EncodeEventBatch(batch, dialect, out);
    EventBatch again;
    TrtllmJsonDecoder json;
    const auto bytes = std::as_bytes(std::span(out));
    ASSERT_TRUE(dialect.form == Dialect::Form::kJson ? json.Decode(bytes, {}, 4, again)
                                                     : DecodeEventBatch(bytes, {}, again));
    EXPECT_TRUE(again.bad.empty());
    std::vector<EngineHash> stored;
    std::vector<EngineHash> removed;
    for (const EngineEvent& event : again.events) {
      auto& to = event.type == EventType::kStored ? stored : removed;
      to.insert(to.end(), again.HashesOf(event).begin(), again.HashesOf(event).end());
      if (event.type != EventType::kStored || dialect.form == Dialect::Form::kPool) continue;
      EXPECT_EQ(event.parent, EngineHash{9});
      EXPECT_TRUE(std::ranges::equal(again.TokensOf(event), tokens));
      EXPECT_EQ(event.block_size, 4u);
    }
    EXPECT_TRUE(std::ranges::equal(stored, hashes));
    EXPECT_EQ(removed, std::vector{EngineHash{1}});
  }
}

// Copies off the device: by digests that are made up where none was decoded, and without tokens.
TEST(EventEncoder, ConnectorsAreReadBack) {
  const std::array hashes = {EngineHash{1}, EngineHash{0xFFFFFFFFFFFFFFFFu}};
  const std::array<TokenId, 8> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  const struct {
    std::string_view dialect;
    std::string_view medium;
    std::size_t digests;  // two names and a parent of the store, one name of the removal
  } rows[] = {{"vllm-offload", "CPU", 4},
              {"vllm-lmcache", "cpu", 4},
              {"vllm-mooncake-store", "cpu", 0},
              {"vllm-llm-d-fs", "SHARED_STORAGE", 0}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dialect);
    EventBatch batch;
    batch.AddStored(hashes, EngineHash{9}, tokens, 4).medium = row.medium;
    batch.AddStored(hashes, std::nullopt, {}, 4).medium = "GPU";
    batch.AddRemoved(std::span(hashes).first(1)).medium = row.medium;
    std::string out;
    EncodeEventBatch(batch, *DialectByName(row.dialect), out);
    EventBatch again;
    ASSERT_TRUE(DecodeEventBatch(std::as_bytes(std::span(out)), {}, again));
    ASSERT_EQ(again.events.size(), 3u);
    EXPECT_TRUE(std::ranges::equal(again.HashesOf(again.events[0]), hashes));
    EXPECT_EQ(again.events[0].parent, EngineHash{9});
    EXPECT_EQ(again.events[0].medium, row.medium);
    EXPECT_TRUE(std::ranges::equal(again.HashesOf(again.events[1]), hashes));
    EXPECT_EQ(again.events[1].tokens.count, 0u);
    EXPECT_TRUE(std::ranges::equal(again.HashesOf(again.events[2]), std::span(hashes).first(1)));
    EXPECT_EQ(again.digests.size(), row.digests);
    for (const DigestName& name : again.digests)
      EXPECT_EQ(name.bytes.size(), 32u);
  }
}

TEST(EventEncoder, TrtllmListsLookAsTheyShould) {
  const auto& sample = test::SampleByName("trtllm-json-stored-with-partial-tail").payload;
  std::string text(reinterpret_cast<const char*>(sample.data()), sample.size());
  const std::size_t tail =
      text.find(R"(,{"type":"stored_block","block_hash":14217850000000000001)");
  ASSERT_NE(tail, std::string::npos);
  text.erase(tail, text.find("]}", text.find("priority", tail)) - tail);  // the partial block
  EventBatch batch;
  TrtllmJsonDecoder decoder;
  ASSERT_TRUE(decoder.Decode(std::as_bytes(std::span(text)), {}, 4, batch));
  std::uint64_t event_id = 1;
  std::string out;
  EncodeEventBatch(batch, *DialectByName("trtllm-json"), out, &event_id);
  EXPECT_EQ(out, "[" + text + "]");
  EXPECT_EQ(event_id, 2u);
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
  EXPECT_EQ(DialectByName("vllm-0.9")->name, "vllm-0.9.1");
  EXPECT_EQ(DialectByName("sglang")->name, "sglang-0.5.18");
  EXPECT_EQ(DialectByName("vllm"), nullptr);
}

}  // namespace
}  // namespace kvr::wire
