#include "service/indexer/indexer_service.h"

#include <algorithm>
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
#include "service/indexer/answers.h"
#include "service/json_body.h"

namespace kvr::service {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

constexpr std::uint32_t kU32Max = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kU64Max = std::numeric_limits<std::uint64_t>::max();
// A streamed dump hands on pieces of about this size.
constexpr std::size_t kDumpPieceBytes = 256u << 10;

Result<Partition> ReadPartition(JsonBody& body) {
  KVR_TRY(const auto model, body.String("model_name"));
  KVR_TRY(const auto group, body.OptionalString("routing_group"));
  Partition partition;
  partition.model_name = model;
  if (group) partition.routing_group = *group;
  return partition;
}

// `tenant_id` is the old name of the routing group: read for its type, without effect.
Result<bool> ReadTenantId(JsonBody& body) {
  KVR_TRY(const auto tenant, body.OptionalString("tenant_id"));
  return tenant.has_value();
}

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
    KVR_TRY(auto body, JsonBody::Parse(request));
    SourceRegistry::Request wanted;
    KVR_TRY(const auto instance, body.Unsigned("instance_id", kU64Max));
    KVR_TRY(const auto endpoint, body.String("endpoint"));
    KVR_TRY(wanted.partition, ReadPartition(body));
    KVR_TRY(const auto block_size, body.Unsigned("block_size", kU32Max));
    KVR_TRY(const auto dp_rank, body.OptionalUnsigned("dp_rank", kU32Max));
    KVR_TRY(const auto replay, body.OptionalString("replay_endpoint"));
    KVR_TRY(const auto topic, body.OptionalString("topic"));
    KVR_TRY(wanted.replace, body.Flag("replace", false));
    KVR_TRY(const bool tenant, ReadTenantId(body));
    body.Ignore("additional_salt");
    body.Ignore("additionalsalt");
    KVR_TRY(auto warnings, Warnings(body, tenant));

