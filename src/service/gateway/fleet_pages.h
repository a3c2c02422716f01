// What the gateway tells about the fleet: /v1/models, /workers, what workers sent and no
// index took, /health, /ready, and /dump where it is wanted.
#pragma once

#include <string>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "net/http_server.h"
#include "net/task.h"
#include "routing/router.h"
#include "service/gateway/engine_watch.h"
#include "service/gateway/gateway_options.h"
#include "service/recovery/warm_start.h"

namespace kvr::service {

// Thread-safe; reads only. What visits every rank is made on the server's own thread for pages.
class FleetPages {
 public:
  // All must outlive the pages. `warm` may be null.
  FleetPages(const fleet::Catalog& catalog, const index::IndexSet& indexes,
             const routing::Router& router, const EngineWatch& watch, const Clock& clock,
             const WarmStart* warm, const GatewayOptions& options)
      : catalog_(catalog),
        indexes_(indexes),
        router_(router),
        watch_(watch),
        clock_(clock),
        warm_(warm),
        options_(options) {}

  void AddRoutes(net::HttpServer& server);

 private:
  [[nodiscard]] net::HttpResponse Models() const;
  [[nodiscard]] net::HttpResponse Workers() const;
  [[nodiscard]] net::HttpResponse Ready() const;
  net::Task<void> Dump(net::HttpServer& server, net::HttpExchange& exchange) const;

  const fleet::Catalog& catalog_;
  const index::IndexSet& indexes_;
  const routing::Router& router_;
  const EngineWatch& watch_;
  const Clock& clock_;
  const WarmStart* const warm_;
  const GatewayOptions& options_;
};

}  // namespace kvr::service
