#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/reused_lists.h"
#include "support/alloc_counter.h"
#include "support/engine_samples.h"
#include "support/json_msgpack.h"
#include "wire/event_encoder.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

TEST(Allocations, DecodingIntoAWarmBatchMakesNone) {
  wire::EventBatch batch;
  const auto decode_all = [&] {
    for (const EngineSample& sample : EngineSamples()) {
      if (sample.engine == "trtllm-json") continue;
      EXPECT_TRUE(wire::DecodeEventBatch(sample.payload, {}, batch));
    }
  };
  decode_all();
  EXPECT_EQ(AllocationsIn(decode_all), 0u);
}

// Of a hundred times that the frame is translated, once it was as often before.
std::uint64_t AllocationsWhenWarm(const std::string& frame, placement::PlacementBatch& out) {
  placement::EventTranslator translator(StreamOptions());
  const auto translate = [&] {
    for (int i = 0; i < 100; ++i)
      EXPECT_TRUE(translator.Translate(std::as_bytes(std::span(frame)), out));
  };
  translate();
  return AllocationsIn(translate);
}

TEST(Allocations, TranslatingIntoAWarmBatchMakesNone) {
  std::vector<EngineHash> hashes;
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < 64; ++i)
    hashes.push_back(EngineHash{i * 0x9E3779B97F4A7C15u});
  for (std::uint32_t i = 0; i < 64 * 4; ++i)
    tokens.push_back(i * 601);
  wire::EventBatch events;
  auto& stored = events.AddStored(hashes, std::nullopt, tokens, 4);
  stored.medium = "GPU";
  stored.lora_name = "adapter";
  stored.cache_salt = "a salt too long for a small string to hold";
  events.AddRemoved(hashes);
  std::string frame;
  EncodeEventBatch(events, *wire::DialectByName("vllm-0.24"), frame);

  placement::PlacementBatch out;
  EXPECT_EQ(AllocationsWhenWarm(frame, out), 0u);
  ASSERT_EQ(out.events.size(), 2u);
}

// Payloads of which each names blocks that were there before, over and over.
void ExpectNoAllocations(const std::vector<std::string>& payloads, std::size_t events) {
  placement::EventTranslator translator(StreamOptions());
  placement::PlacementBatch out;
  std::size_t placed = 0;
  const auto translate = [&] {
    placed = 0;
    for (int i = 0; i < 100; ++i) {
      for (const std::string& payload : payloads) {
        EXPECT_TRUE(translator.Translate(std::as_bytes(std::span(payload)), out));
        EXPECT_TRUE(out.dropped.empty());
        placed += out.events.size();
      }
    }
  };
  translate();
  EXPECT_EQ(placed, 100 * events);
  EXPECT_EQ(AllocationsIn(translate), 0u);
}

TEST(Allocations, TensorRtListsIntoAWarmBatchMakeNone) {
  std::vector<std::string> payloads;
  const std::string digest(64, 'a');
  std::string blocks;
  std::string names;
  for (int i = 1; i <= 64; ++i) {
    const std::string name =
        i % 2 == 0 ? std::to_string(i) : '"' + std::to_string(10 + i) + digest.substr(2) + '"';
    std::string tokens;
    for (int k = 1; k <= 4; ++k)
      tokens += (k == 1 ? "" : ",") + std::string(R"({"type":"unique_token","token_id":)") +
                (i == 3 && k == 1 ? '"' + digest + '"' : std::to_string(i * 4 + k)) +
                R"(,"token_extra_id":0})";
    blocks += (i == 1 ? "" : ",") + std::string(R"({"type":"stored_block","block_hash":)") + name +
              R"(,"tokens":[)" + tokens + R"(],"cache_level":0,"priority":35,"mm_keys":[)" +
              (i == 3 ? R"({"type":"mm_key","hash":")" + digest + R"(","start_offset":0})" : "") +
              R"(],"cache_salt":"a salt too long for a small string to hold"})";
    names += (i == 1 ? "" : ",") + name;
  }
  // The last block is partial: its name is remembered and forgotten.
  payloads.push_back(R"([{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[)" +
                     blocks +
                     R"(,{"block_hash":99,"tokens":[{"token_id":1}]}]},"window_size":4096},)"
                     R"({"event_id":2,"data":{"type":"updated","block_hash":2,"cache_level":)"
                     R"({"new_value":1,"old_value":0},"priority":null},"window_size":4096},)"
                     R"({"event_id":3,"data":{"type":"removed","block_hashes":[)" +
                     names + R"(,99]},"window_size":4096}])");
  ExpectNoAllocations(payloads, 5);
}

