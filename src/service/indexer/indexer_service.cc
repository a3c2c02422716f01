#include "service/indexer/indexer_service.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "hashing/block_hash.h"
#include "model/overlap.h"
#include "service/common_pages.h"
#include "service/indexer/answers.h"
#include "service/indexer/bodies.h"
#include "service/media_type.h"
#include "service/rejected_page.h"

namespace kvr::service {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

// A streamed dump hands on pieces of about this size.
constexpr std::size_t kDumpPieceBytes = 256u << 10;

}  // namespace

struct IndexerService::Impl {
  Impl(SourceRegistry& sources_in, metrics::Registry& registry_in, const Clock& clock_in,
       const Options& options_in)
      : sources(sources_in),
        registry(registry_in),
        clock(clock_in),
        options(options_in),
        query_seconds(registry_in.AddHistogram(
            "kvr_indexer_query_seconds", "Time to hash and match one query, without HTTP and JSON",
            metrics::ExponentialBounds(1e-6, 2, 20))),
        query_blocks(registry_in.AddHistogram("kvr_indexer_query_blocks",
                                              "Complete blocks in one query",
                                              metrics::ExponentialBounds(1, 2, 18))),
        query_ranks(registry_in.AddHistogram("kvr_indexer_query_scored_ranks",
                                             "Ranks that hold a part of the query",
                                             metrics::ExponentialBounds(1, 2, 13))),
        collector(
            registry_in.AddCollector([this](metrics::SampleSink& sink) { CollectFleet(sink); })) {}

  // --- requests ---------------------------------------------------------------------------------

