#include "sim/mock_server.h"

#include <charconv>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "net/http.h"

namespace kvr::sim {
namespace {

using openai::ApiError;

net::HttpResponse ErrorResponse(const ApiError& error) {
  net::HttpResponse response = net::JsonResponse(error.status, openai::ErrorBody(error));
  if (error.status == 429) response.headers.Set("Retry-After", "1");
  return response;
}

net::HttpHeaders StreamHeaders() {
  net::HttpHeaders headers;
  headers.Add("Content-Type", "text/event-stream; charset=utf-8");
  headers.Add("Cache-Control", "no-cache");
  return headers;
}

GenerateUsage UsageOf(const Generation& generation, std::uint32_t completion_tokens) {
  return {.prompt_tokens = generation.prompt_tokens(),
          .cached_tokens = generation.cached_tokens(),
          .completion_tokens = completion_tokens};
}

// Answers with what `respond` makes of the request, at once.
template <typename Respond>
net::HttpHandler AtOnce(Respond respond) {
  struct Answer {
    static net::Task<void> Send(net::HttpExchange& exchange, net::HttpResponse response) {
      (void)co_await exchange.Respond(std::move(response));
    }
  };
  return [respond = std::move(respond)](net::HttpExchange& exchange) -> net::Task<void> {
    return Answer::Send(exchange, respond(exchange.request()));
  };
}

}  // namespace

Result<std::unique_ptr<MockServer>> MockServer::Create(net::IoRuntime& runtime,
                                                       const Options& options) {
  KVR_TRY(std::unique_ptr<MockEngine> engine, MockEngine::Create(runtime, options.engine));
  std::unique_ptr<MockServer> server(new MockServer(runtime, options, std::move(engine)));
  if (auto started = server->server_.Start(); !started) {
    server->Stop(Millis{0});
    return tl::make_unexpected(std::move(started).error());
  }
  return server;
}

MockServer::MockServer(net::IoRuntime& runtime, const Options& options,
                       std::unique_ptr<MockEngine> engine)
    : options_(options),
      tokenizer_(options.engine.core.vocabulary),
      engine_(std::move(engine)),
      server_(runtime, registry_,
              {.address = options.engine.address,
               .port = options.port,
               .body_bytes_max = options.body_bytes_max,
               .name = options.name}),
      collector_(registry_.AddCollector([this](auto& sink) { CollectMetrics(sink); })) {
  AddRoutes();
}

MockServer::~MockServer() = default;

void MockServer::Stop(Millis grace) {
  server_.Stop(grace);
  engine_->Stop();
}

void MockServer::AddRoutes() {
  for (const openai::Api api : {openai::Api::kCompletions, openai::Api::kChat}) {
    server_.Route("POST", std::string(openai::ApiPath(api)),
                  [this, api](net::HttpExchange& exchange) { return Generate(api, exchange); });
  }
  server_.Route("POST", "/tokenize",
                AtOnce([this](const net::HttpRequest& request) { return Tokenize(request); }));
  server_.Route("POST", "/detokenize",
                AtOnce([this](const net::HttpRequest& request) { return Detokenize(request); }));
  server_.Route("GET", "/v1/models", AtOnce([this](const auto&) { return Models(); }));
  server_.Route("GET", "/health", AtOnce([](const auto&) { return net::HttpResponse{}; }));
  server_.Route("GET", "/ready", AtOnce([](const auto&) {
                  return net::JsonResponse(200, R"({"ready":true,"reasons":[]})");
                }));
  server_.Route("GET", "/metrics", AtOnce([this](const auto&) { return Metrics(); }));
  if (engine_->pulled()) {
    // The engine has it for POST only; GET is for people.
    for (const char* const method : {"POST", "GET"}) {
      server_.Route(method, "/kv_cache_events", AtOnce([this](const auto&) {
                      return net::JsonResponse(200, engine_->DrainEvents());
                    }));
    }
  }
  server_.Route("GET", "/mock/blocks", AtOnce([this](const auto&) { return Blocks(); }));
  server_.Route("POST", "/reset_prefix_cache", AtOnce([this](const auto&) {
                  return net::JsonResponse(
                      200, fmt::format(R"({{"success":{}}})", engine_->ResetCache()));
                }));
  server_.Route("POST", "/mock/fault", AtOnce([this](const net::HttpRequest& request) {
                  const auto applied = faults_.Apply(request.body, *engine_);
                  if (!applied) return ErrorResponse(applied.error());
                  return net::JsonResponse(200, R"({"ok":true})");
                }));
  server_.SetErrorWriter([](int status, std::string_view code, std::string_view message) {
    return ErrorResponse(openai::FromStatus(status, code, message));
  });
}

Result<std::optional<std::uint32_t>, ApiError> MockServer::RankOf(
    const net::HttpRequest& request) const {
  const auto header = request.headers.Find("X-data-parallel-rank");
  if (!header) return std::nullopt;
  std::int64_t rank = 0;
  const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), rank);
  // What is no integer is ignored, as vLLM does.
  if (error == std::errc::invalid_argument || end != header->data() + header->size()) {
    return std::nullopt;
  }
  if (error != std::errc() || rank < 0 || rank >= std::int64_t{engine_->ranks()}) {
    return tl::unexpected<ApiError>(openai::BadField(
        "X-data-parallel-rank", fmt::format("there are {} ranks", engine_->ranks())));
  }
  return static_cast<std::uint32_t>(rank);
}

