// Everything `kvroute gateway` can be told.
#pragma once

#include <vector>

#include "base/result.h"
#include "cmd/recovery_config.h"
#include "cmd/server_config.h"
#include "cmd/worker_config.h"
#include "net/http_client.h"
#include "routing/router.h"
#include "service/gateway/gateway_options.h"
#include "tokens/token_provider.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct GatewayConfig {
  GatewayConfig();

  ServerConfig server{"gateway", 8080};
  net::HttpClient::Options client;
  routing::RouterOptions router;
  service::GatewayOptions gateway;
  tokens::TokenProvider::Options tokens;
  RecoveryConfig recovery;
  std::vector<WorkerConfig> workers;

  // One option a field, but the workers, which are the subtree `workers`.
  void Bind(config::OptionTable& table);

  // Takes the workers' adapters over into `gateway`, lets bookings outlast the silence that engines
  // are granted, and checks every part. kInvalidArgument.
  Result<void> Finish();
};

}  // namespace kvr::cmd