  Result<HttpResponse> Register(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(RegisterBody body, ReadRegisterBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    const Rank rank = body.rank;
    KVR_TRY(const bool is_new,
            sources.Register({rank, std::move(body.partition), std::move(body.source),
                              body.block_size, body.replace}));
    if (!is_new && options.repeat_is_conflict) {
      return Fail(
          ErrorCode::kAlreadyExists,
          fmt::format("instance {} dp_rank {} already registered", Raw(rank.worker), rank.dp_rank));
    }
    return Status(is_new ? 201 : 200, is_new ? "ok" : "unchanged", warnings);
  }

  Result<HttpResponse> Unregister(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const UnregisterBody body, ReadUnregisterBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY_VOID(
        sources.Unregister(body.worker, body.model_name, body.routing_group, body.dp_rank));
    return Status(200, "ok", warnings);
  }

  Result<HttpResponse> Query(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const QueryBody body, ReadQueryBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY(const auto index, sources.FindIndex(body.partition));

    const Nanos start = clock.Now();
    hashing::BlockHashing how;
    how.block_size = index->block_size;
    how.eagle = body.eagle;
    how.seed = hashing::Seed(body.lora_name, body.cache_salt);
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(body.tokens, how, body.mm, blocks);
    return Answer(*index, blocks, body.include_zero, start, warnings);
  }

  Result<HttpResponse> QueryByHash(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const QueryByHashBody body, ReadQueryByHashBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY(const auto index, sources.FindIndex(body.partition));
    return Answer(*index, body.blocks, body.include_zero, clock.Now(), warnings);
  }

  HttpResponse Workers(const net::HttpRequest& request) {
    const auto snapshot = sources.catalog().snapshot();
    const auto model = net::QueryParameter(request.query(), "model_name");
    const auto group = net::QueryParameter(request.query(), "routing_group");
    std::vector<const fleet::Worker*> chosen;
    for (const auto& worker : snapshot->workers) {
      const Partition& partition = worker->spec.partition;
      if (model && partition.model_name != *model) continue;
      if (group && partition.routing_group != *group) continue;
      chosen.push_back(worker.get());
    }
    return net::JsonResponse(200, WorkersAnswer(chosen, clock.Now()));
  }

  HttpResponse Ready() {
    std::vector<std::string> reasons;
    const auto snapshot = sources.catalog().snapshot();
    if (snapshot->workers.size() < options.min_initial_workers) {
      reasons.push_back(fmt::format("{} of {} initial workers are registered",
                                    snapshot->workers.size(), options.min_initial_workers));
    }
    if (options.ready_requires_exact && !HasExactRank(*snapshot)) {
      reasons.emplace_back("no rank is in state exact");
    }
    return ReadyPage(snapshot->workers.size(), reasons);
  }

  // Whole as one object in the reference's shape, or with ?format=ndjson as lines that are sent as
  // they are made, one partition after the other.
  Task<void> Dump(HttpExchange& exchange) {
    const net::HttpRequest& request = exchange.request();
    const auto format = net::QueryParameter(request.query(), "format");
    const auto partitions = ChosenPartitions(request);
    const auto snapshot = sources.catalog().snapshot();
    if (format && *format == "ndjson") {
      net::HttpHeaders headers;
      headers.Set("Content-Type", "application/x-ndjson");
      if (!co_await exchange.BeginStream(200, headers)) co_return;
      for (const auto& partition : partitions) {
        std::string lines;
        AppendPartitionDumpLines(lines, *partition, snapshot->In(partition->partition));
        for (std::size_t at = 0; at < lines.size(); at += kDumpPieceBytes) {
          const auto piece = std::string_view(lines).substr(at, kDumpPieceBytes);
          if (!co_await exchange.Write(piece)) co_return;
        }
      }
      static_cast<void>(co_await exchange.EndStream());
      co_return;
    }
    std::string out = "{";
    for (const auto& partition : partitions) {
      if (out.size() > 1) out += ',';
      AppendPartitionDump(out, *partition, snapshot->In(partition->partition));
    }
    out += '}';
    HttpResponse response = net::JsonResponse(200, std::move(out));
    static_cast<void>(co_await exchange.Respond(std::move(response)));
  }

  HttpResponse Metrics() { return MetricsPage(registry); }

  // --- parts ------------------------------------------------------------------------------------

  Result<HttpResponse> Answer(const index::PartitionIndex& partition,
                              const std::vector<BlockHash>& blocks, bool include_zero, Nanos start,
                              const std::vector<std::string>& warnings) {
    OverlapScores scores;
    index::MatchOptions match;
    match.device_holders = true;
    partition.index->Match(blocks, match, scores);
    query_seconds.Observe(std::chrono::duration<double>(clock.Now() - start).count());
    query_blocks.Observe(static_cast<double>(blocks.size()));
    query_ranks.Observe(static_cast<double>(scores.scored().size()));
    const auto snapshot = sources.catalog().snapshot();
    QueryAnswerOptions answer;
    answer.include_zero = include_zero;
    answer.hybrid = partition.hybrid.get();
    std::string body =
        QueryAnswer(scores, partition.block_size, snapshot->In(partition.partition), answer);
    AppendWarnings(body, warnings);
    return net::JsonResponse(200, std::move(body));
  }

  // What a caller should know although the request was served. In strict mode unknown fields fail.
  Result<std::vector<std::string>> Warnings(const BodyNotes& notes) const {
    std::vector<std::string> warnings;
    for (const std::string& field : notes.unknown_fields) {
      warnings.push_back(fmt::format("unknown field `{}` is ignored", field));
    }
    if (options.strict && !warnings.empty()) {
      return Fail(ErrorCode::kUnprocessable, warnings.front() + "; remove it");
    }
    if (notes.tenant_id) warnings.emplace_back("`tenant_id` has no effect; use `routing_group`");
    return warnings;
  }

  // Puts "warnings" into a JSON object, if there are any.
  static void AppendWarnings(std::string& object, const std::vector<std::string>& warnings) {
    if (warnings.empty()) return;
    object.pop_back();
    object += ",\"warnings\":";
    JsonWriter json(object);
    json.BeginArray();
    for (const std::string& warning : warnings)
      json.Value(warning);
    json.EndArray();
    object += '}';
  }

  static HttpResponse Status(int status, std::string_view word,
                             const std::vector<std::string>& warnings) {
    std::string body = fmt::format("{{\"status\":\"{}\"}}", word);
    AppendWarnings(body, warnings);
    return net::JsonResponse(status, std::move(body));
  }

  [[nodiscard]] std::vector<std::shared_ptr<index::PartitionIndex>> ChosenPartitions(
      const net::HttpRequest& request) const {
    const auto model = net::QueryParameter(request.query(), "model_name");
    const auto group = net::QueryParameter(request.query(), "routing_group");
    auto partitions = sources.indexes().List();
    std::erase_if(partitions, [&](const auto& partition) {
      return (model && partition->partition.model_name != *model) ||
             (group && partition->partition.routing_group != *group);
    });
    return partitions;
  }

  void CollectFleet(metrics::SampleSink& sink) const {
    const auto snapshot = sources.catalog().snapshot();
    sink.AddGauge("kvr_indexer_workers", "Registered workers", {},
                  static_cast<double>(snapshot->workers.size()));
    sink.AddGauge("kvr_indexer_partitions", "Partitions with an index", {},
                  static_cast<double>(sources.indexes().size()));
    std::map<std::string_view, int> by_status = {{"active", 0}, {"connecting", 0}, {"failed", 0}};
    for (const auto& worker : snapshot->workers) {
      for (const auto& entry : worker->ranks)
        ++by_status[ListenerStatus(entry)];
    }
    for (const auto& [status, count] : by_status) {
      sink.AddGauge("kvr_indexer_listeners", "Listeners by state",
                    {{"status", std::string(status)}}, count);
    }
    for (const auto& partition : sources.indexes().List())
      CollectIndex(sink, *partition);
  }

  static void CollectIndex(metrics::SampleSink& sink, const index::PartitionIndex& partition) {
    const metrics::Labels labels = {{"model", partition.partition.model_name},
                                    {"routing_group", partition.partition.routing_group}};
    const index::IndexStats stats = partition.index->Stats();
    const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
      sink.AddGauge(name, help, labels, static_cast<double>(value));
    };
    gauge("kvr_index_ranks", "Ranks with a slot", stats.ranks);
    gauge("kvr_index_blocks", "Distinct blocks", stats.nodes);
    gauge("kvr_index_memberships", "Blocks held, counted per rank and tier", stats.memberships);
    gauge("kvr_index_pending_blocks", "Blocks waiting for their parent or content",
          stats.pending_blocks);
    gauge("kvr_index_bytes", "Estimated heap in use", stats.bytes);
    sink.AddCounter("kvr_index_pending_dropped_total", "Waiting blocks that gave way to newer ones",
                    labels, static_cast<double>(stats.pending_dropped));
  }

