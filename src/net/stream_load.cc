#include "net/stream_load.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/check.h"

namespace kvr::net::testing {
namespace {

// All of it is used by the one thread of the runtime.
struct Run {
  const StreamLoad& load;
  HttpClient& client;
  std::size_t left;
  std::size_t running;
  Signal ended;
  std::vector<double> times;
};

Task<void> Client(Run& run, std::size_t number) {
  using SteadyClock = std::chrono::steady_clock;
  const StreamLoad& load = run.load;
  co_await Sleep(load.length * static_cast<std::int64_t>(number) /
                 static_cast<std::int64_t>(load.streams));
  while (run.left > 0) {
    --run.left;
    const auto start = SteadyClock::now();
    auto stream = co_await run.client.Open(load.peer, load.request);
    KVR_CHECK(stream);
    KVR_CHECK((*stream)->status() == 200);
    auto piece = co_await (*stream)->Read();
    const std::chrono::duration<double, std::micro> time = SteadyClock::now() - start;
    run.times.push_back(time.count());
    while (piece && !piece->empty()) {
      piece = co_await (*stream)->Read();
    }
    KVR_CHECK(piece);
  }
  --run.running;
  run.ended.Notify();
}

}  // namespace

std::vector<double> TimesToFirstByte(IoRuntime& runtime, HttpClient& client,
                                     const StreamLoad& load) {
  Run run{load, client, load.requests, load.streams, {}, {}};
  run.times.reserve(load.requests);
  runtime.RunBlocking([&]() -> Task<void> {
    for (std::size_t i = 0; i < load.streams; ++i)
      runtime.Spawn([&run, i] { return Client(run, i); });
    while (run.running > 0) {
      co_await run.ended.Wait();
    }
  });
  return std::move(run.times);
}

double Quantile(std::vector<double>& values, double q) {
  KVR_CHECK(!values.empty());
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace kvr::net::testing
