#include "cmd/gateway_config.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "config/option_table.h"

namespace kvr::cmd {
namespace {

// Between two signs of life of a request: until the engine is reached, has taken the request, and
// answers.
Nanos LongestSilence(const net::HttpClient::Options& client) {
  constexpr Millis kYear = std::chrono::hours(24 * 365);  // far from what a clock can count
  return std::min(client.connect_timeout, kYear) + 2 * std::min(client.read_timeout, kYear);
}

void BindClient(GatewayConfig& config, config::OptionTable& table) {
  net::HttpClient::Options& client = config.client;
  table.Bind("engine", "connect_timeout_ms", &client.connect_timeout, "To reach an engine",
             Millis{1});
  table.Bind("engine", "read_timeout_ms", &client.read_timeout,
             "Longest silence of an engine before and within its answer", Millis{1});
  table.Bind("engine", "idle_connections_max", &client.idle_connections_max,
             "Kept for reuse, per thread and engine");
}

void BindGateway(GatewayConfig& config, config::OptionTable& table) {
  service::GatewayOptions& gateway = config.gateway;
  table.Bind("gateway", "in_flight_max", &gateway.in_flight_max,
             "Requests answered at once; beyond: 429", std::size_t{1});
  table
      .Bind("gateway", "body_bytes_max", &gateway.body_bytes_max,
            "Longest request body; beyond: 413", std::size_t{1})
      .Unit("bytes");
  table.Bind("gateway", "attempts_max", &gateway.attempts_max,
             "Engines tried for a request before the first byte", std::size_t{1}, std::size_t{64});
  table
      .Bind("gateway", "stream_line_bytes_max", &gateway.stream_line_bytes_max,
            "Longer stream lines are passed on unread", std::size_t{1})
      .Unit("bytes");
  table
      .Bind("gateway", "answer_bytes_read_max", &gateway.answer_bytes_read_max,
            "Answers up to this length are searched for usage")
      .Unit("bytes");
  table.Bind("gateway", "serve_dump", &gateway.serve_dump,
             "Answer GET /dump, for which `recovery.peers` of other routers ask; it is on the port "
             "of the clients, and long");
  service::EngineWatch::Options& watch = gateway.engine_watch;
  table.Bind("engine", "probe_first_ms", &watch.probe_first,
             "An engine that cannot be reached is asked for its health after so long", Millis{1});
  table.Bind("engine", "probe_max_ms", &watch.probe_max, "... then after twice as long, up to this",
             Millis{1});
  table.Bind("engine", "probe_timeout_ms", &watch.probe_timeout, "For the answer to that",
             Millis{1});
  table.Bind("engine", "probe_interval_ms", &watch.probe_interval,
             "An engine that answers is asked for its health again after so long; 0: never");
  table.Bind("engine", "probe_silent_max", &watch.silent_max,
             "An engine that took the question and stayed silent so often in a row is down",
             std::size_t{1});
  table.Bind("gateway", "retry_after_ms", &gateway.retry_after, "What refused clients are told");
  table.Bind("gateway", "require_exact", &gateway.require_exact,
             "/ready asks for a rank whose cache is known exactly");
}

void BindTokens(GatewayConfig& config, config::OptionTable& table) {
  tokens::TokenProvider::Options& tokens = config.tokens;
  table.Bind("tokens", "ask_engines", &tokens.ask_engines,
             "Ask an engine's /tokenize when the prompt is text");
  table.Bind("tokens", "deadline_ms", &tokens.deadline,
             "For the engine's answer; then the request is routed without tokens", Millis{1});
  table
      .Bind("tokens", "cache_bytes_max", &tokens.cache.bytes_max, "Memory for remembered token ids")
      .Unit("bytes");
}

void BindRouting(GatewayConfig& config, config::OptionTable& table) {
  std::vector<std::pair<std::string_view, sched::PolicyKind>> policies;
  for (std::size_t i = 0; i < sched::kPolicyCount; ++i)
    policies.emplace_back(sched::kPolicyNames[i], static_cast<sched::PolicyKind>(i));
  table.Bind("routing", "policy", &config.router.policy, "How a rank is chosen", policies)
      .Flag("--policy");
  table.Bind("routing", "seed", &config.router.seed, "Of tie-breaks and temperature");
  table.Bind("routing", "approximate_ttl_ms", &config.router.approximate_ttl,
             "How long a decision counts as cached on a rank without event source; 0: not at all");
  table.Bind("routing", "speculative_ttl_ms", &config.router.speculative_ttl,
             "The same on a rank with one, whose own events come later; 0: not at all");
  table.Bind("routing", "approximate_by_capacity", &config.router.approximate_by_capacity,
             "Where such a rank has total_kv_blocks, keep what an engine of that size would keep, "
             "however long ago");
  table.Bind("routing", "guessed_blocks_max", &config.router.guesses.blocks_max,
             "Blocks so entered, a rank; beyond it the oldest give way", 1u);
  sched::CostOptions& cost = config.router.cost;
  table.Bind("cost", "overlap_score_credit", &cost.overlap_score_credit,
             "Blocks saved per cached block", 0.0);
  table.Bind("cost", "overlap_score_credit_decay", &cost.overlap_score_credit_decay,
             "How fast a backlog takes the credit away", 0.0);
  table.Bind("cost", "prefill_load_scale", &cost.prefill_load_scale, "Prefill against decode", 0.0);
  table.Bind("cost", "decode_active_request_weight", &cost.decode_active_request_weight,
             "Blocks per active request", 0.0);
  table.Bind("cost", "host_cache_hit_weight", &cost.host_cache_hit_weight,
             "Blocks saved per block in host memory", 0.0, 1.0);
  table.Bind("cost", "disk_cache_hit_weight", &cost.disk_cache_hit_weight,
             "Blocks saved per block on disk", 0.0, 1.0);
  table.Bind("cost", "temperature", &cost.temperature, "0: always the cheapest", 0.0);
}

Result<void> CheckWorkers(const std::vector<WorkerConfig>& workers) {
  std::set<WorkerId> ids;
  std::map<Partition, std::uint32_t> block_sizes;
  for (const WorkerConfig& worker : workers) {
    const fleet::WorkerSpec& spec = worker.spec;
    if (!ids.insert(spec.id).second) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("worker id {} is given twice; ids tell workers apart, choose another",
                              Raw(spec.id)));
    }
    const auto [known, added] = block_sizes.emplace(spec.partition, spec.block_size);
    if (added || known->second == spec.block_size) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("worker {}: block size {}, but other workers of model `{}` in routing "
                            "group `{}` have {}; give it a routing group of its own",
                            Raw(spec.id), spec.block_size, spec.partition.model_name,
                            spec.partition.routing_group, known->second));
  }
  return {};
}

}  // namespace

