#include "service/gateway/gateway_test_util.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json_writer.h"
#include "hashing/block_hash.h"

namespace kvr::service::testing {
namespace {

std::string ChatChunk(std::string_view delta, std::string_view reason) {
  return fmt::format(
      "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,"
      "\"delta\":{},\"finish_reason\":{}}}]}}\n\n",
      delta, reason);
}

std::string UsageJson(std::uint64_t prompt, std::uint64_t completion, std::uint64_t cached) {
  return fmt::format(
      "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
      "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
      prompt, completion, prompt + completion, cached);
}

}  // namespace

Script ChatStream(std::size_t n, std::uint64_t prompt_tokens, std::uint64_t cached_tokens) {
  Script script;
  for (std::size_t i = 0; i < n; ++i)
    script.pieces.push_back(ChatChunk(fmt::format("{{\"content\":\"t{} \"}}", i), "null"));
  script.pieces.push_back(ChatChunk("{}", "\"stop\""));
  script.pieces.push_back("data: {\"id\":\"c\",\"choices\":[],\"usage\":" +
                          UsageJson(prompt_tokens, n, cached_tokens) + "}\n\n");
  script.pieces.emplace_back("data: [DONE]\n\n");
  return script;
}

Script PlainAnswer(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) {
  Script script;
  script.content_type = "application/json";
  script.sized = true;
  script.pieces.push_back(
      "{\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"hi\",\"finish_reason\":\"stop\"}],"
      "\"usage\":" +
      UsageJson(prompt_tokens, 1, cached_tokens) + "}");
  return script;
}

Script ErrorAnswer(int status) {
  Script script;
  script.status = status;
  script.content_type = "application/json";
  script.sized = true;
  script.pieces.push_back(
      fmt::format("{{\"error\":{{\"message\":\"engine says {}\",\"code\":{}}}}}", status, status));
  return script;
}

// Counts one completion that the engine works on.
class FakeEngine::Active {
 public:
  explicit Active(std::atomic<std::size_t>& count) : count_(count) { count_.fetch_add(1); }
  ~Active() { count_.fetch_sub(1); }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

FakeEngine::FakeEngine(std::uint16_t port)
    : script_(std::make_shared<const Script>(ChatStream(3))),
      runtime_({1, "engine"}),
      server_(runtime_, registry_, {.port = port}) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    server_.Route("POST", path, [this](net::HttpExchange& exchange) { return Complete(exchange); });
  }
  server_.Route("POST", "/tokenize",
                [this](net::HttpExchange& exchange) { return Tokenize(exchange); });
  KVR_CHECK(server_.Start().has_value());
}

FakeEngine::~FakeEngine() {
  server_.Stop(Millis{0});
}

void FakeEngine::Play(Script script) {
  const Lock lock(mutex_);
  script_ = std::make_shared<const Script>(std::move(script));
}

void FakeEngine::SetTokens(std::vector<TokenId> tokens) {
  const Lock lock(mutex_);
  tokens_ = std::move(tokens);
}

net::HttpRequest FakeEngine::last() const {
  const Lock lock(mutex_);
  return last_;
}

net::Task<void> FakeEngine::Complete(net::HttpExchange& exchange) {
  const Active active(active_);
  std::shared_ptr<const Script> script;
  {
    const Lock lock(mutex_);
    last_ = exchange.request();
    script = script_;
  }
  received_.fetch_add(1);
  if (script->answers) {
    net::HttpHeaders headers;
    headers.Add("Content-Type", script->content_type);
    for (const auto& [name, value] : script->headers)
      headers.Add(name, value);
    std::uint64_t bytes = 0;
    for (const auto& piece : script->pieces)
      bytes += piece.size();
    std::optional<std::uint64_t> length;
    // One that breaks off promises more than it sends.
    if (script->sized) length = bytes + (script->end == Script::End::kWell ? 0 : 1'000);
    const auto begun = co_await exchange.BeginStream(script->status, headers, length);
    if (!begun) co_return;
    const bool written = co_await WritePieces(*script, exchange);
    if (!written) co_return;
  }
  if (script->end == Script::End::kReset) {
    exchange.Abort();
  } else if (script->end == Script::End::kHang) {
    const bool slept = co_await net::Sleep(std::chrono::minutes(1));
    static_cast<void>(slept);
  } else {
    const auto end = co_await exchange.EndStream();
    static_cast<void>(end);
  }
}

net::Task<bool> FakeEngine::WritePieces(const Script& script, net::HttpExchange& exchange) {
  for (std::size_t i = 0; i < script.pieces.size(); ++i) {
    while (script.gated && released_.load() <= i) {
      const bool slept = co_await net::Sleep(std::chrono::milliseconds(1));
      if (!slept) co_return false;
    }
    const auto written = co_await exchange.Write(script.pieces[i]);
    if (!written) co_return false;
    if (script.interval > Nanos{0} && !co_await net::Sleep(script.interval)) co_return false;
  }
  co_return true;
}

net::Task<void> FakeEngine::Tokenize(net::HttpExchange& exchange) {
  std::vector<TokenId> tokens;
  {
    const Lock lock(mutex_);
    tokens = tokens_;
  }
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("tokens");
  json.BeginArray();
  for (const TokenId token : tokens)
    json.Value(token);
  json.EndArray();
  json.EndObject();
  net::HttpResponse response = net::JsonResponse(tokens.empty() ? 404 : 200, std::move(body));
  const auto sent = co_await exchange.Respond(std::move(response));
  static_cast<void>(sent);
}

std::string Answer::Header(std::string_view name) const {
  for (std::size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at)) {
    at += 2;
    const std::size_t colon = head.find(':', at);
    if (colon == std::string::npos) break;
    if (!net::EqualsIgnoreCase(std::string_view(head).substr(at, colon - at), name)) continue;
    const std::size_t value = head.find_first_not_of(' ', colon + 1);
    return head.substr(value, head.find("\r\n", value) - value);
  }
  return {};
}

