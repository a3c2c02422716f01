#include "cmd/indexer_config.h"

#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "config/option_table.h"

namespace kvr::cmd {
namespace {

using SourceRequest = service::SourceRegistry::Request;

void BindInitialSources(IndexerConfig& config, config::OptionTable& table) {
  table
      .Bind("initial", "workers", &config.workers,
            "Event sources to follow from the start: id[:dp_rank]=zmq_endpoint, separated by "
            "commas; needs --block-size")
      .Flag("--workers")
      .Was("workers");
  table
      .Bind("initial", "block_size", &config.block_size,
            "Block size of --workers; 0: there are no --workers")
      .Unit("tokens")
      .Flag("--block-size")
      .Was("block_size");
  table.Bind("initial", "model_name", &config.partition.model_name, "Model of --workers")
      .Flag("--model-name")
      .Was("model_name");
  table
      .Bind("initial", "routing_group", &config.partition.routing_group,
            "Routing group of --workers")
      .Flag("--routing-group")
      .Was("routing_group");
}

void BindService(IndexerConfig& config, config::OptionTable& table) {
  service::IndexerService::Options& service = config.service;
  table
      .Bind("indexer", "min_initial_workers", &service.min_initial_workers,
            "GET /ready says no before so many workers are registered")
      .Flag("--min-initial-workers")
      .Was("min_initial_workers");
  table
      .Bind("indexer", "ready_requires_exact", &service.ready_requires_exact,
            "GET /ready says no while no rank is exact")
      .Flag("--ready-requires-exact")
      .Was("ready_requires_exact");
  table
      .Bind("indexer", "strict", &service.strict,
            "Unknown fields in a request are an error instead of a warning")
      .Flag("--strict")
      .Was("strict");
  table
      .Bind("indexer", "repeat_is_conflict", &service.repeat_is_conflict,
            "Answer an identical registration with 409, as the reference does")
      .Flag("--repeat-is-conflict")
      .Was("repeat_is_conflict");
  table
      .Bind("server", "query_bytes_max", &service.query_bytes_max,
            "Longest body of /query; beyond: 413", std::size_t{1})
      .Unit("bytes");
  table
      .Bind("server", "body_bytes_max", &service.body_bytes_max,
            "Longest body of other routes; beyond: 413", std::size_t{1})
      .Unit("bytes");
  table
      .Bind("index", "partition_grace_ms", &config.registry.partition_grace,
            "How long the empty index of a partition answers after its last worker left")
      .Was("index.partition_grace");
}

void BindAccessLog(IndexerConfig& config, config::OptionTable& table) {
  table
      .Bind("access_log", "path", &config.access_log.path,
            "File that gets a JSON line for each request; empty: none")
      .Flag("--access-log")
      .Was("access_log");
  table
      .Bind("access_log", "local_time", &config.access_log.local_time,
            "Time stamps of the access log in local time")
      .Flag("--access-log-local-time")
      .Was("access_log_local_time");
  table
      .Bind("access_log", "trace_id_header", &config.service.trace_id_header,
            "Request header whose value goes into the access log")
      .Flag("--trace-id-header")
      .Was("trace_id_header");
}

Result<SourceRequest> ReadSource(std::string_view text, const IndexerConfig& config) {
  const auto wrong = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("expected worker_id[:dp_rank]=endpoint, got `{}`", text));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return wrong();
  const std::string_view who = text.substr(0, equals);
  const std::size_t colon = who.find(':');
  const auto worker = ParseNumber<std::uint64_t>(who.substr(0, colon));
  const auto rank = colon == std::string_view::npos
                        ? std::optional<std::uint32_t>(0)
                        : ParseNumber<std::uint32_t>(who.substr(colon + 1));
  if (!worker || !rank) return wrong();
  SourceRequest request;
  request.rank = {WorkerId{*worker}, *rank};
  request.partition = config.partition;
  request.source.endpoint = text.substr(equals + 1);
  request.block_size = config.block_size;
  return request;
}

}  // namespace

void IndexerConfig::Bind(config::OptionTable& table) {
  BindInitialSources(*this, table);
  server.Bind(table);
  BindService(*this, table);
  recovery.Bind(table);
  BindAccessLog(*this, table);
}

Result<void> IndexerConfig::Finish() {
  if (!service::IsHeaderName(service.trace_id_header)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("access_log.trace_id_header `{}` is no name of a header",
                            service.trace_id_header));
  }
  KVR_TRY_VOID(recovery.Finish());
  service.instance_name = recovery.start.peers.self;
  service.reference_metrics = server.ingest.reference_metrics;
  return server.Validate();
}

Result<std::vector<SourceRequest>> IndexerConfig::InitialSources() const {
  std::vector<SourceRequest> requests;
  if (!workers.empty() && block_size == 0) {
    return Fail(ErrorCode::kInvalidArgument, "--workers needs --block-size");
  }
  std::set<Rank> seen;
  for (const std::string& given : workers) {
    // The flag may be given once for all workers or once for each.
    for (const std::string_view text : Split(given, ',')) {
      KVR_TRY(auto request, ReadSource(text, *this));
      if (!seen.insert(request.rank).second) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("--workers names instance {} dp_rank {} twice",
                                Raw(request.rank.worker), request.rank.dp_rank));
      }
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

}  // namespace kvr::cmd
