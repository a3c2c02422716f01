// The HTTP API of `kvroute indexer`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "service/indexer/source_registry.h"

namespace kvr::service {

// Translates between HTTP and SourceRegistry; every I/O thread may run its handlers.
//
// * POST /register: follow one (instance, dp_rank); 201, 200 unchanged, 400, 409, 422
// * POST /unregister: stop following; 200, 404
// * GET /workers: who is followed, and how well; 200
// * GET /workers/{id}/rejected: what no index took; 200, 400, 404
// * POST /query: token ids → tokens held; 200, 404, 413, 422
// * POST /query_by_hash: block hashes → the same; 200, 400, 404
// * GET /dump: all blocks as Stored events; 200
// * GET /health: the process is alive; 200
// * GET /ready: fit to answer; 200, 503 with reasons
// * GET /metrics: Prometheus text; 200
class IndexerService {
 public:
  struct Options {
    std::size_t query_bytes_max = 8u << 20;
    std::size_t body_bytes_max = 2u << 20;  // all other routes
    std::size_t min_initial_workers = 0;    // /ready says no before so many are registered
    bool ready_requires_exact = false;      // /ready also wants one rank in state exact
    bool strict = false;                    // unknown fields are 422, not a warning in the answer
    bool repeat_is_conflict = false;  // an identical registration is 409, as the reference says
  };

  // All must outlive the service, which must outlive the server it is mounted on.
  IndexerService(SourceRegistry& sources, metrics::Registry& registry, const Clock& clock,
                 const Options& options);
  ~IndexerService();
  IndexerService(const IndexerService&) = delete;
  IndexerService& operator=(const IndexerService&) = delete;

  // Adds the routes. Once, before the server starts.
  void Mount(net::HttpServer& server);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::service
