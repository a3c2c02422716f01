#include "cmd/indexer_command.h"

#include <charconv>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/parse_words.h"
#include "cmd/server_main.h"
#include "config/option_table.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "service/indexer/indexer_service.h"
#include "service/indexer/source_registry.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute indexer";

struct IndexerOptions {
  net::HttpServer::Options server;
  net::IoRuntime::Options io;
  ingest::Ingest::Options ingest;
  ingest::PollOptions poll;
  index::IndexOptions index;
  service::SourceRegistry::Options registry;
  service::IndexerService::Options service;
  Millis drain{10'000};
  LogLevel log_level = LogLevel::kInfo;
  std::vector<std::string> workers;
  std::uint32_t block_size = 0;
  Partition partition{"default", "default"};
};

void Bind(config::OptionTable& table, IndexerOptions& o) {
  table.Bind("", "port", &o.server.port, "Port of the HTTP API; 0 picks a free one").Flag("--port");
  table.Bind("", "address", &o.server.address, "Address of the HTTP API").Flag("--address");
  table
      .Bind("", "threads", &o.io.threads, "I/O threads of the HTTP API", std::size_t{1},
            std::size_t{256})
      .Flag("--threads");
  table.Bind("", "drain", &o.drain, "How long requests under way may finish at shutdown")
      .Flag("--drain");
  table
      .Bind("", "log_level", &o.log_level, "Least level that is logged, to stderr",
            {{"trace", LogLevel::kTrace},
             {"debug", LogLevel::kDebug},
             {"info", LogLevel::kInfo},
             {"warn", LogLevel::kWarn},
             {"error", LogLevel::kError}})
      .Flag("--log-level");
  table
      .Bind(
          "", "workers", &o.workers,
          "Event sources to follow from the start: id[:dp_rank]=zmq_endpoint, separated by commas; "
          "needs --block-size")
      .Flag("--workers");
  table.Bind("", "block_size", &o.block_size, "Block size of --workers, in tokens")
      .Flag("--block-size");
  table.Bind("", "model_name", &o.partition.model_name, "Model of --workers").Flag("--model-name");
  table.Bind("", "routing_group", &o.partition.routing_group, "Routing group of --workers")
      .Flag("--routing-group");
  table
      .Bind("", "min_initial_workers", &o.service.min_initial_workers,
            "GET /ready says no before so many workers are registered")
      .Flag("--min-initial-workers");
  table
      .Bind("", "ready_requires_exact", &o.service.ready_requires_exact,
            "GET /ready says no while no rank is exact")
      .Flag("--ready-requires-exact");
  table
      .Bind("", "strict", &o.service.strict,
            "Unknown fields in a request are an error instead of a warning")
      .Flag("--strict");
  table
      .Bind("", "repeat_is_conflict", &o.service.repeat_is_conflict,
            "Answer an identical registration with 409, as the reference does")
      .Flag("--repeat-is-conflict");
  table
      .Bind("", "reference_metrics", &o.ingest.reference_metrics,
            "Expose the reference's names of event counters too")
      .Flag("--reference-metrics");
  table.Bind("server", "header_bytes_max", &o.server.header_bytes_max, "Longest request head");
  table.Bind("server", "query_bytes_max", &o.service.query_bytes_max, "Longest body of /query");
  table.Bind("server", "body_bytes_max", &o.service.body_bytes_max, "Longest body elsewhere");
  table.Bind("server", "bodies_bytes_max", &o.server.bodies_bytes_max,
             "Memory of all request bodies together; beyond it 503");
  table.Bind("server", "connections_max", &o.server.connections_max, "Open client connections");
  table.Bind("server", "header_timeout", &o.server.header_timeout, "For the head of a request");
  table.Bind("server", "body_timeout", &o.server.body_timeout, "For the body of a request");
  table.Bind("server", "idle_timeout", &o.server.idle_timeout, "Between requests of a connection");
  table.Bind("ingest", "threads", &o.ingest.threads, "Threads that follow event streams",
             std::size_t{1}, std::size_t{256});
  table.Bind("ingest", "replay_silence", &o.ingest.stream.replay_silence,
             "Silence after which a replay attempt has failed");
  table.Bind("ingest", "replay_attempts", &o.ingest.stream.replay_attempts,
             "Replay attempts before messages are given up");
  table.Bind("ingest", "clear_on_loss", &o.ingest.stream.clear_on_loss,
             "Forget a rank's blocks at every loss that cannot be repaired");
  table
      .Bind(
          "identity", "unmapped_keys", &o.ingest.unmapped_keys,
          "Keys of a block that have no name here: fold them into its identity, so that nobody "
          "else matches it, or ignore them",
          {{"fold", placement::UnmappedKeys::kFold}, {"ignore", placement::UnmappedKeys::kIgnore}})
      .Flag("--unmapped-keys");
  table.Bind("ingest", "poll_interval", &o.poll.interval,
             "Between two requests to an engine that is asked for its events", Millis{1});
  table
      .Bind("ingest", "keep_rejected_bytes", &o.ingest.rejected_bytes_kept,
            "Of each undecodable event this many first bytes are shown by /workers/{id}/rejected; "
            "they may hold tokens and cache salts",
            std::size_t{0}, fleet::RejectedEvent::kBytesMax)
      .Flag("--keep-rejected-bytes");
  table.Bind("index", "blocks_max", &o.index.blocks_max, "Distinct blocks per partition");
  table.Bind("index", "ranks_max", &o.index.ranks_max, "Ranks per partition");
  table.Bind("index", "pending_blocks_max", &o.index.pending_blocks_max,
             "Blocks per rank that may wait for their parent or content");
  table.Bind("index", "partition_grace", &o.registry.partition_grace,
             "How long the empty index of a partition answers after its last worker left");
}

template <typename Number>
bool ParseWhole(std::string_view text, Number& out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failed == std::errc() && end == text.data() + text.size();
}

Result<service::SourceRegistry::Request> ParseWorker(std::string_view text,
                                                     const IndexerOptions& options) {
  const auto wrong = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("expected worker_id[:dp_rank]=endpoint, got `{}`", text));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return wrong();
  const std::string_view who = text.substr(0, equals);
  const std::size_t colon = who.find(':');
  service::SourceRegistry::Request request;
  std::uint64_t worker = 0;
  if (!ParseWhole(who.substr(0, colon), worker)) return wrong();
  if (colon != std::string_view::npos && !ParseWhole(who.substr(colon + 1), request.rank.dp_rank)) {
    return wrong();
  }
  request.rank.worker = static_cast<WorkerId>(worker);
  request.partition = options.partition;
  request.source.endpoint = text.substr(equals + 1);
  request.block_size = options.block_size;
  return request;
}