TEST(Allocations, RouterEventsIntoAWarmBatchMakeNone) {
  std::string blocks;
  std::string names;
  for (int i = 1; i <= 64; ++i) {
    const std::string number = std::to_string(i);
    blocks += (i == 1 ? "" : ",") + std::string(R"({"block_hash":)") + number +
              R"(,"tokens_hash":)" + number + R"(,"mm_extra_info":)" +
              (i == 3 ? R"({"mm_objects":[{"mm_hash":5,"offsets":[[0,4],[6,8]]}]})" : "null") + "}";
    names += (i == 1 ? "" : ",") + number;
  }
  const auto event = [](const std::string& data) {
    return R"({"worker_id":1,"storage_tier":"device","residency_domain":"worker","event":)"
           R"({"event_id":5,"data":)" +
           data + R"(,"dp_rank":0},"session_id":"a session too long for a small string"})";
  };
  const std::string list =
      "[" +
      event(R"({"stored":{"parent_hash":null,"start_position":0,"blocks":[)" + blocks + "]}}") +
      "," + event(R"({"removed":{"block_hashes":[)" + names + "]}}") + "," + event(R"("cleared")") +
      "]";
  const auto packed = MsgpackFromJson(list);
  ExpectNoAllocations({std::string(reinterpret_cast<const char*>(packed.data()), packed.size())},
                      3);
  ExpectNoAllocations({list}, 3);
}

constexpr std::int64_t kMiB = 1 << 20;

// What a translator keeps beyond what it kept before it read `payload`: at once, and after as many
// ordinary messages as it takes to look twice.
struct Kept {
  std::int64_t at_once = 0;
  std::int64_t later = 0;
};
Kept KeptAfter(const std::string& payload, const std::string& ordinary) {
  placement::TranslatorOptions options = StreamOptions();
  options.memory.counted_blocks_max = 16;
  placement::EventTranslator translator(options);
  placement::PlacementBatch out;
  const auto translate = [&](const std::string& text, int times) {
    for (int i = 0; i < times; ++i)
      (void)translator.Translate(std::as_bytes(std::span(text)), out);
  };
  constexpr int kLooks = 2 * static_cast<int>(ReusedLists::kLookEvery);
  translate(ordinary, kLooks);
  const std::int64_t before = HeapOfThisThread();
  Kept kept;
  translate(payload, 1);
  kept.at_once = HeapOfThisThread() - before;
  translate(ordinary, kLooks);
  kept.later = HeapOfThisThread() - before;
  return kept;
}
std::string Numbers(std::size_t count) {
  std::string text(2 * count, '0');
  for (std::size_t i = 1; i < text.size(); i += 2)
    text[i] = ',';
  text.back() = ' ';
  return text;
}

// A parser reserves 14 bytes for each byte of a text before it has looked at any.
void ExpectRefusedUnparsed(const std::string& list) {
  placement::EventTranslator translator(StreamOptions());
  placement::PlacementBatch out;
  const std::uint64_t made = AllocationsIn([&] {
    const auto translated = translator.Translate(std::as_bytes(std::span(list)), out);
    ASSERT_FALSE(translated);
    EXPECT_EQ(translated.error().code, wire::DecodeErrc::kOverLimit);
  });
  EXPECT_EQ(made, 0u);
}

TEST(Allocations, AJsonListOfTooManyItemsIsNotParsed) {
  ExpectRefusedUnparsed("[" + Numbers(std::size_t{4} << 20) + "]");
}

