#include "cmd/gateway_config.h"

#include <algorithm>
#include <chrono>

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

void BindServer(GatewayConfig& config, config::OptionTable& table) {
  net::HttpServer::Options& server = config.server;
  table.Bind("server", "address", &server.address, "Address to bind").Flag("--address");
  table.Bind("server", "port", &server.port, "TCP port; 0 picks a free one").Flag("-p,--port");
  table.Bind("server", "io_threads", &config.io_threads, "Threads that move bytes", std::size_t{1},
             std::size_t{256});
  table.Bind("server", "connections_max", &server.connections_max, "Client connections",
             std::size_t{1});
  table.Bind("server", "bodies_bytes_max", &server.bodies_bytes_max,
             "Memory of all request bodies together; beyond it 503", std::size_t{1});
  table.Bind("server", "header_timeout_ms", &server.header_timeout,
             "For the head of a request to be complete", Millis{1});
  table.Bind("server", "body_timeout_ms", &server.body_timeout,
             "For the body of a request to be complete", Millis{1});
  table.Bind("server", "idle_timeout_ms", &server.idle_timeout,
             "Between the requests of a connection", Millis{1});
  table.Bind("server", "write_timeout_ms", &server.write_timeout,
             "A client that takes nothing for so long is dropped", Millis{1});
  table.Bind("server", "drain_ms", &config.drain,
             "For requests under way when the process is told to end");
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
  service::EngineWatch::Options& watch = gateway.engine_watch;
  table.Bind("engine", "probe_first_ms", &watch.probe_first,
             "An engine that cannot be reached is asked for its health after so long", Millis{1});
  table.Bind("engine", "probe_max_ms", &watch.probe_max, "... then after twice as long, up to this",
             Millis{1});
  table.Bind("engine", "probe_timeout_ms", &watch.probe_timeout, "For the answer to that",
             Millis{1});
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

void BindIngest(GatewayConfig& config, config::OptionTable& table) {
  table.Bind("ingest", "threads", &config.ingest.threads, "Threads that follow event streams",
             std::size_t{1}, std::size_t{256});
  table.Bind("ingest", "reference_metrics", &config.ingest.reference_metrics,
             "Show the reference's metric names beside our own");
  table
      .Bind(
          "identity", "unmapped_keys", &config.ingest.unmapped_keys,
          "Keys of a block that have no name here: fold them into its identity, so that nobody "
          "else matches it, or ignore them",
          {{"fold", placement::UnmappedKeys::kFold}, {"ignore", placement::UnmappedKeys::kIgnore}})
      .Flag("--unmapped-keys");
  table.Bind("ingest", "poll_interval_ms", &config.poll.interval,
             "Between two requests to an engine that is asked for its events", Millis{1});
  table
      .Bind("ingest", "keep_rejected_bytes", &config.ingest.rejected_bytes_kept,
            "Of each undecodable event this many first bytes are shown by /workers/{id}/rejected; "
            "they may hold tokens and cache salts",
            std::size_t{0}, fleet::RejectedEvent::kBytesMax)
      .Flag("--keep-rejected-bytes");
  table.Bind("index", "blocks_max", &config.index.blocks_max, "Distinct blocks of a model");
}

}  // namespace

GatewayConfig::GatewayConfig() {
  server.port = 8080;
  server.name = "gateway";
}

void GatewayConfig::Bind(config::OptionTable& table) {
  BindServer(*this, table);
  BindClient(*this, table);
  BindGateway(*this, table);
  BindTokens(*this, table);
  BindRouting(*this, table);
  BindIngest(*this, table);
  table.Bind("log", "level", &log_level, "Least severe lines written",
             {{"trace", LogLevel::kTrace},
              {"debug", LogLevel::kDebug},
              {"info", LogLevel::kInfo},
              {"warn", LogLevel::kWarn},
              {"error", LogLevel::kError},
              {"off", LogLevel::kOff}});
  table.AddSubtree("workers", "The engines; see `kvroute gateway --help`");
}

Result<void> GatewayConfig::Finish() {
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
  KVR_TRY_VOID(router.Validate());
  KVR_TRY_VOID(gateway.Validate());
  KVR_TRY_VOID(ingest.Validate());
  return index.Validate();
}

}  // namespace kvr::cmd
