// Workers as an operator writes them, in a configuration file or behind --worker.
#pragma once

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

// One entry of `workers:`:
//
//   - id: 1
//     url: http://10.0.0.1:8000
//     model: llama
//     block_size: 16
//     routing_group: default           # these and the following may be left out
//     dp_size: 2
//     dp_start: 0
//     events: tcp://10.0.0.1:5557      # rank r on port 5557 + r; or a list, one a rank
//     replay: tcp://10.0.0.1:5657      # the same
//                                      # or trtllm+http://10.0.0.1:8000, which is asked for the
//                                      # events of all ranks
//     topic: kv
//     engine: sglang                   # vllm, sglang, trtllm: how digests become numbers
//     media: lenient                   # accept the tier names of more producers
//     adapters: [sql, poems]
//     max_num_batched_tokens: 8192
//     total_kv_blocks: 4000
//     eagle: false
//
// A list with one endpoint for several ranks means that they share the stream. Errors say where.
Result<WorkerConfig> ReadWorker(const config::Node& node);

// All entries of a list; a null node has none.
Result<std::vector<WorkerConfig>> ReadWorkers(const config::Node* list);

// The same from one line: "id=1,url=http://h:8000,model=m,block-size=16,events=tcp://h:5557".
// Several values of one key are joined by '+'.
Result<WorkerConfig> ReadWorkerFlag(std::string_view text);

}  // namespace kvr::cmd
