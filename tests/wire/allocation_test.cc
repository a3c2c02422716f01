#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/alloc_counter.h"
#include "support/engine_samples.h"
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

  placement::EventTranslator translator(StreamOptions());
  placement::PlacementBatch out;
  const auto translate = [&] {
    for (int i = 0; i < 100; ++i)
      EXPECT_TRUE(translator.Translate(std::as_bytes(std::span(frame)), out));
  };
  translate();
  ASSERT_EQ(out.events.size(), 2u);
  EXPECT_EQ(AllocationsIn(translate), 0u);
}

}  // namespace
}  // namespace kvr::test