// The flag may be given once for all workers or once for each.
std::vector<std::string> SplitAtCommas(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (std::string_view text : texts) {
    while (true) {
      const std::size_t comma = text.find(',');
      parts.emplace_back(text.substr(0, comma));
      if (comma == std::string_view::npos) break;
      text.remove_prefix(comma + 1);
    }
  }
  return parts;
}

Result<void> RegisterInitial(const IndexerOptions& options, service::SourceRegistry& sources) {
  if (!options.workers.empty() && options.block_size == 0) {
    return Fail(ErrorCode::kInvalidArgument, "--workers needs --block-size");
  }
  std::set<Rank> seen;
  for (const std::string& text : SplitAtCommas(options.workers)) {
    KVR_TRY(const auto request, ParseWorker(text, options));
    if (!seen.insert(request.rank).second) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--workers names instance {} dp_rank {} twice",
                              Raw(request.rank.worker), request.rank.dp_rank));
    }
    KVR_TRY_VOID(sources.Register(request));
  }
  return {};
}

int Serve(const IndexerOptions& options, StopSignals& signals) {
  const SystemClock clock;
  metrics::Registry registry;
  net::IoRuntime runtime(options.io);
  const auto direct = net::MakeZmqTransport(net::ZmqOptions{});
  const auto transport = ingest::MakePollTransport(*direct, runtime, options.poll);
  fleet::Catalog catalog;
  index::IndexSet indexes(options.index);
  ingest::Ingest ingest(*transport, clock, registry, options.ingest);
  service::SourceRegistry sources(catalog, indexes, ingest, clock, options.registry);
  service::IndexerService service(sources, registry, clock, options.service);
  net::HttpServer server(runtime, registry, options.server);
  service.Mount(server);

  if (const auto registered = RegisterInitial(options, sources); !registered) {
    return UsageError(kName, registered.error().message);
  }
  if (const auto started = server.Start(); !started) {
    fmt::print(stderr, "{}: {}\n", kName, started.error().message);
    return 1;
  }
  AnnounceListener("indexer", server.address_port());
  signals.Wait();
  server.Stop(options.drain);
  ingest.Stop();
  runtime.Stop();
  return 0;
}

int Run(const std::vector<std::string>& words) {
  IndexerOptions options;
  options.server.port = 8090;
  options.server.name = "indexer";
  options.io.threads = 2;
  options.io.thread_name = "http";
  config::OptionTable table;
  Bind(table, options);
  CLI::App app("Follows engines' KV events and answers who holds how much of a prompt.",
               std::string(kName));
  std::string file;
  app.add_option("--config", file, "YAML file with any of these options");
  table.AddFlags(app);
  if (const auto code = ParseWords(app, words)) return *code;
  if (const auto loaded = table.Load(file, config::KvrEnvironment()); !loaded) {
    return UsageError(kName, loaded.error().message);
  }
  if (const auto valid = options.index.Validate(); !valid) {
    return UsageError(kName, valid.error().message);
  }
  if (const auto valid = options.ingest.Validate(); !valid) {
    return UsageError(kName, valid.error().message);
  }
  SetLogLevel(options.log_level);
  StopSignals signals;
  KVR_INFO("{} options {}", kName, table.EffectiveJson());
  return Serve(options, signals);
}

}  // namespace

const Command kIndexerCommand = {"indexer", "index behind an HTTP API: register, query, dump", Run};

}  // namespace kvr::cmd
