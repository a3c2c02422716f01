#include "service/indexer/indexer_service.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "hashing/block_hash.h"
#include "hashing/cache_salt.h"
#include "model/overlap.h"
#include "service/common_pages.h"
#include "service/indexer/access_record.h"
#include "service/indexer/answers.h"
#include "service/indexer/bodies.h"
#include "service/indexer/indexer_metrics.h"
#include "service/indexer/reference_metrics.h"
#include "service/indexer/status_answer.h"
#include "service/media_type.h"
#include "service/recovery/dump_page.h"
#include "service/rejected_page.h"

namespace kvr::service {
namespace {

using net::HttpExchange;
using net::HttpResponse;
using net::Task;

}  // namespace

struct IndexerService::Impl {
  Impl(const Parts& parts_in, metrics::Registry& registry_in, const Clock& clock_in,
       const Options& options_in)
      : sources(parts_in.sources),
        parts(parts_in),
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
        query_depth(registry_in.AddHistogram("kvr_indexer_query_depth",
                                             "Blocks that the best rank holds of a query",
                                             metrics::ExponentialBounds(1, 2, 18))),
        collector(registry_in.AddCollector([this](metrics::SampleSink& sink) {
          sources.RemoveExpired();
          CollectIndexer(sources, sink);
          if (options.reference_metrics) CollectReference(sources, sink);
        })) {}

  // --- requests ---------------------------------------------------------------------------------

  Result<HttpResponse> Register(const net::HttpRequest& request, std::string& model) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(RegisterBody body, ReadRegisterBody(request.body));
    model = body.partition.model_name;
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
    return StatusAnswer(is_new ? 201 : 200, is_new ? "ok" : "unchanged", warnings);
  }

