// Everything `kvroute indexer` can be told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/recovery_config.h"
#include "cmd/server_config.h"
#include "model/ids.h"
#include "service/indexer/access_log.h"
#include "service/indexer/indexer_service.h"
#include "service/indexer/source_registry.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct IndexerConfig {
  ServerConfig server{"indexer", 8090};
  service::SourceRegistry::Options registry;
  RecoveryConfig recovery;
  service::AccessLog::Options access_log;  // none when its path is empty
  service::IndexerService::Options service;

  // Followed from the start: "worker_id[:dp_rank]=zmq_endpoint".
  std::vector<std::string> workers;
  std::uint32_t block_size = 0;  // tokens, of `workers`; 0: not given
  Partition partition{"default", "default"};

  void Bind(config::OptionTable& table);

  // After loading: completes and checks everything. kInvalidArgument.
  Result<void> Finish();

  // `workers` as registrations. kInvalidArgument.
  [[nodiscard]] Result<std::vector<service::SourceRegistry::Request>> InitialSources() const;
};

}  // namespace kvr::cmd
