#include "cmd/indexer_config.h"

#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/text.h"
#include "config/option_table.h"

namespace kvr::cmd {
namespace {

using SourceRequest = service::SourceRegistry::Request;

void BindInitialSources(IndexerConfig& config, config::OptionTable& table) {
  table.Bind(
      "", "workers", &config.workers,
      "Event sources to follow from the start: id[:dp_rank]=zmq_endpoint, separated by commas; "
      "needs --block-size");
  table
      .Bind("", "block_size", &config.block_size,
            "Block size of --workers; 0: there are no --workers")
      .Unit("tokens");
  table.Bind("", "model_name", &config.partition.model_name, "Model of --workers");
  table.Bind("", "routing_group", &config.partition.routing_group, "Routing group of --workers");
}

void BindService(IndexerConfig& config, config::OptionTable& table) {
  service::IndexerService::Options& service = config.service;
  table.Bind("", "min_initial_workers", &service.min_initial_workers,
             "GET /ready says no before so many workers are registered");
  table.Bind("", "ready_requires_exact", &service.ready_requires_exact,
             "GET /ready says no while no rank is exact");
  table.Bind("", "strict", &service.strict,
             "Unknown fields in a request are an error instead of a warning");
  table.Bind("", "repeat_is_conflict", &service.repeat_is_conflict,
             "Answer an identical registration with 409, as the reference does");
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
