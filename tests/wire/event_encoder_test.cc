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
    // Of a list, whose brackets the samples do not have.
    {"trtllm-json-updated-demoted", "trtllm-json"},
    {"trtllm-json-v2-sha256-hexhash-mm", "trtllm-json-v2"},
};

// The other samples, which no engine sent either but are made by hand after the formats, and what
// of them a decoded batch does not keep.
constexpr struct {
  std::string_view sample;
  std::string_view lost;
} kExceptions[] = {
    {"vllm-future-unknown-event-and-field", "events and fields that are not known"},
    {"sglang-branch-array-component-types-index7", "the component types"},
    {"mooncake-master-stored-object-key-only", "an object key that is no hash"},
    {"trtllm-json-created", "the sizes of the levels; see ListsBeginWithTheSizesOfTheLevels"},
    {"trtllm-json-stored-with-partial-tail", "the partial block; see TrtllmListsLookAsTheyShould"},
};

std::string Text(std::span<const std::byte> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

// The number with which the events of a sample begin, where they are numbered.
std::uint64_t EventIdOf(const test::EngineSample& sample) {
  constexpr std::string_view kKey = R"({"event_id":)";
  const std::string text = Text(sample.payload);
  if (!text.starts_with(kKey)) return 3;  // of Mooncake's sample
  return std::stoull(text.substr(kKey.size()));
}

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
    const test::EngineSample& sample = test::SampleByName(row.sample);
    const bool list = dialect->form == Dialect::Form::kJson;
    EventBatch batch;
    TrtllmJsonDecoder json;
    ASSERT_TRUE(list ? json.Decode(sample.payload, {}, 0, batch)
                     : DecodeEventBatch(sample.payload, {}, batch));
    ASSERT_TRUE(batch.bad.empty());
    std::uint64_t event_id = EventIdOf(sample);
    std::string out;
    EncodeEventBatch(batch, *dialect, out, &event_id);
    if (list) {
      EXPECT_EQ(out, "[" + Text(sample.payload) + "]");
    } else {
      EXPECT_EQ(Hex(out), ToHex(sample.payload));
    }
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

TEST(EventEncoder, ListsBeginWithTheSizesOfTheLevels) {
  constexpr std::array<std::uint64_t, 2> kBlocks = {101'230, 0};
  std::uint64_t event_id = 0;
  std::string out;
  EncodeTrtllmCreated(kBlocks, 0, *DialectByName("trtllm-json"), event_id, out);
  EXPECT_EQ(out, "[" + Text(test::SampleByName("trtllm-json-created").payload) + "]");
  EXPECT_EQ(event_id, 1u);
}

// Of the second cache manager: digests that are decoded are repeated, and made up without one.
TEST(EventEncoder, ListsOfTheSecondManager) {
  const std::array hashes = {EngineHash{0xAB}};
  const std::array<TokenId, 1> tokens = {7};
  EventBatch batch;
  batch.AddStored(hashes, std::nullopt, tokens, 1);
  const std::string tail = R"(,"layer_group_id":0}])";
  std::string out;
  EncodeEventBatch(batch, *DialectByName("trtllm-json-v2"), out);
  EXPECT_NE(out.find(R"("block_hash":"00000000000000ab)" + std::string(48, '0') + '"'),
            std::string::npos);
  EXPECT_TRUE(out.ends_with(R"("hash_algo":"v2_sha256")" + tail)) << out;
  out.clear();
  EncodeEventBatch(batch, *DialectByName("trtllm-json-v2-64"), out);
  EXPECT_NE(out.find(R"("block_hash":171)"), std::string::npos);
  EXPECT_TRUE(out.ends_with(R"("hash_algo":"v2_sha256_64")" + tail)) << out;
}

TEST(EventEncoder, TrtllmListsLookAsTheyShould) {
  std::string text = Text(test::SampleByName("trtllm-json-stored-with-partial-tail").payload);
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
