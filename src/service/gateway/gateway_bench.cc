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

#include "service/gateway/gateway_test_util.h"

namespace kvr::service {
namespace {

using net::testing::RawClient;

std::string Request(std::size_t tokens) {
  std::string ids = "1";
  for (std::size_t i = 1; i < tokens; ++i)
    ids += fmt::format(",{}", 1'000 + i * 7 % 100'000);
  const std::string body = fmt::format(R"({{"model":"m","prompt":[{}],"stream":true}})", ids);
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

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(p * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

void AddedTimeToFirstByte(benchmark::State& state) {
  testing::FakeEngine engine;
  engine.Play(testing::ChatStream(2));
  testing::GatewayUnderTest gateway({.block_size = 16});
  gateway.AddWorker(1, engine.url());
  const std::string url = engine.url();
  RawClient direct(static_cast<std::uint16_t>(std::stoul(url.substr(url.rfind(':') + 1))));
  RawClient through(gateway.port());
  const std::string request = Request(static_cast<std::size_t>(state.range(0)));
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
  state.counters["direct_p50"] = Percentile(direct_us, 0.5);
  state.counters["gateway_p50"] = Percentile(through_us, 0.5);
  state.counters["gateway_p99"] = Percentile(through_us, 0.99);
  state.counters["added_p50"] = Percentile(added_us, 0.5);
  state.counters["added_p99"] = Percentile(added_us, 0.99);
}
BENCHMARK(AddedTimeToFirstByte)
    ->Arg(512)
    ->Arg(8'192)
    ->Arg(65'536)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvr::service

BENCHMARK_MAIN();
