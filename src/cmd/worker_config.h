// Workers as an operator writes them, in a configuration file or behind --worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/node.h"
#include "fleet/catalog.h"

namespace kvr::cmd {

struct WorkerConfig {
  fleet::WorkerSpec spec;
  bool share_stream = false;          // all ranks publish through the one stream that is given
  std::vector<std::string> adapters;  // LoRA adapters this worker serves
};

// "tcp://host:5557" with `rank` added to the port; none when there is no number it can be added to.
std::optional<std::string> EndpointOfRank(const std::string& endpoint, std::uint32_t rank);

// A `workers:` list whose first entry has every key, with what each means.
extern const std::string_view kWorkersExample;

// One entry of `workers:`, as in the example. A list with one endpoint for several ranks means that
// they share the stream. Errors say where.
Result<WorkerConfig> ReadWorker(const config::Node& node);

// All entries of a list; a null node has none.
Result<std::vector<WorkerConfig>> ReadWorkers(const config::Node* list);

// What stands in a list of `workers:` that means the same, as JSON.
std::string WorkersJson(const std::vector<WorkerConfig>& workers);

// One worker from one line: "id=1,url=http://h:8000,model=m,block-size=16,events=tcp://h:5557".
// Several values of one key are joined by '+'.
Result<WorkerConfig> ReadWorkerFlag(std::string_view text);

// Those of a list, then those of --worker.
Result<std::vector<WorkerConfig>> ReadAllWorkers(const config::Node* list,
                                                 const std::vector<std::string>& flags);

}  // namespace kvr::cmd
