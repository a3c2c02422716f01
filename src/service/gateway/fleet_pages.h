// What the gateway tells about the fleet: /v1/models, /workers, what workers sent and no
// index took, /health, /ready.
#pragma once

#include <string>

#include "fleet/catalog.h"
#include "index/index_set.h"
#include "net/http_server.h"
#include "net/task.h"
#include "routing/router.h"
#include "service/gateway/engine_watch.h"
#include "service/gateway/gateway_options.h"

namespace kvr::service {

// Thread-safe; reads only. What visits every rank is made on the server's own thread for pages.
class FleetPages {
 public:
  // All must outlive the pages.
  FleetPages(const fleet::Catalog& catalog, const index::IndexSet& indexes,
             const routing::Router& router, const EngineWatch& watch, const GatewayOptions& options)
      : catalog_(catalog), indexes_(indexes), router_(router), watch_(watch), options_(options) {}

  void AddRoutes(net::HttpServer& server);

 private:
  [[nodiscard]] net::HttpResponse Models() const;
  [[nodiscard]] net::HttpResponse Workers() const;
  [[nodiscard]] net::HttpResponse Ready() const;

  const fleet::Catalog& catalog_;
  const index::IndexSet& indexes_;
  const routing::Router& router_;
  const EngineWatch& watch_;
  const GatewayOptions& options_;
};

}  // namespace kvr::service
