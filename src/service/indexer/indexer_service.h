// The HTTP API of `kvroute indexer`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "metrics/registry.h"
#include "net/http_server.h"
#include "service/indexer/access_log.h"
#include "service/indexer/peer_list.h"
#include "service/indexer/source_registry.h"
#include "service/recovery/warm_start.h"

namespace kvr::service {

// Translates between HTTP and SourceRegistry; every I/O thread may run its handlers. What takes
// long with many ranks or blocks runs on the server's thread aside, in turn: queries and /health
// wait for no dump, page or registration.
//
// * POST /register: follow one (instance, dp_rank); 201, 200 unchanged, 400, 409, 422
// * POST /unregister: stop following; 200, 404
// * GET /workers: who is followed, and how well; 200, 400
// * GET /workers/{id}/rejected: what no index took; 200, 400, 404
// * POST /query: token ids → tokens held; 200, 404, 413, 422
// * POST /query_by_hash: block hashes → the same; 200, 400, 404
// * GET /dump: all blocks as Stored events; 200, 400
// * POST /register_peer: list another indexer; 201, 400
// * POST /deregister_peer: list it no longer; 200, 404
// * GET /peers: who is listed; 200
// * POST /reopen_logs: begin a new file for the access log; 200, 500
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
    bool reference_metrics = false;         // dynamo_kvindexer_* beside our own
    bool strict = false;                    // unknown fields are 422, not a warning in the answer
    std::string instance_name;              // kInstanceHeader of /dump
    std::string trace_id_header = "x-trace-id";  // whose value goes into the access log
    bool repeat_is_conflict = false;  // an identical registration is 409, as the reference says
  };

  struct Parts {
    SourceRegistry& sources;
    PeerList& peers;
    const WarmStart* recovery;  // null when there was nothing to read and nobody to ask at start
    AccessLog* access_log;      // null when there is none
  };

  // All must outlive the service, which must outlive the server it is mounted on.
  IndexerService(const Parts& parts, metrics::Registry& registry, const Clock& clock,
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
