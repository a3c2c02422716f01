// Everything `kvroute gateway` can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/worker_config.h"
#include "index/options.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "routing/router.h"
#include "service/gateway/gateway_options.h"
#include "tokens/token_provider.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct GatewayConfig {
  GatewayConfig();

  net::HttpServer::Options server;
  std::size_t io_threads = 2;
  Millis drain{30'000};  // for requests under way at SIGTERM
  net::HttpClient::Options client;
  routing::RouterOptions router;
  service::GatewayOptions gateway;
  tokens::TokenProvider::Options tokens;
  ingest::Ingest::Options ingest;
  ingest::PollOptions poll;
  index::IndexOptions index;
  LogLevel log_level = LogLevel::kInfo;
  std::vector<WorkerConfig> workers;

  // One option a field, but the workers, which are the subtree `workers`.
  void Bind(config::OptionTable& table);

  // Takes the workers' adapters over into `gateway`, lets bookings outlast the silence that engines
  // are granted, and checks every part. kInvalidArgument.
  Result<void> Finish();
};

}  // namespace kvr::cmd
