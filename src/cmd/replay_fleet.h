// A fleet of mock engines with a gateway in front, as child processes, for one arm of a replay.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/child_process.h"
#include "net/http.h"

namespace kvr::cmd {

struct FleetOptions {
  std::uint32_t engines = 4;
  std::uint32_t ranks = 1;               // data-parallel ranks an engine
  std::uint32_t block_size = 16;         // tokens
  std::uint32_t device_blocks = 16'384;  // KV blocks a rank
  std::uint32_t host_blocks = 0;         // blocks of the CPU tier a rank; 0: none
  std::string dialect = "vllm-0.24";
  std::string model = "mock";
  double speedup = 1;
  std::uint64_t seed = 1;  // of the engines' block hashes
  std::string policy = "kv";
  std::vector<std::string> gateway_words;  // further words for `kvroute gateway`
};

// Everything in it is cold: no engine has cached anything. Ends with the object.
class Fleet {
 public:
  // Starts the engines, then the gateway, and waits until the gateway sees every rank as exact.
  // kUnavailable or kTimeout say which of them did not come up.
  static Result<Fleet> Start(const FleetOptions& options);

  [[nodiscard]] const net::Url& gateway() const { return gateway_url_; }
  // "worker/rank" of every rank, as the gateway's answers name them.
  [[nodiscard]] const std::vector<std::string>& ranks() const { return ranks_; }

  // Ends gateway and engines in this order. kInternal when one of them did not end by itself with
  // exit code 0.
  Result<void> Stop();

 private:
  Fleet(ChildProcess mock, ChildProcess gateway)
      : mock_(std::move(mock)), gateway_(std::move(gateway)) {}

  ChildProcess mock_;
  ChildProcess gateway_;
  net::Url gateway_url_;
  std::vector<std::string> ranks_;
};

}  // namespace kvr::cmd
