// What a relay adds to a stream: time to the first byte and allocations per piece.
//
// One I/O thread runs all of it: the upstream server, the relay and the clients, so every figure
// includes the work of all three. "direct" asks the upstream, "relayed" goes through the relay. The
// upstream sends its first piece at once and then one per interval, as engines send tokens. Each
// client has one request under way and starts the next when it has ended; their first ones are
// spread over the length of a request. Time is taken from before Open to the return of the first
// Read, on kept-alive connections.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/stream_load.h"

namespace {
// Relaxed: read only while nothing else runs.
std::atomic<std::uint64_t> allocations{0};
}  // namespace

// Not inlined: g++ takes malloc and free inside a pair of replaced operators for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace kvr::net {
namespace {

// A piece like a token of a chat stream.
const std::string kPiece =
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,"
    "\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n";

struct Load {
  std::size_t streams;
  std::size_t pieces;
  Nanos interval;
};

class Fixture {
 public:
  Fixture() {
    upstream_.Route("POST", "/v1/completions", [](HttpExchange& exchange) -> Task<void> {
      const std::size_t pieces = std::stoul(exchange.request().body);
      const std::string_view interval = *exchange.request().headers.Find("X-Interval-Ns");
      const Nanos pause{std::stoll(std::string(interval))};
      HttpHeaders headers;
      headers.Add("Content-Type", "text/event-stream");
      auto sent = co_await exchange.BeginStream(200, headers);
      for (std::size_t i = 0; sent && i < pieces; ++i) {
        sent = co_await exchange.Write(kPiece);
        co_await Sleep(pause);
      }
      (void)co_await exchange.EndStream();
    });
    KVR_CHECK(upstream_.Start());
    upstream_url_ = Peer(upstream_.port());
    relay_.Route("POST", "/v1/completions",
                 [this](HttpExchange& exchange) { return Relay(exchange); });
    KVR_CHECK(relay_.Start());
  }
  ~Fixture() {
    relay_.Stop(Millis{1'000});
    upstream_.Stop(Millis{1'000});
  }

  // Runs `requests` requests, `load.streams` at a time, and returns the times to the first byte.
  std::vector<double> Run(bool relayed, const Load& load, std::size_t requests) {
    testing::StreamLoad streams;
    streams.peer = Peer(relayed ? relay_.port() : upstream_.port());
    streams.request.method = "POST";
    streams.request.target = "/v1/completions";
    streams.request.body = std::to_string(load.pieces);
    streams.request.headers.Add("X-Interval-Ns", std::to_string(load.interval.count()));
    streams.streams = load.streams;
    streams.requests = requests;
    streams.length = load.interval * static_cast<std::int64_t>(load.pieces);
    return testing::TimesToFirstByte(runtime_, client_, streams);
  }

 private:
  static Url Peer(std::uint16_t port) {
    Url url;
    url.host = "127.0.0.1";
    url.port = port;
    return url;
  }

  Task<void> Relay(HttpExchange& exchange) {
    auto opened = co_await client_.Open(upstream_url_, exchange.request());
    KVR_CHECK(opened);
    HttpStream& stream = **opened;
    auto sent = co_await exchange.BeginStream(stream.status(), stream.headers());
    while (sent) {
      const auto piece = co_await stream.Read();
      KVR_CHECK(piece);
      if (piece->empty()) break;
      sent = co_await exchange.Write(*piece);
    }
    (void)co_await exchange.EndStream();
  }

  metrics::Registry registry_;
  IoRuntime runtime_{{.threads = 1, .thread_name = "bench"}};
  HttpClient client_{runtime_, {}};
  HttpServer upstream_{runtime_, registry_, {.name = "upstream"}};
  HttpServer relay_{runtime_, registry_, {.name = "relay"}};
  Url upstream_url_;
};

using testing::Quantile;

void TimeToFirstByte(benchmark::State& state) {
  const Load load{static_cast<std::size_t>(state.range(0)), 16, Millis{state.range(1)}};
  const std::size_t requests = std::max<std::size_t>(load.streams * 5, 100);
  Fixture fixture;
  fixture.Run(true, load, load.streams * 2);  // opens the connections
  fixture.Run(false, load, load.streams * 2);
  std::vector<double> direct;
  std::vector<double> relayed;
  for (auto _ : state) {
    for (const bool through : {false, true}) {  // interleaved, so that both see the same machine
      const auto times = fixture.Run(through, load, requests);
      auto& all = through ? relayed : direct;
      all.insert(all.end(), times.begin(), times.end());
    }
  }
  const double direct_p50 = Quantile(direct, 0.5);
  const double direct_p99 = Quantile(direct, 0.99);
  state.counters["direct_p50_us"] = direct_p50;
  state.counters["direct_p99_us"] = direct_p99;
  state.counters["added_p50_us"] = Quantile(relayed, 0.5) - direct_p50;
  state.counters["added_p99_us"] = Quantile(relayed, 0.99) - direct_p99;
}
BENCHMARK(TimeToFirstByte)
    ->ArgNames({"streams", "interval_ms"})
    ->Args({1, 1})
    ->Args({200, 20})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// The difference between long and short streams, so that what a request costs cancels out. Covers
// producer, relay and consumer of the piece.
void AllocationsPerPiece(benchmark::State& state) {
  const auto streams = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kShort = 10;
  constexpr std::size_t kLong = 210;
  Fixture fixture;
  const auto count = [&](std::size_t pieces) {
    const std::uint64_t before = allocations.load(std::memory_order_relaxed);
    fixture.Run(true, Load{streams, pieces, Nanos{1}}, streams);
    return allocations.load(std::memory_order_relaxed) - before;
  };
  fixture.Run(true, Load{streams, kLong, Nanos{1}}, streams * 2);
  double extra = 0;
  double per_request = 0;
  for (auto _ : state) {
    const auto few = static_cast<double>(count(kShort));
    extra += static_cast<double>(count(kLong)) - few;
    per_request += few;
  }
  const auto runs = static_cast<double>(state.iterations() * state.range(0));
  state.counters["allocations_per_piece"] = extra / (runs * (kLong - kShort));
  state.counters["allocations_per_request"] = per_request / runs;
}
BENCHMARK(AllocationsPerPiece)->Arg(1)->Arg(200)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kvr::net

BENCHMARK_MAIN();
