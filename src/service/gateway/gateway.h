// The OpenAI-compatible front: every request goes to the rank with the best balance of cache and
// load, and the answer comes back as the engine wrote it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "metrics/registry.h"
#include "model/ids.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/task.h"
#include "openai/api_error.h"
#include "openai/request.h"
#include "routing/router.h"
#include "service/gateway/dispatcher.h"
#include "service/gateway/engine_watch.h"
#include "service/gateway/fleet_pages.h"
#include "service/gateway/gateway_metrics.h"
#include "service/gateway/gateway_options.h"
#include "service/rank_watch.h"
#include "service/recovery/warm_start.h"
#include "tokens/token_provider.h"

namespace kvr::service {

// Routes: POST /v1/completions, POST /v1/chat/completions, GET /v1/models, /workers, /health,
// /ready, /metrics.
//
// Every answer to a completion names its worker, rank, policy, predicted cached tokens and how far
// the prediction can be trusted in x-kvroute-* headers. Errors have OpenAI's shape. Thread-safe:
// handlers run on all I/O threads and share nothing but the objects below.
class Gateway {
 public:
  struct Parts {
    routing::Router& router;
    const fleet::Catalog& catalog;
    const index::IndexSet& indexes;
    net::HttpClient& client;
    const Clock& clock;
    metrics::Registry& registry;
    const WarmStart* warm = nullptr;  // null when there was nothing to begin with
  };

  // `options` is valid. Everything in `parts` must outlive the gateway; the gateway must outlive
  // the server its routes were added to. `id_seed` makes request ids differ between processes.
  Gateway(const Parts& parts, const GatewayOptions& options,
          const tokens::TokenProvider::Options& tokens, std::uint64_t id_seed);
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Before the server starts.
  void AddRoutes(net::HttpServer& server);

  // Finds out which engines can be reached, and logs what happens to their event streams. Runs on
  // `runtime` until that stops; without it GET /ready says no, and an engine that a request could
  // not reach gets further ones only when nobody else is left.
  void WatchFleet(net::IoRuntime& runtime);

  [[nodiscard]] std::size_t in_flight() const { return in_flight_.load(); }

 private:
  class Slot;

  // A request that was read, and who may serve it.
  struct Wanted {
    openai::Request request;
    Partition partition;
    bool is_adapter = false;  // the model name is a LoRA adapter's
  };

  net::Task<void> Complete(openai::Api api, net::HttpExchange& exchange);
  net::Task<void> Serve(openai::Api api, net::HttpExchange& exchange, RequestRecord& record);
  net::Task<void> Refuse(net::HttpExchange& exchange, const openai::ApiError& error);
  Result<Wanted, openai::ApiError> Read(openai::Api api, const net::HttpRequest& incoming) const;
  // Engines that may be asked for the tokens: a few of the partition, others each time.
  std::vector<net::Url> EnginesToAsk(const Wanted& wanted);
  // Borrows from both.
  static routing::RouteRequest RouteOf(const Wanted& wanted, const tokens::Tokens& tokens,
                                       std::size_t body_bytes);
  net::HttpRequest RequestForEngine(net::HttpRequest& incoming);
  void WarnWithoutTokens(const tokens::Tokens& tokens);
  std::string NextRequestId();

  const Parts parts_;
  const GatewayOptions options_;
  GatewayMetrics metrics_;
  EngineWatch watch_;
  RankWatch rank_watch_;
  Dispatcher dispatcher_;
  tokens::TokenProvider tokens_;
  FleetPages pages_;
  const std::uint64_t id_seed_;
  LogLimiter warn_limit_{std::chrono::seconds(10)};
  std::atomic<std::uint64_t> next_id_{0};
  std::atomic<std::size_t> turn_{0};
  std::atomic<std::size_t> in_flight_{0};
  metrics::Registry::Collector collector_;  // last: stops before what it reads goes
};

}  // namespace kvr::service