std::string Post(std::string_view path, std::string_view body, std::string_view headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n{}Connection: "
      "close\r\nContent-Length: {}\r\n\r\n{}",
      path, headers, body.size(), body);
}

Answer ReadAnswer(net::testing::RawClient& client) {
  Answer answer;
  answer.head = client.ReadUntil("\r\n\r\n");
  std::string rest = client.ReadToEnd();
  answer.reset = client.was_reset();
  if (answer.head.size() > 12) {
    std::from_chars(answer.head.data() + 9, answer.head.data() + 12, answer.status);
  }
  const std::string length = answer.Header("Content-Length");
  if (!length.empty()) {
    answer.complete = std::to_string(rest.size()) == length;
    answer.body = std::move(rest);
    return answer;
  }
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t line = rest.find("\r\n", at);
    if (line == std::string::npos) break;
    std::size_t size = 0;
    std::from_chars(rest.data() + at, rest.data() + line, size, 16);
    if (size == 0) {
      answer.complete = rest.substr(at) == "0\r\n\r\n";
      break;
    }
    answer.body += rest.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
  return answer;
}

GatewayUnderTest::GatewayUnderTest(const GatewaySetup& setup)
    : block_size_(setup.block_size),
      runtime_({setup.io_threads, "gateway"}),
      router_(
          std::make_unique<routing::Router>(catalog_, indexes_, clock_, registry_, setup.router)),
      client_(std::make_unique<net::HttpClient>(runtime_, setup.client)) {
  const Gateway::Parts parts{*router_, catalog_, indexes_, *client_, clock_, registry_};
  gateway_ = std::make_unique<Gateway>(parts, setup.gateway, setup.tokens, 1);
  net::HttpServer::Options options = setup.server;
  options.name = "gateway";
  server_ = std::make_unique<net::HttpServer>(runtime_, registry_, options);
  gateway_->AddRoutes(*server_);
  if (setup.watches) gateway_->WatchFleet(runtime_);
  KVR_CHECK(server_->Start().has_value());
}

GatewayUnderTest::~GatewayUnderTest() {
  StopServer();
  runtime_.Stop();
}

void GatewayUnderTest::AddWorker(std::uint64_t id, const std::string& url, std::uint32_t dp_size,
                                 std::optional<std::uint64_t> kv_blocks) {
  fleet::WorkerSpec spec;
  spec.id = WorkerId{id};
  spec.partition = partition();
  spec.url = url;
  spec.block_size = block_size_;
  spec.total_kv_blocks = kv_blocks;
  for (std::uint32_t rank = 0; rank < dp_size; ++rank)
    spec.dp_ranks.push_back(rank);
  KVR_CHECK(indexes_.GetOrCreate(spec.partition, spec.block_size).has_value());
  KVR_CHECK(catalog_.Add(std::move(spec)).has_value());
}

void GatewayUnderTest::Hold(Rank rank, std::vector<TokenId> tokens) {
  const auto index = indexes_.Find(partition());
  std::vector<BlockHash> hashes;
  hashing::HashBlocks(tokens, {.block_size = block_size_}, hashes);
  std::vector<PlacedBlock> blocks;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    blocks.push_back({EngineHash{Raw(hashes[i]) + i}, hashes[i]});
  PlacementEvent event;
  event.rank = rank;
  event.blocks = blocks;
  const auto slot = index->index->AddRank(rank);
  KVR_CHECK(slot.has_value());
  KVR_CHECK(index->index->Apply(*slot, event).status == index::ApplyStatus::kOk);
  const auto fleet = catalog_.snapshot();
  fleet->Find(rank)->health->SetStatus({RankState::kExact, StateReason::kNone}, "", clock_.Now());
}

Answer GatewayUnderTest::Send(std::string_view path, std::string_view body,
                              std::string_view headers) const {
  net::testing::RawClient client(port());
  KVR_CHECK(client.Send(Post(path, body, headers)));
  return ReadAnswer(client);
}

double GatewayUnderTest::Series(std::string_view name) const {
  return net::testing::Series(registry_, name);
}

bool GatewayUnderTest::IsIdle() const {
  if (gateway_->in_flight() > 0 || Series("kvr_gateway_requests_in_flight") > 0) return false;
  for (const auto& load : Loads()) {
    if (load.active_requests > 0 || load.active_blocks > 0 || load.active_prefill_tokens > 0) {
      return false;
    }
  }
  return true;
}

}  // namespace kvr::service::testing
