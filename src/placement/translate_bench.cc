// Frame → placement events: what one rank's stream costs before the index.
//
// Store: a frame that holds one event, or several, of N blocks with 16 tokens each, all new, and
// per stored block one of those stored longest ago is removed, so that the rank keeps `held`
// blocks. Inside the timing of Store are the stores alone, of StoreAndRemove both. Decode stops at
// the decoded batch. Outside: building the frames. Token ids are uniform over a vocabulary of
// 151,936; hashes are random. Stores have all that vLLM's main sends with text: a session, and a
// list of extra keys that has a nil for each block (arrays, whose release has no session, the list
// alone).
//
// Counters are per second of that timing (events, blocks, tokens, bytes), or of what is timed per
// event (allocations, instructions).
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "placement/event_translator.h"
#include "support/alloc_counter.h"
#include "support/instruction_counter.h"
#include "wire/event_encoder.h"

namespace kvr::placement {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kResident = 16'384;  // blocks
constexpr std::string_view kSession = "7d0f3f6c-8f2e-4f55-9d0c-2f0a4f1f9a11";
// What is given is repeated with new hashes; this many different ones defeat the branch predictor.
constexpr std::size_t kFramesMin = 64;

struct Frames {
  std::vector<std::string> stores;
  std::vector<std::string> removals;
  std::size_t store_bytes = 0;
};

std::string Encoded(const wire::EventBatch& batch, std::string_view dialect) {
  std::string frame;
  EncodeEventBatch(batch, *wire::DialectByName(dialect), frame);
  return frame;
}

// Frames of `events` events with `blocks` blocks each.
Frames MakeFrames(std::size_t blocks, std::size_t held, std::string_view dialect,
                  std::size_t events = 1, std::uint64_t seed = 1) {
  Rng rng(seed);
  Frames frames;
  // Stored and not yet removed are `held` blocks; the oldest go before they are stored again.
  const std::size_t count = std::max(kFramesMin, 2 * held / blocks);
  for (std::size_t i = 0; i < count; ++i) {
    wire::EventBatch store;
    wire::EventBatch removal;
    store.dp_rank = removal.dp_rank = 0;
    store.extra_blocks.resize(blocks);  // no keys: a nil a block
    for (std::size_t k = 0; k < events; ++k) {
      std::vector<EngineHash> hashes(blocks);
      std::vector<TokenId> tokens(blocks * kBlockSize);
      for (EngineHash& hash : hashes)
        hash = EngineHash{rng()};
      for (TokenId& token : tokens)
        token = static_cast<TokenId>(rng.Below(151'936));
      wire::EngineEvent& event = store.AddStored(hashes, EngineHash{rng()}, tokens, kBlockSize);
      event.medium = "GPU";
      event.group = 0;
      event.kind = wire::GroupKind::kMain;
      event.kind_name = "full_attention";
      event.session_id = kSession;
      event.extra_blocks = {0, static_cast<std::uint32_t>(blocks)};
      removal.AddRemoved(hashes).medium = "GPU";
    }
    frames.stores.push_back(Encoded(store, dialect));
    frames.removals.push_back(Encoded(removal, dialect));
    frames.store_bytes += frames.stores.back().size();
  }
  return frames;
}

// Counts what a benchmark did, from its making on but for pauses.
class Report {
 public:
  explicit Report(benchmark::State& state) : state_(state) {}
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void Pause() {
    allocations_ = test::AllocationsOfThisThread() - allocations_;
    instructions_ = instructions() - instructions_;
  }
  // The same subtraction again: from then on what is counted is what was before the pause.
  void Resume() { Pause(); }

  void End(std::size_t events, std::size_t blocks, std::size_t tokens, std::size_t bytes) {
    Pause();
    const auto rate = [&](const char* name, std::size_t count) {
      state_.counters[name] =
          benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsRate);
    };
    rate("events", events);
    rate("blocks", blocks);
    rate("tokens", tokens);
    rate("bytes", bytes);
    const auto per_event = [&](std::uint64_t count) {
      return static_cast<double>(count) / static_cast<double>(events);
    };
    state_.counters["allocations"] = per_event(allocations_);
    if (counter_.Count()) state_.counters["instructions"] = per_event(instructions_);
  }

 private:
  [[nodiscard]] std::uint64_t instructions() const { return counter_.Count().value_or(0); }

  benchmark::State& state_;
  const test::InstructionCounter counter_;
  // What was counted, while it pauses; else what has to be taken from the counters.
  std::uint64_t allocations_ = test::AllocationsOfThisThread();
  std::uint64_t instructions_ = instructions();
};

class Stream {
 public:
  explicit Stream(benchmark::State& state, std::size_t events = 1)
      : state_(state), events_(events) {
    TranslatorOptions options;
    options.block_size = kBlockSize;
    translator_ = EventTranslator(options);
  }

  void Translate(const std::string& frame) {
    const auto done = translator_.Translate(std::as_bytes(std::span(frame)), out_);
    if (!done || out_.events.size() != events_)
      state_.SkipWithError("the frame was not understood");
    benchmark::DoNotOptimize(out_.blocks.data());
  }

 private:
  benchmark::State& state_;
  const std::size_t events_;  // of a frame
  EventTranslator translator_{TranslatorOptions{}};
  PlacementBatch out_;
};

void StoreAndRemove(benchmark::State& state, std::string_view dialect) {
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const auto held = static_cast<std::size_t>(state.range(1));
  const Frames frames = MakeFrames(blocks, held, dialect);
  const std::size_t count = frames.stores.size();
  const std::size_t ahead = held / blocks;
  Stream stream(state);
  for (std::size_t i = 0; i < count + ahead; ++i) {  // warm: all rooms have their size
    if (i < ahead + count) stream.Translate(frames.stores[i % count]);
    if (i >= ahead) stream.Translate(frames.removals[(i - ahead) % count]);
  }
  std::size_t next = ahead;
  Report report(state);
  for (auto _ : state) {
    stream.Translate(frames.stores[next % count]);
    stream.Translate(frames.removals[(next + count - ahead) % count]);
    ++next;
  }
  const std::size_t runs = next - ahead;
  report.End(2 * runs, 2 * runs * blocks, runs * blocks * kBlockSize,
             runs * frames.store_bytes / count);
}

void Store(benchmark::State& state, std::string_view dialect) {
  using Clock = std::chrono::steady_clock;
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const auto events = static_cast<std::size_t>(state.range(1));
  const Frames frames = MakeFrames(blocks, 0, dialect, events);
  const std::size_t count = frames.stores.size();
  Stream stream(state, events);
  // Held all the time, as of an engine that runs: a rank that comes to hold next to nothing gives
  // back the room of its tables.
  for (const std::string& frame :
       MakeFrames(blocks, kResident / (2 * events), dialect, events, 2).stores)
    stream.Translate(frame);
  for (std::size_t i = 0; i < count; ++i)
    stream.Translate(frames.stores[i]);
  for (std::size_t i = 0; i < count; ++i)
    stream.Translate(frames.removals[i]);
  std::size_t runs = 0;
  Report report(state);
  for (auto _ : state) {  // an iteration is all frames, so that the clock is read seldom
    const auto start = Clock::now();
    for (const std::string& frame : frames.stores)
      stream.Translate(frame);
    const std::chrono::duration<double> time = Clock::now() - start;
    state.SetIterationTime(time.count());
    report.Pause();
    for (const std::string& frame : frames.removals)
      stream.Translate(frame);
    report.Resume();
    runs += count;
  }
  report.End(runs * events, runs * events * blocks, runs * events * blocks * kBlockSize,
             runs / count * frames.store_bytes);
}

void Decode(benchmark::State& state, std::string_view dialect) {
  const auto blocks = static_cast<std::size_t>(state.range(0));
  const Frames frames = MakeFrames(blocks, 0, dialect);
  wire::EventBatch batch;
  for (const std::string& frame : frames.stores)
    (void)wire::DecodeEventBatch(std::as_bytes(std::span(frame)), {}, batch);
  std::size_t runs = 0;
  Report report(state);
  for (auto _ : state) {
    const std::string& frame = frames.stores[runs++ % frames.stores.size()];
    const auto done = wire::DecodeEventBatch(std::as_bytes(std::span(frame)), {}, batch);
    if (!done) state.SkipWithError("the frame was not decoded");
    benchmark::DoNotOptimize(batch.tokens.data());
  }
  report.End(runs, runs * blocks, runs * blocks * kBlockSize,
             runs * frames.store_bytes / frames.stores.size());
}

BENCHMARK_CAPTURE(Store, maps, "vllm-main")
    ->Args({1, 1})
    ->Args({1, 8})
    ->Args({64, 1})
    ->UseManualTime();
BENCHMARK_CAPTURE(Store, arrays, "vllm-0.22")
    ->Args({1, 1})
    ->Args({1, 8})
    ->Args({64, 1})
    ->UseManualTime();
BENCHMARK_CAPTURE(StoreAndRemove, maps, "vllm-main")
    ->Args({1, 0})
    ->Args({64, 0})
    ->Args({64, 1 << 18});
BENCHMARK_CAPTURE(Decode, maps, "vllm-main")->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(Decode, arrays, "vllm-0.22")->Arg(1)->Arg(64);

}  // namespace
}  // namespace kvr::placement

BENCHMARK_MAIN();
