// Everything `kvroute agent` can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/server_config.h"
#include "cmd/worker_config.h"
#include "model/ids.h"
#include "service/agent/published_rank.h"

namespace kvr::config {
class OptionTable;
}

namespace kvr::cmd {

struct AgentConfig {
  AgentConfig();

  ServerConfig server{"agent", 8095};
  // The engine that is followed, and further sources that tell of its cache, with ids of their own.
  std::vector<WorkerConfig> workers;

  // Of every rank; its own rank and endpoints come from RankOptions.
  service::PublishedRank::Options rank;
  std::string endpoint = "tcp://127.0.0.1:*";         // rank r on the port + r
  std::string replay_endpoint = "tcp://127.0.0.1:*";  // the same; empty: none

  void Bind(config::OptionTable& table);

  // After loading: checks everything. kInvalidArgument.
  Result<void> Finish();

  // What one of the worker's ranks is published with; `publisher_id` is of this process.
  [[nodiscard]] Result<service::PublishedRank::Options> RankOptions(
      Rank of, std::uint64_t publisher_id) const;
};

}  // namespace kvr::cmd