net::Task<void> MockServer::Generate(openai::Api api, net::HttpExchange& exchange) {
  if (const auto status = faults_.TakeError()) {
    ApiError error;
    error.status = *status;
    error.type = "server_error";
    error.code = "mock_fault";
    error.message = "a fault that was asked for";
    (void)co_await exchange.Respond(ErrorResponse(error));
    co_return;
  }
  auto request = ParseGenerate(api, exchange.request().body, tokenizer_);
  if (request && request->model != options_.model) {
    ApiError error = openai::BadField("model", "there is no such model here", "model_not_found");
    error.status = 404;
    request = tl::unexpected<ApiError>(std::move(error));
  }
  const auto rank = RankOf(exchange.request());
  if (!request || !rank) {
    (void)co_await exchange.Respond(ErrorResponse(!request ? request.error() : rank.error()));
    co_return;
  }
  const std::uint32_t max_tokens = request->max_tokens.value_or(options_.max_tokens_default);
  const auto generation = engine_->Submit(std::move(request->prompt), max_tokens, *rank);
  if (!generation) {
    (void)co_await exchange.Respond(ErrorResponse(openai::FromError(generation.error())));
    co_return;
  }
  const auto created = std::chrono::duration_cast<std::chrono::seconds>(clock_.WallTime()).count();
  const std::string id = fmt::format("{}-{}-{}", api == openai::Api::kChat ? "chatcmpl" : "cmpl",
                                     options_.name, next_answer_++);
  AnswerWriter writer(api, id, options_.model, created);
  if (request->stream) {
    co_await Stream(exchange, *request, **generation, writer);
  } else {
    co_await AnswerWhole(exchange, **generation, writer);
  }
}

net::Task<void> MockServer::Stream(net::HttpExchange& exchange, const GenerateRequest& request,
                                   Generation& generation, AnswerWriter& writer) {
  const auto dies_after = faults_.TakeDeath();
  const net::HttpHeaders headers = StreamHeaders();
  if (const auto begun = co_await exchange.BeginStream(200, headers); !begun) co_return;
  std::uint32_t sent = 0;
  std::string out;
  // What came up while a write waited for the client is still to be sent, the end included.
  for (bool finished = false; !finished;) {
    co_await generation.Changed();
    finished = generation.finished();
    if (generation.lost()) {
      exchange.Abort();
      co_return;
    }
    const std::vector<TokenId> tokens = generation.TakeTokens();
    sent += static_cast<std::uint32_t>(tokens.size());
    out.clear();
    writer.AppendTokens(out, tokens, finished);
    if (dies_after && sent >= *dies_after) {
      (void)co_await exchange.Write(out);
      exchange.Abort();
      co_return;
    }
    if (finished) {
      if (request.include_usage) writer.AppendUsage(out, UsageOf(generation, sent));
      AnswerWriter::AppendDone(out);
    }
    if (const auto written = co_await exchange.Write(out); !written) co_return;
  }
  (void)co_await exchange.EndStream();
}

