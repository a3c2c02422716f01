// Frame → placement events: what one rank's stream costs before the index.
//
// Inside the timing: decoding, filtering, hashing of tokens, counting of copies. Outside: building
// the frames. Each frame holds one event; frames of fresh hashes alternate with the removal of the
// same, so that the table of copies stays small.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "placement/event_translator.h"
#include "wire/event_encoder.h"

namespace kvr::placement {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kFrames = 64;

std::vector<std::string> Frames(std::size_t blocks, std::string_view dialect) {
  Rng rng(1);
  std::vector<std::string> frames;
  for (std::size_t i = 0; i < kFrames; ++i) {
    std::vector<EngineHash> hashes(blocks);
    std::vector<TokenId> tokens(blocks * kBlockSize);
    for (EngineHash& hash : hashes)
      hash = EngineHash{rng()};
    for (TokenId& token : tokens)
      token = static_cast<TokenId>(rng.Below(151'936));
    wire::EventBatch batch;
    batch.dp_rank = 0;
    wire::EngineEvent& event = batch.AddStored(hashes, EngineHash{rng()}, tokens, kBlockSize);
    event.medium = "GPU";
    event.group = 0;
    event.kind = wire::GroupKind::kMain;
    event.kind_name = "full_attention";
    batch.AddRemoved(hashes).medium = "GPU";
    EncodeEventBatch(batch, *wire::DialectByName(dialect), frames.emplace_back());
  }
  return frames;
}

void Translate(benchmark::State& state, std::string_view dialect) {
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const auto frames = Frames(blocks, dialect);
  TranslatorOptions options;
  options.block_size = kBlockSize;
  EventTranslator translator(options);
  PlacementBatch out;
  std::size_t next = 0;
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string& frame = frames[next++ % kFrames];
    bytes += frame.size();
    const auto done = translator.Translate(std::as_bytes(std::span(frame)), out);
    if (!done || out.events.size() != 2) state.SkipWithError("the frame was not understood");
    benchmark::DoNotOptimize(out.blocks.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));  // blocks stored and removed
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

void DecodeOnly(benchmark::State& state, std::string_view dialect) {
  const auto frames = Frames(static_cast<std::size_t>(state.range(0)), dialect);
  wire::EventBatch batch;
  std::size_t next = 0;
  std::size_t bytes = 0;
  for (auto _ : state) {
    const std::string& frame = frames[next++ % kFrames];
    bytes += frame.size();
    const auto done = wire::DecodeEventBatch(std::as_bytes(std::span(frame)), {}, batch);
    if (!done) state.SkipWithError("the frame was not decoded");
    benchmark::DoNotOptimize(batch.tokens.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

BENCHMARK_CAPTURE(Translate, maps, "vllm-0.24")->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(Translate, arrays, "vllm-0.22")->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(DecodeOnly, maps, "vllm-0.24")->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(DecodeOnly, arrays, "vllm-0.22")->Arg(1)->Arg(64);

}  // namespace
}  // namespace kvr::placement

BENCHMARK_MAIN();