  Result<HttpResponse> Unregister(const net::HttpRequest& request, std::string& model) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const UnregisterBody body, ReadUnregisterBody(request.body));
    model = body.model_name;
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY_VOID(
        sources.Unregister(body.worker, body.model_name, body.routing_group, body.dp_rank));
    return StatusAnswer(200, "ok", warnings);
  }

  Result<HttpResponse> Query(const net::HttpRequest& request, std::string& model) {
    KVR_TRY(const BodyForm form, BodyFormOf(request));
    KVR_TRY(const QueryBody body, ReadQueryBody(request.body, form));
    model = body.partition.model_name;
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY(const auto index, sources.FindIndex(body.partition));

    const Nanos start = clock.Now();
    hashing::BlockHashing how;
    how.block_size = index->block_size;
    how.eagle = body.eagle;
    how.seed = hashing::Seed(body.lora_name, hashing::NamedSalt(body.cache_salt));
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(body.tokens, how, body.mm, blocks);
    return Answer(*index, blocks, body.include_zero, start, warnings);
  }

  Result<HttpResponse> QueryByHash(const net::HttpRequest& request, std::string& model) {
    KVR_TRY(const BodyForm form, BodyFormOf(request));
    KVR_TRY(const QueryByHashBody body, ReadQueryByHashBody(request.body, form));
    model = body.partition.model_name;
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY(const auto index, sources.FindIndex(body.partition));
    const Nanos start = clock.Now();
    if (!body.are_sequences) {
      return Answer(*index, body.blocks, body.include_zero, start, warnings);
    }
    std::vector<SequenceHash> sequence;
    sequence.reserve(body.blocks.size());
    for (const BlockHash hash : body.blocks)
      sequence.push_back(SequenceHash{Raw(hash)});
    std::vector<BlockHash> blocks;
    index->index->FindBlocks(sequence, blocks);
    return Answer(*index, blocks, body.include_zero, start, warnings);
  }

  HttpResponse Workers(const net::HttpRequest& request) {
    const PartitionFilter wanted = PartitionFilter::Of(request);
    const auto snapshot = sources.catalog().snapshot();
    std::vector<const fleet::Worker*> chosen;
    for (const auto& worker : snapshot->workers) {
      if (wanted.Passes(worker->spec.partition)) chosen.push_back(worker.get());
    }
    return net::JsonResponse(200, WorkersAnswer(chosen, clock.Now()));
  }

  Result<HttpResponse> RegisterPeer(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const PeerBody body, ReadPeerBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    KVR_TRY_VOID(parts.peers.Add(body.url));
    return StatusAnswer(201, "ok", warnings);
  }

  Result<HttpResponse> DeregisterPeer(const net::HttpRequest& request) {
    KVR_TRY_VOID(RequireJson(request));
    KVR_TRY(const PeerBody body, ReadPeerBody(request.body));
    KVR_TRY(const auto warnings, Warnings(body.notes));
    if (!parts.peers.Remove(body.url)) return Fail(ErrorCode::kNotFound, "peer not found");
    return StatusAnswer(200, "ok", warnings);
  }

  HttpResponse Peers() {
    std::string out;
    JsonWriter json(out);
    json.BeginArray();
    for (const std::string& url : parts.peers.urls())
      json.Value(url);
    json.EndArray();
    return net::JsonResponse(200, std::move(out));
  }

  HttpResponse Ready() {
    std::vector<std::string> reasons;
    if (parts.recovery != nullptr) {
      if (std::string reason = parts.recovery->not_ready_reason(); !reason.empty()) {
        reasons.push_back(std::move(reason));
      }
    }
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

  ReferenceRoute Reference(const std::string& method, const std::string& path) {
    if (!options.reference_metrics || path == "/metrics") return {};
    return {registry, method, path};
  }

  Task<void> Dump(net::HttpServer& server, HttpExchange& exchange,
                  const ReferenceRoute& reference) {
    AccessRecord record(parts.access_log, options.trace_id_header, exchange.request(), "/dump",
                        clock);
    const ReferenceRecord counted(reference, clock, record.status);
    const auto started =
        StartDump(exchange.request(), sources.indexes(), sources.catalog(), clock.WallTime());
    if (!started) {
      HttpResponse refusal = net::JsonError(started.error());
      record.status = refusal.status;
      static_cast<void>(co_await exchange.Respond(std::move(refusal)));
      co_return;
    }
    if (co_await SendDump(server, exchange, *started, options.instance_name)) record.status = 200;
  }

  Result<HttpResponse> ReopenLogs() const {
    if (parts.access_log != nullptr) KVR_TRY_VOID(parts.access_log->Reopen());
    return StatusAnswer(200, "ok", {});
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
    std::uint32_t depth = 0;
    scores.ForEach([&depth](RankSlot, const Rank&, const auto& held, EngineHash) {
      depth = std::max(depth, held[0] + held[1] + held[2] + held[3]);
    });
    query_depth.Observe(depth);
    const auto snapshot = sources.catalog().snapshot();
    QueryAnswerOptions answer;
    answer.include_zero = include_zero;
    answer.hybrid = partition.hybrid.get();
    std::string body =
        QueryAnswer(scores, partition.block_size, snapshot->In(partition.partition), answer);
    AppendWarnings(body, warnings);
    return net::JsonResponse(200, std::move(body));
  }

  [[nodiscard]] Result<std::vector<std::string>> Warnings(const BodyNotes& notes) const {
    return BodyWarnings(notes, options.strict);
  }

  SourceRegistry& sources;
  const Parts parts;
  metrics::Registry& registry;
  const Clock& clock;
  const Options options;
  metrics::Histogram& query_seconds;
  metrics::Histogram& query_blocks;
  metrics::Histogram& query_ranks;
  metrics::Histogram& query_depth;
  const metrics::Registry::Collector collector;
};

namespace {

// Fills in the model for the access log.
using PlainAnswer =
    std::function<Result<HttpResponse>(const net::HttpRequest&, std::string& model)>;

// kAside: takes long with many ranks or blocks, or waits for a file.
enum class Where : std::uint8_t { kAtOnce, kAside };

// A request and its answer, shared by the handler and the work it leaves to the thread aside.
struct PlainJob {
  void Make(const PlainAnswer& make) {
    const auto checked = CheckQuery(request);
    auto made = checked ? make(request, model) : tl::make_unexpected(checked.error());
    answer = made ? *std::move(made) : net::JsonError(made.error());
  }

