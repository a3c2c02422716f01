#include "service/gateway/gateway.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/rng.h"
#include "service/common_pages.h"
#include "service/gateway/forwarding.h"
#include "service/gateway/relay.h"
#include "service/index_metrics.h"
#include "service/media_type.h"

namespace kvr::service {
namespace {

using openai::ApiError;

constexpr std::string_view kRequestIdHeader = "X-Request-Id";
constexpr std::string_view kGroupHeader = "x-kvroute-routing-group";
// Bytes of body a prompt token is taken for when its ids are not known: English text has about
// four characters a token. It sizes the load, nothing else.
constexpr std::uint64_t kBytesPerToken = 4;
constexpr std::size_t kEnginesToAsk = 8;

ApiError UnsupportedMedia() {
  return openai::FromError(
      {ErrorCode::kUnsupportedMedia, "the body must be JSON: send Content-Type: application/json"});
}

ApiError TooManyRequests(std::size_t in_flight_max) {
  return openai::FromError(
      {ErrorCode::kOverloaded,
       fmt::format("{} requests are being answered, more are not taken; retry later",
                   in_flight_max)});
}

// Errors that the server finds by itself, in OpenAI's shape.
net::HttpResponse ServerError(int status, std::string_view code, std::string_view message) {
  return net::JsonResponse(status, openai::ErrorBody(openai::FromStatus(status, code, message)));
}

std::string TokensHeader(const tokens::Tokens& tokens) {
  std::string text(tokens::kTokenSourceNames[static_cast<std::size_t>(tokens.source)]);
  if (tokens.source == tokens::TokenSource::kNone) {
    text += "; reason=";
    text += tokens::kNoTokensNames[static_cast<std::size_t>(tokens.missing)];
  }
  if (tokens.approximate) text += "; approximate";
  return text;
}

// The decision, for the client to see.
void AddDecision(const Dispatched& answer, const tokens::Tokens& tokens,
                 net::HttpHeaders& headers) {
  const routing::Decision& decision = answer.decision;
  headers.Set("x-kvroute-worker", std::to_string(Raw(decision.rank.worker)));
  headers.Set("x-kvroute-dp-rank", std::to_string(decision.rank.dp_rank));
  headers.Set("x-kvroute-predicted-cached-tokens",
              std::to_string(decision.predicted_cached_tokens));
  headers.Set("x-kvroute-policy", sched::PolicyName(decision.policy));
  headers.Set("x-kvroute-cache-view", tokens.source == tokens::TokenSource::kNone
                                          ? "no_tokens"
                                          : routing::CacheViewName(decision.cache_view));
  headers.Set("x-kvroute-tokens", TokensHeader(tokens));
  headers.Set("x-kvroute-attempts", std::to_string(answer.attempts));
}

}  // namespace

// One of the places for requests in flight; `taken` is false when there was none.
class Gateway::Slot {
 public:
  Slot(std::atomic<std::size_t>& count, std::size_t max)
      : count_(count), taken_(count.fetch_add(1) < max) {}
  ~Slot() { count_.fetch_sub(1); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  [[nodiscard]] bool taken() const { return taken_; }

 private:
  std::atomic<std::size_t>& count_;
  const bool taken_;
};

Gateway::Gateway(const Parts& parts, const GatewayOptions& options,
                 const tokens::TokenProvider::Options& tokens, std::uint64_t id_seed)
    : parts_(parts),
      options_(options),
      metrics_(parts.registry),
      watch_(options.engine_watch, parts.catalog, parts.client, parts.clock),
      rank_watch_({}, parts.catalog, parts.clock,
                  [this](WorkerId worker) { watch_.ProbeSoon(worker); }),
      dispatcher_(parts.router, parts.catalog, parts.client, watch_, options.attempts_max),
      tokens_(parts.client, parts.clock, tokens),
      pages_(parts.catalog, parts.indexes, parts.router, watch_, parts.clock, parts.warm, options_),
      id_seed_(id_seed),
      collector_(parts.registry.AddCollector([this](metrics::SampleSink& sink) {
        sink.AddGauge("kvr_gateway_engines_down", "Engines that could not be reached", {},
                      static_cast<double>(watch_.down()));
        dispatcher_.selections().Collect(*parts_.catalog.snapshot(), sink);
        const auto cache = tokens_.cache_stats();
        sink.AddGauge("kvr_tokens_cache_entries", "Prompts whose token ids are remembered", {},
                      static_cast<double>(cache.entries));
        sink.AddGauge("kvr_tokens_cache_bytes", "Memory of the remembered token ids", {},
                      static_cast<double>(cache.bytes));
        sink.AddCounter("kvr_tokens_cache_hits_total", "Prompts found in the token cache", {},
                        static_cast<double>(cache.hits));
        sink.AddCounter("kvr_tokens_cache_misses_total", "Prompts not found in the token cache", {},
                        static_cast<double>(cache.misses));
        sink.AddCounter("kvr_tokens_cache_evicted_total",
                        "Prompts that gave way in the token cache", {},
                        static_cast<double>(cache.evicted));
        CollectIndexes(parts_.indexes, sink);
      })) {}

void Gateway::WatchFleet(net::IoRuntime& runtime) {
  for (std::size_t i = 0; i < EngineWatch::kProbers; ++i)
    runtime.Spawn([this] { return watch_.Run(); });
  runtime.Spawn([this] { return rank_watch_.Run(); });
}

void Gateway::AddRoutes(net::HttpServer& server) {
  server.SetErrorWriter(ServerError);
  server.SetRefusalObserver([this](std::string_view path, int status) {
    for (const openai::Api api : {openai::Api::kCompletions, openai::Api::kChat}) {
      if (path != openai::ApiPath(api)) continue;
      const Outcome outcome = status == 503 ? Outcome::kShed : Outcome::kRefused;
      metrics_.requests[static_cast<std::size_t>(api)][static_cast<std::size_t>(outcome)]->Add();
    }
  });
  for (const openai::Api api : {openai::Api::kCompletions, openai::Api::kChat}) {
    server.Route(
        "POST", std::string(openai::ApiPath(api)),
        [this, api](net::HttpExchange& exchange) { return Complete(api, exchange); },
        options_.body_bytes_max);
  }
  pages_.AddRoutes(server);
  server.RoutePage("/metrics",
                   [this](const net::HttpRequest&) { return MetricsPage(parts_.registry); });
}

net::Task<void> Gateway::Complete(openai::Api api, net::HttpExchange& exchange) {
  RequestRecord record(metrics_, api, parts_.clock, exchange);
  const Slot slot(in_flight_, options_.in_flight_max);
  if (!slot.taken()) {
    record.EndAs(Outcome::kShed);
    const ApiError error = TooManyRequests(options_.in_flight_max);
    co_await Refuse(exchange, error);
    co_return;
  }
  co_await Serve(api, exchange, record);
}

net::Task<void> Gateway::Serve(openai::Api api, net::HttpExchange& exchange,
                               RequestRecord& record) {
  net::HttpRequest& incoming = exchange.request();
  const auto wanted = Read(api, incoming);
  record.EndStage(Stage::kParse);
  if (!wanted) {
    record.EndAs(Outcome::kRefused);
    co_await Refuse(exchange, wanted.error());
    co_return;
  }

  const std::vector<net::Url> engines = EnginesToAsk(*wanted);
  const tokens::Tokens tokens = co_await tokens_.Get(wanted->request, incoming.body, engines);
  record.EndStage(Stage::kTokens);
  record.TokensFrom(tokens);
  WarnWithoutTokens(tokens);

  const routing::RouteRequest route = RouteOf(*wanted, tokens, incoming.body.size());
  net::HttpRequest outgoing = RequestForEngine(incoming);
  auto answer = co_await dispatcher_.Send(route, outgoing, record);
  if (!answer) {
    if (answer.error().outcome) record.EndAs(*answer.error().outcome);
    co_await Refuse(exchange, answer.error().error);
    co_return;
  }
  // An answer may take minutes; nobody needs the prompt any more. An assignment would keep its
  // memory.
  std::string().swap(outgoing.body);
  exchange.ReleaseBody();

  net::HttpHeaders headers = HeadersForClient(answer->stream->headers());
  AddDecision(*answer, tokens, headers);
  if (!headers.Find(kRequestIdHeader)) {
    headers.Add(kRequestIdHeader, *outgoing.headers.Find(kRequestIdHeader));
  }
  Relay relay(exchange, *answer, record, options_);
  const auto usage = co_await relay.Run(headers);
  if (!relay.complete()) co_return;
  if (!usage) {
    record.Unreported();
    co_return;
  }
  record.Used(*usage, answer->decision.predicted_cached_tokens);
  if (usage->cached_tokens) parts_.router.ReportActual(answer->decision, *usage->cached_tokens);
}

Result<Gateway::Wanted, ApiError> Gateway::Read(openai::Api api,
                                                const net::HttpRequest& incoming) const {
  const auto content_type = incoming.headers.Find("Content-Type");
  if (content_type && !IsMediaType(*content_type, "application/json")) {
    return tl::unexpected<ApiError>(UnsupportedMedia());
  }
  Wanted wanted;
  KVR_TRY(wanted.request, openai::ParseRequest(api, incoming.body, options_.request));
  const auto adapter = options_.adapters.find(wanted.request.model);
  wanted.is_adapter = adapter != options_.adapters.end();
  wanted.partition.model_name = wanted.is_adapter ? adapter->second : wanted.request.model;
  if (const auto group = incoming.headers.Find(kGroupHeader)) {
    wanted.partition.routing_group = *group;
  }
  if (parts_.catalog.snapshot()->In(wanted.partition).empty()) {
    return tl::unexpected<ApiError>(
        UnknownModel(wanted.request.model, wanted.partition.routing_group));
  }
  return wanted;
}

routing::RouteRequest Gateway::RouteOf(const Wanted& wanted, const tokens::Tokens& tokens,
                                       std::size_t body_bytes) {
  routing::RouteRequest route;
  route.model_name = wanted.partition.model_name;
  route.routing_group = wanted.partition.routing_group;
  route.tokens = tokens.ids;
  if (wanted.is_adapter) route.lora_name = wanted.request.model;
  route.cache_salt = wanted.request.cache_salt;
  if (tokens.ids.empty()) {
    route.isl_tokens = std::max<std::uint64_t>(1, body_bytes / kBytesPerToken);
  }
  return route;
}

// Takes the body over.
net::HttpRequest Gateway::RequestForEngine(net::HttpRequest& incoming) {
  net::HttpRequest outgoing;
  outgoing.method = incoming.method;
  outgoing.target = incoming.target;
  outgoing.headers = HeadersForEngine(incoming.headers);
  outgoing.body = std::move(incoming.body);
  if (!outgoing.headers.Find(kRequestIdHeader)) {
    outgoing.headers.Add(kRequestIdHeader, NextRequestId());
  }
  return outgoing;
}

void Gateway::WarnWithoutTokens(const tokens::Tokens& tokens) {
  if (tokens.missing < tokens::NoTokens::kNoEngine) return;  // the request's own doing
  std::uint64_t more = 0;
  if (!warn_limit_.Pass(parts_.clock.Now(), more)) return;
  KVR_WARN("routed by load alone: token ids missing ({}); {} more since the last such line",
           tokens::kNoTokensNames[static_cast<std::size_t>(tokens.missing)], more);
}

net::Task<void> Gateway::Refuse(net::HttpExchange& exchange, const ApiError& error) {
  net::HttpResponse response = net::JsonResponse(error.status, openai::ErrorBody(error));
  if (error.status == 429 || error.status == 503) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.retry_after);
    response.headers.Set("Retry-After", std::to_string(seconds.count()));
  }
  const auto sent = co_await exchange.Respond(std::move(response));
  static_cast<void>(sent);  // the outcome is counted as what it is, seen or not
}

std::vector<net::Url> Gateway::EnginesToAsk(const Wanted& wanted) {
  std::vector<net::Url> engines;
  if (wanted.request.form == openai::PromptForm::kTokens) return engines;
  const auto fleet = parts_.catalog.snapshot();
  const auto workers = fleet->In(wanted.partition);
  // Relaxed: only the spread over engines depends on it.
  const std::size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::min(workers.size(), kEnginesToAsk); ++i) {
    const auto url = net::ParseUrl(workers[(first + i) % workers.size()]->spec.url);
    if (url) engines.push_back(*url);
  }
  return engines;
}

std::string Gateway::NextRequestId() {
  Rng rng(id_seed_ + next_id_.fetch_add(1, std::memory_order_relaxed));
  return fmt::format("kvr-{:016x}{:016x}", rng(), rng());
}

}  // namespace kvr::service
