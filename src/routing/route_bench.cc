// One decision, from token ids or from hashes to a booked rank, and its release.
//
// Every rank holds the first quarter of the prompt, every eighth rank all of it, and each has four
// other requests in flight that share that quarter. Inside the timing: Router::Route and the end of
// the decision.
#include <cstdint>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "routing/router_fixture.h"
#include "support/alloc_counter.h"

namespace kvr::routing {
namespace {

enum class PromptAs : std::uint8_t { kTokens, kHashes };

std::vector<TokenId> Variant(const std::vector<TokenId>& prompt, std::uint32_t seed) {
  auto tokens = MakePrompt(1000 + seed, prompt.size() / RouterFixture::kBlockSize);
  std::copy_n(prompt.begin(), prompt.size() / 4, tokens.begin());
  return tokens;
}

template <PromptAs kAs>
void BM_Route(benchmark::State& state) {
  const auto ranks = static_cast<std::uint64_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  RouterOptions options;
  options.explained_max = static_cast<std::size_t>(state.range(2));
  RouterFixture fixture(options);
  const auto prompt = MakePrompt(1, depth);
  for (std::uint64_t worker = 0; worker < ranks; ++worker) {
    fixture.AddWorker(worker);
    fixture.Store({WorkerId{worker}, 0}, prompt, 0, worker % 8 == 0 ? depth : depth / 4);
  }
  std::vector<Decision> live;
  for (std::uint32_t i = 0; i < 4 * ranks; ++i) {
    const auto other = Variant(prompt, i);
    RouteRequest request = RequestFor(other);
    request.policy = sched::PolicyKind::kRoundRobin;
    live.push_back(*fixture.router.Route(request));
  }

  std::vector<BlockHash> blocks;
  hashing::HashBlocks(prompt, {.block_size = RouterFixture::kBlockSize}, blocks);
  std::vector<SequenceHash> sequence;
  hashing::ChainHashes(blocks, sequence);
  RouteRequest request = RequestFor(prompt);
  if (kAs == PromptAs::kHashes) {
    request.tokens = {};
    request.block_hashes = blocks;
    request.sequence_hashes = sequence;
    request.isl_tokens = prompt.size();
  }
  request.request_id = "0f8fad5b-d9cb-469f-a165-70867728950e";
  std::uint64_t allocations = test::AllocationsOfThisThread();
  for (auto _ : state) {
    auto decision = fixture.router.Route(request);
    benchmark::DoNotOptimize(decision);
  }
  allocations = test::AllocationsOfThisThread() - allocations;
  state.counters["allocs/op"] =
      static_cast<double>(allocations) / static_cast<double>(state.iterations());
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"ranks", "blocks", "explained"});
  for (const std::int64_t ranks : {8, 64, 512}) {
    for (const std::int64_t blocks : {32, 256})
      bench->Args({ranks, blocks, 16});
  }
  bench->Args({512, 256, 0});
}

BENCHMARK_TEMPLATE(BM_Route, PromptAs::kTokens)->Name("Route/tokens")->Apply(Sizes);
BENCHMARK_TEMPLATE(BM_Route, PromptAs::kHashes)->Name("Route/hashes")->Apply(Sizes);

}  // namespace
}  // namespace kvr::routing

BENCHMARK_MAIN();