GatewayConfig::GatewayConfig() {
  tokens.cache.hash_seed = RandomSeed();
  router.guesses.index.hash_seed = RandomSeed();
}

void GatewayConfig::Bind(config::OptionTable& table) {
  server.Bind(table);
  BindClient(*this, table);
  BindGateway(*this, table);
  BindTokens(*this, table);
  BindRouting(*this, table);
  recovery.Bind(table);
  table.AddSubtree("workers", "list of maps",
                   "The engines, in the file only; --worker is the flag");
}

Result<void> GatewayConfig::Finish() {
  KVR_TRY_VOID(CheckWorkers(workers));
  for (const WorkerConfig& worker : workers) {
    const std::string& model = worker.spec.partition.model_name;
    for (const std::string& adapter : worker.adapters) {
      const auto [entry, added] = gateway.adapters.emplace(adapter, model);
      if (added || entry->second == model) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("adapter `{}` belongs to the models `{}` and `{}`; name it once",
                              adapter, entry->second, model));
    }
  }
  router.load.expiry = std::max(router.load.expiry, LongestSilence(client));
  KVR_TRY_VOID(recovery.Finish());
  gateway.instance_name = recovery.start.peers.self;
  KVR_TRY_VOID(router.Validate());
  KVR_TRY_VOID(gateway.Validate());
  return server.Validate();
}

}  // namespace kvr::cmd