  net::HttpRequest request;
  std::string model;
  HttpResponse answer;
};

}  // namespace

IndexerService::IndexerService(const Parts& parts, metrics::Registry& registry, const Clock& clock,
                               const Options& options)
    : impl_(std::make_unique<Impl>(parts, registry, clock, options)) {}

IndexerService::~IndexerService() = default;

void IndexerService::Mount(net::HttpServer& server) {
  Impl* const impl = impl_.get();
  const std::size_t query_max = impl->options.query_bytes_max;
  const std::size_t body_max = impl->options.body_bytes_max;
  const auto route = [&](const char* method, const char* path, Where where, PlainAnswer answer,
                         std::size_t bytes_max) {
    auto handler = [impl, path, where, answer = std::move(answer),
                    reference = impl->Reference(method, path),
                    &server](HttpExchange& exchange) -> Task<void> {
      const auto job = std::make_shared<PlainJob>();
      job->request = std::move(exchange.request());
      AccessRecord record(impl->parts.access_log, impl->options.trace_id_header, job->request, path,
                          impl->clock);
      const ReferenceRecord counted(reference, impl->clock, record.status);
      if (where == Where::kAside) {
        std::function<void()> make = [job, &answer] { job->Make(answer); };
        co_await server.Aside(std::move(make));
      } else {
        job->Make(answer);
      }
      record.model = job->model;
      const int status = job->answer.status;
      if (co_await exchange.Respond(std::move(job->answer))) record.status = status;
    };
    server.Route(method, path, std::move(handler), bytes_max);
  };
  const auto post = [&](const char* path, Where where, PlainAnswer answer, std::size_t bytes_max) {
    route("POST", path, where, std::move(answer), bytes_max);
  };
  const auto get = [&](const char* path, Where where, PlainAnswer answer) {
    route("GET", path, where, std::move(answer), 0);
  };
  using R = const net::HttpRequest&;
  using M = std::string&;
  constexpr Where kAtOnce = Where::kAtOnce;
  constexpr Where kAside = Where::kAside;
  post(
      "/register", kAside, [impl](R r, M m) { return impl->Register(r, m); }, body_max);
  post(
      "/unregister", kAside, [impl](R r, M m) { return impl->Unregister(r, m); }, body_max);
  post(
      "/query", kAtOnce, [impl](R r, M m) { return impl->Query(r, m); }, query_max);
  post(
      "/query_by_hash", kAtOnce, [impl](R r, M m) { return impl->QueryByHash(r, m); }, body_max);
  post(
      "/register_peer", kAtOnce, [impl](R r, M) { return impl->RegisterPeer(r); }, body_max);
  post(
      "/deregister_peer", kAtOnce, [impl](R r, M) { return impl->DeregisterPeer(r); }, body_max);
  post(
      "/reopen_logs", kAside, [impl](R, M) { return impl->ReopenLogs(); }, body_max);
  get("/peers", kAtOnce, [impl](R, M) { return impl->Peers(); });
  get("/workers", kAside, [impl](R r, M) { return impl->Workers(r); });
  get("/workers/{id}/rejected", kAside,
      [impl](R r, M) { return RejectedPage(impl->sources.catalog(), r); });
  get("/ready", kAtOnce, [impl](R, M) { return impl->Ready(); });
  get("/metrics", kAside, [impl](R, M) { return impl->Metrics(); });
  get("/health", kAtOnce, [](R, M) { return HttpResponse(); });
  server.Route("GET", "/dump",
               [impl, reference = impl->Reference("GET", "/dump"), &server](
                   HttpExchange& exchange) { return impl->Dump(server, exchange, reference); });
}

}  // namespace kvr::service