  SourceRegistry& sources;
  metrics::Registry& registry;
  const Clock& clock;
  const Options options;
  metrics::Histogram& query_seconds;
  metrics::Histogram& query_blocks;
  metrics::Histogram& query_ranks;
  const metrics::Registry::Collector collector;
};

namespace {

// A handler that answers at once.
net::HttpHandler Plain(std::function<Result<HttpResponse>(const net::HttpRequest&)> answer) {
  return [answer = std::move(answer)](HttpExchange& exchange) -> Task<void> {
    auto answered = answer(exchange.request());
    HttpResponse response = answered ? *std::move(answered) : net::JsonError(answered.error());
    static_cast<void>(co_await exchange.Respond(std::move(response)));
  };
}

}  // namespace

IndexerService::IndexerService(SourceRegistry& sources, metrics::Registry& registry,
                               const Clock& clock, const Options& options)
    : impl_(std::make_unique<Impl>(sources, registry, clock, options)) {}

IndexerService::~IndexerService() = default;

void IndexerService::Mount(net::HttpServer& server) {
  Impl* const impl = impl_.get();
  const std::size_t query_max = impl->options.query_bytes_max;
  const std::size_t body_max = impl->options.body_bytes_max;
  server.Route("POST", "/register", Plain([impl](const auto& r) { return impl->Register(r); }),
               body_max);
  server.Route("POST", "/unregister", Plain([impl](const auto& r) { return impl->Unregister(r); }),
               body_max);
  server.Route("POST", "/query", Plain([impl](const auto& r) { return impl->Query(r); }),
               query_max);
  server.Route("POST", "/query_by_hash",
               Plain([impl](const auto& r) { return impl->QueryByHash(r); }), body_max);
  server.Route("GET", "/workers", Plain([impl](const auto& r) { return impl->Workers(r); }));
  server.Route("GET", "/workers/{id}/rejected",
               Plain([impl](const auto& r) { return RejectedPage(impl->sources.catalog(), r); }));
  server.Route("GET", "/ready", Plain([impl](const auto&) { return impl->Ready(); }));
  server.Route("GET", "/metrics", Plain([impl](const auto&) { return impl->Metrics(); }));
  server.Route("GET", "/health", Plain([](const auto&) { return HttpResponse(); }));
  server.Route("GET", "/dump", [impl](HttpExchange& exchange) { return impl->Dump(exchange); });
}

}  // namespace kvr::service
