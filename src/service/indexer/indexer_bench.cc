// One long prompt asked of an indexer over HTTP: the whole way, and its parts. A rank holds all of
// the prompt's blocks, which have 16 tokens; ids are uniform below 151,936. `LongPrompt` is timed
// by a client with a kept connection, from the first byte sent to the last received, on the same
// machine: server and client share its cores. `server_us` is the server's part of it, from the last
// byte of the request to the whole answer: reading, hashing, matching and writing.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"
#include "fleet/catalog.h"
#include "hashing/block_hash.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/net_test_util.h"
#include "service/indexer/answers.h"
#include "service/indexer/bodies.h"
#include "service/indexer/indexer_service.h"
#include "service/indexer/source_registry.h"
#include "wire/msgpack_writer.h"

namespace kvr::service {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr const char* kServer = "indexer";
const Partition kPartition{"m", "default"};

std::vector<TokenId> Prompt(std::size_t tokens) {
  Rng rng(1);
  std::vector<TokenId> prompt(tokens);
  for (TokenId& token : prompt)
    token = static_cast<TokenId>(rng.Below(151'936));
  return prompt;
}

std::string QueryOf(const std::vector<TokenId>& prompt, BodyForm form) {
  std::string body;
  if (form == BodyForm::kMsgpack) {
    wire::MsgpackWriter writer(body);
    writer.Map(2);
    writer.Text("model_name");
    writer.Text(kPartition.model_name);
    writer.Text("token_ids");
    writer.Array(prompt.size());
    for (const TokenId token : prompt)
      writer.Uint(token);
    return body;
  }
  for (const TokenId token : prompt)
    body += fmt::format("{}{}", body.empty() ? "" : ",", token);
  return fmt::format(R"({{"model_name":"{}","token_ids":[{}]}})", kPartition.model_name, body);
}

std::vector<BlockHash> Hashed(const std::vector<TokenId>& prompt) {
  hashing::BlockHashing how;
  how.block_size = kBlockSize;
  how.seed = hashing::Seed("", "");
  std::vector<BlockHash> blocks;
  hashing::HashBlocks(prompt, how, {}, blocks);
  return blocks;
}

BodyForm FormOf(const benchmark::State& state) {
  return state.range(1) == 0 ? BodyForm::kJson : BodyForm::kMsgpack;
}

class Indexer {
 public:
  Indexer() {
    service_.Mount(server_);
    KVR_CHECK(server_.Start().has_value());
  }
  ~Indexer() {
    server_.Stop(Millis{0});
    ingest_.Stop();
    runtime_.Stop();
  }

  // Registers a rank and puts the prompt's blocks into its index.
  void Hold(const std::vector<TokenId>& prompt) {
    const Rank rank{WorkerId{1}, 0};
    fleet::EventSource nobody;
    nobody.endpoint = "tcp://127.0.0.1:9";
    KVR_CHECK(sources_.Register({rank, kPartition, nobody, kBlockSize, false}).has_value());
    const auto index = sources_.FindIndex(kPartition);
    const auto slot = (*index)->index->FindRank(rank);
    std::vector<PlacedBlock> blocks;
    for (const BlockHash block : Hashed(prompt))
      blocks.push_back({EngineHash{blocks.size() + 1}, block});
    PlacementEvent event;
    event.rank = rank;
    event.blocks = blocks;
    KVR_CHECK((*index)->index->Apply(*slot, event).status == index::ApplyStatus::kOk);
  }

  [[nodiscard]] std::shared_ptr<index::PartitionIndex> index() {
    return *sources_.FindIndex(kPartition);
  }
  [[nodiscard]] auto workers() const { return sources_.catalog().snapshot(); }
  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  // Seconds that the server took for queries, each one counted.
  [[nodiscard]] const metrics::Histogram& handled() {
    return registry_.AddHistogram("kvr_net_http_request_seconds", "", {},
                                  {{"server", kServer}, {"route", "POST /query"}});
  }

 private:
  SystemClock clock_;
  metrics::Registry registry_;
  net::IoRuntime runtime_{{1, "http"}};
  std::unique_ptr<net::EventTransport> transport_ = net::MakeZmqTransport({});
  fleet::Catalog catalog_;
  index::IndexSet indexes_{index::IndexOptions{}};
  ingest::Ingest ingest_{*transport_, clock_, registry_, {}};
  StreamStart streams_{catalog_, indexes_, ingest_, clock_, {}};
  SourceRegistry sources_{catalog_, indexes_, streams_, clock_, {}};
  PeerList peers_;
  IndexerService service_{{sources_, peers_, nullptr, nullptr}, registry_, clock_, {}};
  net::HttpServer server_{runtime_, registry_, {.name = kServer}};
};

void LongPrompt(benchmark::State& state) {
  const auto prompt = Prompt(static_cast<std::size_t>(state.range(0)));
  Indexer indexer;
  indexer.Hold(prompt);
  const std::string body = QueryOf(prompt, FormOf(state));
  const std::string request = fmt::format(
      "POST /query HTTP/1.1\r\nHost: i\r\nContent-Type: application/{}\r\nContent-Length: "
      "{}\r\n\r\n{}",
      FormOf(state) == BodyForm::kJson ? "json" : "msgpack", body.size(), body);
  net::testing::RawClient client(indexer.port());
  for (auto _ : state) {
    client.Send(request);
    const std::string answer = client.ReadAnswer();
    if (answer.find(fmt::format("\"0\":{}", prompt.size() / kBlockSize * kBlockSize)) ==
        std::string::npos) {
      state.SkipWithError(answer.substr(0, 300).c_str());
    }
  }
  state.counters["bytes"] = static_cast<double>(body.size());
  const metrics::Histogram& handled = indexer.handled();
  state.counters["server_us"] = handled.sum() / static_cast<double>(handled.count()) * 1e6;
}
BENCHMARK(LongPrompt)
    ->ArgsProduct({{8'192, 1'000'000}, {0, 1}})
    ->ArgNames({"tokens", "msgpack"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void ReadBody(benchmark::State& state) {
  const std::string body = QueryOf(Prompt(static_cast<std::size_t>(state.range(0))), FormOf(state));
  for (auto _ : state)
    benchmark::DoNotOptimize(ReadQueryBody(body, FormOf(state)));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}
BENCHMARK(ReadBody)
    ->ArgsProduct({{8'192, 1'000'000}, {0, 1}})
    ->ArgNames({"tokens", "msgpack"})
    ->Unit(benchmark::kMicrosecond);

void HashAndMatch(benchmark::State& state) {
  const auto prompt = Prompt(static_cast<std::size_t>(state.range(0)));
  Indexer indexer;
  indexer.Hold(prompt);
  const auto index = indexer.index();
  OverlapScores scores;
  for (auto _ : state) {
    index->index->Match(Hashed(prompt), {.device_holders = true}, scores);
    KVR_CHECK(scores.scored().size() == 1);
  }
}
BENCHMARK(HashAndMatch)->Arg(8'192)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);

void WriteAnswer(benchmark::State& state) {
  const auto prompt = Prompt(static_cast<std::size_t>(state.range(0)));
  Indexer indexer;
  indexer.Hold(prompt);
  OverlapScores scores;
  indexer.index()->index->Match(Hashed(prompt), {.device_holders = true}, scores);
  const auto workers = indexer.workers();
  for (auto _ : state)
    benchmark::DoNotOptimize(QueryAnswer(scores, kBlockSize, workers->In(kPartition), {}));
}
BENCHMARK(WriteAnswer)->Arg(8'192)->Arg(1'000'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvr::service

BENCHMARK_MAIN();
