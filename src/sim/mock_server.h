// The HTTP API of a mock engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "sim/mock_body.h"
#include "sim/mock_engine.h"
#include "sim/mock_faults.h"
#include "sim/word_tokenizer.h"

namespace kvr::sim {

// As vLLM has it:
//
// * POST /v1/completions, /v1/chat/completions: exactly max_tokens tokens, streamed or not; `usage`
//   says what was really taken from the cache
// * POST /tokenize, /detokenize: WordTokenizer
// * POST /reset_prefix_cache: {"success": bool}
// * GET /v1/models, /health, /metrics: vLLM's metric names
// * POST /mock/fault: see MockFaults
// * GET /mock/blocks: the engine hashes each rank's tiers hold
//
// The header X-data-parallel-rank picks a rank; without it the least busy one is taken.
//
// Runs on the one I/O thread of its runtime; Create and Stop are called from another one.
class MockServer {
 public:
  struct Options {
    MockEngine::Options engine;
    std::string name = "mock-engine-0";
    std::string model = "mock";
    std::uint16_t port = 0;                 // 0 picks a free one
    std::uint32_t max_tokens_default = 16;  // of requests that do not say
    std::size_t body_bytes_max = 64u << 20;
  };

  // Binds everything and serves. `runtime` must have one thread and outlive the server.
  static Result<std::unique_ptr<MockServer>> Create(net::IoRuntime& runtime,
                                                    const Options& options);
  ~MockServer();
  MockServer(const MockServer&) = delete;
  MockServer& operator=(const MockServer&) = delete;

  // Lets requests under way finish for up to `grace`. Blocks; not from the I/O thread.
  void Stop(Millis grace);

  [[nodiscard]] std::string address_port() const { return server_.address_port(); }
  [[nodiscard]] const MockEngine& engine() const { return *engine_; }
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  MockServer(net::IoRuntime& runtime, const Options& options, std::unique_ptr<MockEngine> engine);

  void AddRoutes();
  void CollectMetrics(metrics::SampleSink& sink) const;
  net::Task<void> Generate(openai::Api api, net::HttpExchange& exchange);
  net::Task<void> Stream(net::HttpExchange& exchange, const GenerateRequest& request,
                         Generation& generation, AnswerWriter& writer);
  net::Task<void> AnswerWhole(net::HttpExchange& exchange, Generation& generation,
                              AnswerWriter& writer);
  [[nodiscard]] net::HttpResponse Tokenize(const net::HttpRequest& request) const;
  [[nodiscard]] net::HttpResponse Detokenize(const net::HttpRequest& request) const;
  [[nodiscard]] net::HttpResponse Models() const;
  [[nodiscard]] net::HttpResponse Metrics() const;
  [[nodiscard]] net::HttpResponse Blocks() const;
  // The rank a header asks for: none, or 400.
  [[nodiscard]] Result<std::optional<std::uint32_t>, openai::ApiError> RankOf(
      const net::HttpRequest& request) const;

  const Options options_;
  const WordTokenizer tokenizer_;
  const SystemClock clock_;
  metrics::Registry registry_;
  std::unique_ptr<MockEngine> engine_;
  MockFaults faults_;
  std::uint64_t next_answer_ = 1;
  net::HttpServer server_;
  metrics::Registry::Collector collector_;  // reads the engine: goes before it
};

}  // namespace kvr::sim