net::Task<void> MockServer::AnswerWhole(net::HttpExchange& exchange, Generation& generation,
                                        AnswerWriter& writer) {
  const auto dies_after = faults_.TakeDeath();
  std::vector<TokenId> tokens;
  while (!generation.finished()) {
    co_await generation.Changed();
    const std::vector<TokenId> fresh = generation.TakeTokens();
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    if (generation.lost() || (dies_after && tokens.size() >= *dies_after)) {
      exchange.Abort();
      co_return;
    }
  }
  const auto usage = UsageOf(generation, static_cast<std::uint32_t>(tokens.size()));
  const std::string text = tokenizer_.Decode(tokens);
  (void)co_await exchange.Respond(net::JsonResponse(200, writer.Whole(text, usage)));
}

net::HttpResponse MockServer::Tokenize(const net::HttpRequest& request) const {
  const auto tokens = ParseTokenize(request.body, tokenizer_);
  if (!tokens) return ErrorResponse(tokens.error());
  return net::JsonResponse(
      200, fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}]}})", tokens->size(),
                       engine_->context_tokens_max(), fmt::join(*tokens, ",")));
}

net::HttpResponse MockServer::Detokenize(const net::HttpRequest& request) const {
  const auto tokens = ParseDetokenize(request.body);
  if (!tokens) return ErrorResponse(tokens.error());
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("prompt", tokenizer_.Decode(*tokens));
  json.EndObject();
  return net::JsonResponse(200, std::move(out));
}

net::HttpResponse MockServer::Models() const {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("object", "list");
  json.Key("data");
  json.BeginArray();
  json.BeginObject();
  json.Field("id", options_.model);
  json.Field("object", "model");
  json.Field("created", 0);
  json.Field("owned_by", "kvroute");
  json.Field("root", options_.model);
  json.Key("parent");
  json.Null();
  json.Field("max_model_len", engine_->context_tokens_max());
  json.EndObject();
  json.EndArray();
  json.EndObject();
  return net::JsonResponse(200, std::move(out));
}

net::HttpResponse MockServer::Blocks() const {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("ranks");
  json.BeginArray();
  for (std::uint32_t rank = 0; rank < engine_->ranks(); ++rank) {
    json.BeginObject();
    json.Field("rank", rank);
    for (const Tier tier : {Tier::kDevice, Tier::kHostPinned}) {
      json.Key(TierName(tier));
      json.BeginArray();
      for (const EngineHash hash : engine_->pool(rank).Visible(tier))
        json.Value(Raw(hash));
      json.EndArray();
    }
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return net::JsonResponse(200, std::move(out));
}

net::HttpResponse MockServer::Metrics() const {
  net::HttpResponse response;
  response.headers.Set("Content-Type", metrics::kTextContentType);
  registry_.WriteText(response.body);
  return response;
}

void MockServer::CollectMetrics(metrics::SampleSink& sink) const {
  for (std::uint32_t rank = 0; rank < engine_->ranks(); ++rank) {
    const MockEngine::RankStatus status = engine_->status(rank);
    const metrics::Labels labels = {{"model_name", options_.model},
                                    {"engine", std::to_string(rank)}};
    const auto gauge = [&](std::string_view name, std::string_view help, double value) {
      sink.AddGauge(name, help, labels, value);
    };
    const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
      sink.AddCounter(name, help, labels, static_cast<double>(value));
    };
    gauge("vllm:num_requests_running", "Requests in the running batch", status.stats.running);
    gauge("vllm:num_requests_waiting", "Requests waiting for room", status.stats.waiting);
    gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks held by requests",
          static_cast<double>(status.active_blocks) / status.blocks_max);
    counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache",
            status.stats.prompt_tokens);
    counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache",
            status.stats.cached_tokens);
    counter("vllm:num_preemptions_total", "Requests that lost their blocks to another",
            status.stats.preemptions);
    counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests",
            status.stats.prompt_tokens);
    counter("vllm:generation_tokens_total", "Tokens generated", status.stats.generated_tokens);
    counter("kvr_sim_event_messages_total", "Event messages published", status.messages);
    sink.AddGauge("vllm:cache_config_info", "Sizes of the KV cache",
                  {{"model_name", options_.model},
                   {"engine", std::to_string(rank)},
                   {"block_size", std::to_string(engine_->options().core.pool.block_size)},
                   {"num_gpu_blocks", std::to_string(status.blocks_max)}},
                  1);
  }
}

}  // namespace kvr::sim