    wanted.rank = {static_cast<WorkerId>(instance),
                   static_cast<std::uint32_t>(dp_rank.value_or(0))};
    wanted.source.endpoint = endpoint;
    if (replay) wanted.source.replay_endpoint = std::string(*replay);
    wanted.source.topic = topic.value_or("");
    wanted.block_size = static_cast<std::uint32_t>(block_size);
    KVR_TRY(const bool is_new, sources.Register(wanted));
    if (!is_new && options.repeat_is_conflict) {
      return Fail(
          ErrorCode::kAlreadyExists,
          fmt::format("instance {} dp_rank {} already registered", instance, wanted.rank.dp_rank));
    }
    return Status(is_new ? 201 : 200, is_new ? "ok" : "unchanged", warnings);
  }

  Result<HttpResponse> Unregister(const net::HttpRequest& request) {
    KVR_TRY(auto body, JsonBody::Parse(request));
    KVR_TRY(const auto instance, body.Unsigned("instance_id", kU64Max));
    KVR_TRY(const auto model, body.String("model_name"));
    KVR_TRY(const auto group, body.OptionalString("routing_group"));
    KVR_TRY(const auto dp_rank, body.OptionalUnsigned("dp_rank", kU32Max));
    KVR_TRY(const bool tenant, ReadTenantId(body));
    KVR_TRY(auto warnings, Warnings(body, tenant));
    std::optional<std::uint32_t> rank;
    if (dp_rank) rank = static_cast<std::uint32_t>(*dp_rank);
    KVR_TRY_VOID(sources.Unregister(static_cast<WorkerId>(instance), model, group, rank));
    return Status(200, "ok", warnings);
  }

  Result<HttpResponse> Query(const net::HttpRequest& request) {
    KVR_TRY(auto body, JsonBody::Parse(request));
    std::vector<TokenId> tokens;
    std::vector<hashing::BlockMm> mm;
    KVR_TRY_VOID(body.Tokens("token_ids", tokens));
    KVR_TRY(const auto partition, ReadPartition(body));
    KVR_TRY(const auto lora, body.OptionalString("lora_name"));
    KVR_TRY(const auto salt, body.OptionalString("cache_salt"));
    KVR_TRY(const bool eagle, body.Flag("is_eagle", false));
    KVR_TRY_VOID(body.BlockMmInfos("block_mm_infos", mm));
    KVR_TRY(const bool include_zero, body.Flag("include_zero", false));
    KVR_TRY(const bool tenant, ReadTenantId(body));
    KVR_TRY(auto warnings, Warnings(body, tenant));
    KVR_TRY(const auto index, sources.FindIndex(partition));

    const Nanos start = clock.Now();
    hashing::BlockHashing how;
    how.block_size = index->block_size;
    how.eagle = eagle;
    how.seed = hashing::Seed(lora.value_or(""), salt.value_or(""));
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(tokens, how, mm, blocks);
    return Answer(*index, blocks, include_zero, start, warnings);
  }

  Result<HttpResponse> QueryByHash(const net::HttpRequest& request) {
    KVR_TRY(auto body, JsonBody::Parse(request));
    std::vector<BlockHash> blocks;
    KVR_TRY_VOID(body.Hashes("block_hashes", blocks));
    KVR_TRY(const auto partition, ReadPartition(body));
    KVR_TRY(const bool include_zero, body.Flag("include_zero", false));
    KVR_TRY(const bool tenant, ReadTenantId(body));
    if (body.Has("cache_salt")) {
      return Fail(ErrorCode::kInvalidArgument,
                  "cache_salt is not accepted by /query_by_hash; block_hashes must already include "
                  "the intended cache salt");
    }
    KVR_TRY(auto warnings, Warnings(body, tenant));
    KVR_TRY(const auto index, sources.FindIndex(partition));
    return Answer(*index, blocks, include_zero, clock.Now(), warnings);
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
    if (options.ready_requires_exact) {
      const bool any =
          std::any_of(snapshot->workers.begin(), snapshot->workers.end(), [](const auto& worker) {
            return std::any_of(worker->ranks.begin(), worker->ranks.end(), [](const auto& entry) {
              return entry.health->status().state == RankState::kExact;
            });
          });
      if (!any) reasons.emplace_back("no rank is in state exact");
    }
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    json.Field("ready", reasons.empty());
    json.Field("workers", snapshot->workers.size());
    json.Key("reasons");
    json.BeginArray();
    for (const std::string& reason : reasons)
      json.Value(reason);
    json.EndArray();
    json.EndObject();
    return net::JsonResponse(reasons.empty() ? 200 : 503, std::move(out));
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

  HttpResponse Metrics() {
    HttpResponse response;
    response.headers.Set("Content-Type", metrics::kTextContentType);
    registry.WriteText(response.body);
    return response;
  }

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
    std::string body =
        QueryAnswer(scores, partition.block_size, snapshot->In(partition.partition), answer);
    AppendWarnings(body, warnings);
    return net::JsonResponse(200, std::move(body));
  }

  // What a caller should know although the request was served. In strict mode unknown fields fail.
  Result<std::vector<std::string>> Warnings(const JsonBody& body, bool tenant) const {
    std::vector<std::string> warnings;
    for (const std::string& field : body.UnknownFields()) {
      warnings.push_back(fmt::format("unknown field `{}` is ignored", field));
    }
    if (options.strict && !warnings.empty()) {
      return Fail(ErrorCode::kUnprocessable, warnings.front() + "; remove it");
    }
    if (tenant) warnings.emplace_back("`tenant_id` has no effect; use `routing_group`");
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
  server.Route("GET", "/ready", Plain([impl](const auto&) { return impl->Ready(); }));
  server.Route("GET", "/metrics", Plain([impl](const auto&) { return impl->Metrics(); }));
  server.Route("GET", "/health", Plain([](const auto&) { return HttpResponse(); }));
  server.Route("GET", "/dump", [impl](HttpExchange& exchange) { return impl->Dump(exchange); });
}

}  // namespace kvr::service
