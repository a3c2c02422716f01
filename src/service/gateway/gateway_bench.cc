// What the gateway adds to the time to the first byte. One client with kept connections asks the
// same engine directly and through the gateway, in turn; the engine answers at once with a short
// stream. Blocks have 16 tokens. Inside the timing: one send, the engine, the answer up to its
// first event. Counters are microseconds: p50 and p99 of each way, and `added_*` of the differences
// of neighbouring pairs.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "net/http_client.h"
#include "net/io_runtime.h"
#include "net/stream_load.h"
#include "service/gateway/gateway_test_util.h"

namespace kvr::service {
namespace {

using net::testing::RawClient;

std::string Body(std::size_t tokens) {
  std::string ids = "1";
  for (std::size_t i = 1; i < tokens; ++i)
    ids += fmt::format(",{}", 1'000 + i * 7 % 100'000);
  return fmt::format(R"({{"model":"m","prompt":[{}],"stream":true}})", ids);
}

std::string Request(const std::string& body) {
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

double MicrosToFirstEvent(RawClient& client, const std::string& request) {
  const auto begin = std::chrono::steady_clock::now();
  client.Send(request);
  client.ReadUntil("data: ");
  const auto end = std::chrono::steady_clock::now();
  client.ReadUntil("0\r\n\r\n");
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

using net::testing::Quantile;

void AddedTimeToFirstByte(benchmark::State& state) {
  testing::FakeEngine engine;
  engine.Play(testing::ChatStream(2));
  testing::GatewayUnderTest gateway({.block_size = 16});
  gateway.AddWorker(1, engine.url());
  const std::string url = engine.url();
  RawClient direct(static_cast<std::uint16_t>(std::stoul(url.substr(url.rfind(':') + 1))));
  RawClient through(gateway.port());
  const std::string request = Request(Body(static_cast<std::size_t>(state.range(0))));
  for (int i = 0; i < 20; ++i) {
    MicrosToFirstEvent(direct, request);
    MicrosToFirstEvent(through, request);
  }
  std::vector<double> direct_us;
  std::vector<double> through_us;
  std::vector<double> added_us;
  for (auto _ : state) {
    direct_us.push_back(MicrosToFirstEvent(direct, request));
    through_us.push_back(MicrosToFirstEvent(through, request));
    added_us.push_back(through_us.back() - direct_us.back());
    state.SetIterationTime(through_us.back() / 1e6);
  }
  state.counters["direct_p50"] = Quantile(direct_us, 0.5);
  state.counters["gateway_p50"] = Quantile(through_us, 0.5);
  state.counters["gateway_p99"] = Quantile(through_us, 0.99);
  state.counters["added_p50"] = Quantile(added_us, 0.5);
  state.counters["added_p99"] = Quantile(added_us, 0.99);
}
BENCHMARK(AddedTimeToFirstByte)
    ->Arg(512)
    ->Arg(8'192)
    ->Arg(65'536)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// The same with many streams at a time, each a piece every 20 ms. One thread runs all clients, and
// each of engine and gateway has its own; so on two cores they wait for each other, which is in the
// figures.
void AddedTimeToFirstByteOfMany(benchmark::State& state) {
  constexpr std::size_t kPieces = 16;
  testing::FakeEngine engine;
  testing::Script script = testing::ChatStream(kPieces);
  script.interval = Millis{20};
  engine.Play(std::move(script));
  testing::GatewayUnderTest gateway({.block_size = 16});
  gateway.AddWorker(1, engine.url());
  net::IoRuntime runtime({.threads = 1, .thread_name = "clients"});
  net::HttpClient client(runtime, {});
  net::testing::StreamLoad load;
  load.peer.host = "127.0.0.1";
  load.request.method = "POST";
  load.request.target = "/v1/completions";
  load.request.body = Body(static_cast<std::size_t>(state.range(1)));
  load.request.headers.Add("Content-Type", "application/json");
  load.streams = static_cast<std::size_t>(state.range(0));
  load.length = Millis{20} * kPieces;
  std::vector<double> direct;
  std::vector<double> through;
  for (auto _ : state) {
    for (std::size_t round = 0; round < 2; ++round) {  // the first opens the connections
      direct.clear();
      through.clear();
      load.requests = load.streams * (round == 0 ? 2 : 10);
      load.peer.port = engine.port();
      direct = net::testing::TimesToFirstByte(runtime, client, load);
      load.peer.port = gateway.port();
      through = net::testing::TimesToFirstByte(runtime, client, load);
    }
  }
  state.counters["direct_p50"] = Quantile(direct, 0.5);
  state.counters["direct_p99"] = Quantile(direct, 0.99);
  state.counters["added_p50"] = Quantile(through, 0.5) - Quantile(direct, 0.5);
  state.counters["added_p99"] = Quantile(through, 0.99) - Quantile(direct, 0.99);
}
BENCHMARK(AddedTimeToFirstByteOfMany)
    ->ArgNames({"streams", "tokens"})
    ->Args({200, 512})
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvr::service

BENCHMARK_MAIN();