TEST(Allocations, ALongJsonTextIsNotParsed) {
  ExpectRefusedUnparsed(R"([{"worker_id":[)" + Numbers(std::size_t{16} << 20) + "]}]");
}

TEST(Allocations, TheRoomOfAnExtraordinaryMessageIsGivenBack) {
  // Lists of a few bytes a block stay below what is kept of each.
  constexpr std::int64_t kOrdinary = 20 * kMiB;
  const std::string numbers = Numbers(std::size_t{1} << 20);
  const std::string lists = R"([{"event_id":0,"data":{"type":"removed","block_hashes":[1]}}])";
  const Kept list = KeptAfter(
      R"([{"event_id":1,"data":{"type":"removed","block_hashes":[1],"x":[)" + numbers + "]}}]",
      lists);
  EXPECT_GT(list.at_once, 16 * kMiB);
  EXPECT_LT(list.later, kMiB);

  const auto router = [](const std::string& data) {
    return R"([{"worker_id":1,"event":{"event_id":5,"data":)" + data + R"(,"dp_rank":0}}])";
  };
  std::string blocks;
  for (int i = 1; i <= 400'000; ++i)
    blocks += fmt::format(R"({}{{"block_hash":{},"tokens_hash":7}})", i == 1 ? "" : ",", i);
  const Kept routed =
      KeptAfter(router(R"({"stored":{"parent_hash":null,"blocks":[)" + blocks + "]}}"),
                router(R"({"stored":{"parent_hash":null,"blocks":[)"
                       R"({"block_hash":1,"tokens_hash":7}]}})"));
  EXPECT_GT(routed.at_once, 64 * kMiB);
  EXPECT_LT(routed.later, kOrdinary);

  // Of an engine: sets of names and hashes are kept for each store.
  std::string frame;
  std::string ordinary;
  for (const std::uint32_t count : {1'000'000u, 2u}) {
    std::vector<EngineHash> hashes;
    for (std::uint32_t i = 1; i <= count; ++i)
      hashes.push_back(EngineHash{i});
    wire::EventBatch events;
    events.AddStored(hashes, std::nullopt, std::vector<TokenId>(std::size_t{4} * count, 7), 4)
        .medium = "GPU";
    EncodeEventBatch(events, *wire::DialectByName("vllm-0.24"), count == 2 ? ordinary : frame);
  }
  const Kept stored = KeptAfter(frame, ordinary);
  EXPECT_GT(stored.at_once, 64 * kMiB);
  EXPECT_LT(stored.later, kOrdinary);
}

// A hybrid model: main group, window, state, a further main group and one of which no kind is told.
TEST(Allocations, TranslatingSideGroupsIntoAWarmBatchMakesNone) {
  struct Group {
    std::uint32_t number;
    std::string_view kind;
  };
  constexpr std::array<Group, 5> kGroups = {
      {{0, "full_attention"}, {1, "sliding_window"}, {2, "mamba"}, {3, "mla_attention"}, {4, ""}}};
  std::vector<EngineHash> hashes;
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < 64; ++i)
    hashes.push_back(EngineHash{i * 0x9E3779B97F4A7C15u});
  for (std::uint32_t i = 0; i < 64 * 4; ++i)
    tokens.push_back(i * 601);
  wire::EventBatch events;
  for (const Group& group : kGroups) {
    auto& stored = events.AddStored(hashes, std::nullopt, tokens, 4);
    stored.group = group.number;
    if (group.kind.empty()) continue;
    stored.kind = wire::GroupKindFromName(group.kind);
    stored.kind_name = group.kind;
    stored.window = 16;
  }
  for (const Group& group : kGroups)
    events.AddRemoved(hashes).group = group.number;
  std::string frame;
  EncodeEventBatch(events, *wire::DialectByName("vllm-0.24"), frame);

  placement::PlacementBatch out;
  EXPECT_EQ(AllocationsWhenWarm(frame, out), 0u);
  ASSERT_EQ(out.events.size(), 2u);
  ASSERT_EQ(out.side.size(), 6u);
  ASSERT_EQ(out.dropped.size(), 8u);
}

}  // namespace
}  // namespace kvr::test
