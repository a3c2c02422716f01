// What block hashing costs above the hash itself. Every figure is over token ids in memory; the
// output vectors keep their room, so `allocs` must be 0. `tokens` are tokens a second,
// `instructions` those of a block where the machine counts them (else tools/instructions),
// `to_xxh3` is the time over that of plain XXH3 over the same blocks, run as many times directly
// after.
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "hashing/blake3.h"
#include "hashing/block_hash.h"
#include "hashing/xxh3.h"
#include "support/alloc_counter.h"
#include "support/instruction_counter.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvr::hashing {
namespace {

constexpr std::size_t kTokens = 8192;

std::vector<TokenId> Prompt() {
  std::vector<TokenId> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 100u);
  return tokens;
}

// The floor: XXH3 over the tokens' bytes, block by block, without any of our code around it.
void HashPlainly(std::span<const TokenId> tokens, std::span<std::uint64_t> out) {
  const auto bytes = std::as_bytes(tokens);
  const std::size_t width = bytes.size() / out.size();
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = Xxh3(bytes.subspan(i * width, width), kBaseSeed);
  benchmark::DoNotOptimize(out.data());
  benchmark::ClobberMemory();
}

double SecondsOfPlain(std::size_t block_size, std::int64_t runs) {
  const auto tokens = Prompt();
  std::vector<std::uint64_t> out(kTokens / block_size);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < runs; ++i)
    HashPlainly(tokens, out);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Report {
 public:
  Report(benchmark::State& state, std::size_t block_size)
      : state_(state),
        block_size_(block_size),
        before_(test::AllocationsOfThisThread()),
        start_(std::chrono::steady_clock::now()) {}
  ~Report() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    const std::uint64_t counted = test::AllocationsOfThisThread() - before_;
    const auto instructions = instructions_.Count();
    const auto runs = static_cast<std::int64_t>(state_.iterations());
    const auto blocks = runs * static_cast<std::int64_t>(kTokens / block_size_);
    state_.SetBytesProcessed(runs * static_cast<std::int64_t>(kTokens * sizeof(TokenId)));
    state_.SetItemsProcessed(blocks);  // items are blocks
    state_.counters["allocs"] = static_cast<double>(counted);
    if (instructions) {
      state_.counters["instructions"] =
          static_cast<double>(*instructions) / static_cast<double>(blocks);
    }
    state_.counters["tokens"] =
        benchmark::Counter(static_cast<double>(runs) * kTokens, benchmark::Counter::kIsRate);
    state_.counters["to_xxh3"] = took.count() / SecondsOfPlain(block_size_, runs);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

 private:
  benchmark::State& state_;
  std::size_t block_size_;
  std::uint64_t before_;
  std::chrono::steady_clock::time_point start_;
  test::InstructionCounter instructions_;
};

void BM_PlainXxh3(benchmark::State& state) {
  const auto block_size = static_cast<std::size_t>(state.range(0));
  const auto tokens = Prompt();
  std::vector<std::uint64_t> out(kTokens / block_size);
  const Report report(state, block_size);
  for (auto _ : state)
    HashPlainly(tokens, out);
}
BENCHMARK(BM_PlainXxh3)->Arg(16)->Arg(32)->Arg(64)->Arg(128)->Arg(512);

// The floor of the floor: inlined, of a size that the compiler knows.
template <std::size_t kBlockSize>
void BM_InlinedXxh3(benchmark::State& state) {
  const auto tokens = Prompt();
  std::vector<std::uint64_t> out(kTokens / kBlockSize);
  const Report report(state, kBlockSize);
  for (auto _ : state) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = XXH3_64bits_withSeed(tokens.data() + i * kBlockSize, kBlockSize * sizeof(TokenId),
                                    kBaseSeed);
    }
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_InlinedXxh3<16>)->Name("BM_InlinedXxh3/16");
BENCHMARK(BM_InlinedXxh3<32>)->Name("BM_InlinedXxh3/32");
BENCHMARK(BM_InlinedXxh3<64>)->Name("BM_InlinedXxh3/64");
BENCHMARK(BM_InlinedXxh3<128>)->Name("BM_InlinedXxh3/128");
BENCHMARK(BM_InlinedXxh3<512>)->Name("BM_InlinedXxh3/512");

void HashBlocksOf(benchmark::State& state, BlockHashing how) {
  how.block_size = static_cast<std::size_t>(state.range(0));
  const auto tokens = Prompt();
  std::vector<BlockHash> out;
  HashBlocks(tokens, how, out);
  const Report report(state, how.block_size);
  for (auto _ : state) {
    HashBlocks(tokens, how, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
}

void BM_HashBlocks(benchmark::State& state) {
  HashBlocksOf(state, {});
}
BENCHMARK(BM_HashBlocks)->Arg(16)->Arg(32)->Arg(64)->Arg(128)->Arg(512);

void BM_HashBlocksEagle(benchmark::State& state) {
  HashBlocksOf(state, {.eagle = true});
}
BENCHMARK(BM_HashBlocksEagle)->Arg(16)->Arg(64);

void BM_HashAndChain(benchmark::State& state) {
  const auto block_size = static_cast<std::size_t>(state.range(0));
  const auto tokens = Prompt();
  const BlockHashing how{.block_size = block_size};
  std::vector<BlockHash> blocks(kTokens);
  std::vector<SequenceHash> chain(kTokens);
  const Report report(state, block_size);
  for (auto _ : state) {
    HashBlocks(tokens, how, blocks);
    ChainHashes(blocks, chain);
    benchmark::DoNotOptimize(chain.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_HashAndChain)->Arg(16)->Arg(64);

// One multimodal object in every block.
void BM_HashBlocksMm(benchmark::State& state) {
  const auto block_size = static_cast<std::size_t>(state.range(0));
  const auto tokens = Prompt();
  const BlockHashing how{.block_size = block_size};
  std::vector<BlockMm> mm;
  for (std::size_t i = 0; i < kTokens / block_size; ++i)
    mm.push_back({i, i});
  std::vector<BlockHash> out(kTokens);
  const Report report(state, block_size);
  for (auto _ : state) {
    HashBlocks(tokens, how, mm, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_HashBlocksMm)->Arg(16)->Arg(64);

void BM_Blake3(benchmark::State& state) {
  const std::vector<std::byte> input(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state)
    benchmark::DoNotOptimize(Blake3Hash(input));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(BM_Blake3)->Arg(200)->Arg(65536);

}  // namespace
}  // namespace kvr::hashing

BENCHMARK_MAIN();
