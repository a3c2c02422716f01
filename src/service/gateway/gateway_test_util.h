// A gateway on a real socket with small engines behind it, for tests and benchmarks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "metrics/registry.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "net/net_test_util.h"
#include "routing/router.h"
#include "service/gateway/gateway.h"

namespace kvr::service::testing {

// What a fake engine does with a completion.
struct Script {
  enum class End { kWell, kReset, kHang };

  bool answers = true;  // false: `end` comes before the head
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<std::string> pieces;  // of the body, one write each
  bool gated = false;               // piece i waits until Release let i + 1 pieces through
  Nanos interval{0};                // between pieces
  bool sized = false;               // Content-Length instead of chunks
  std::vector<std::pair<std::string, std::string>> headers;
  End end = End::kWell;
};

// `n` chat chunks of one token each, a reason, usage and [DONE].
Script ChatStream(std::size_t n, std::uint64_t prompt_tokens = 8, std::uint64_t cached_tokens = 0);
// One JSON answer with usage.
Script PlainAnswer(std::uint64_t prompt_tokens = 8, std::uint64_t cached_tokens = 0);
// An error as engines word it.
Script ErrorAnswer(int status);

// An engine without a model: answers completions by its script and /tokenize with `tokens`.
class FakeEngine {
 public:
  explicit FakeEngine(std::uint16_t port = 0);
  ~FakeEngine();

  void Play(Script script) KVR_EXCLUDES(mutex_);
  void SetTokens(std::vector<TokenId> tokens) KVR_EXCLUDES(mutex_);  // none: /tokenize is 404
  void Release(std::size_t pieces) { released_.store(pieces); }
  void StopListening() { server_.Stop(Millis{0}); }

  [[nodiscard]] std::string url() const { return "http://" + server_.address_port(); }
  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] std::size_t received() const { return received_.load(); }
  [[nodiscard]] std::size_t active() const { return active_.load(); }
  [[nodiscard]] net::HttpRequest last() const KVR_EXCLUDES(mutex_);

 private:
  class Active;

  net::Task<void> Complete(net::HttpExchange& exchange);
  net::Task<bool> WritePieces(const Script& script, net::HttpExchange& exchange);
  net::Task<void> Tokenize(net::HttpExchange& exchange);

  mutable Mutex mutex_;
  std::shared_ptr<const Script> script_ KVR_GUARDED_BY(mutex_);
  std::vector<TokenId> tokens_ KVR_GUARDED_BY(mutex_);
  net::HttpRequest last_ KVR_GUARDED_BY(mutex_);
  std::atomic<std::size_t> released_{0};
  std::atomic<std::size_t> received_{0};
  std::atomic<std::size_t> active_{0};
  metrics::Registry registry_;
  net::IoRuntime runtime_;
  net::HttpServer server_;
};

// A body that came back whole, or what there was of it.
struct Answer {
  int status = 0;
  std::string head;
  std::string body;       // without chunk framing
  bool complete = false;  // the framing says so
  bool reset = false;

  [[nodiscard]] std::string Header(std::string_view name) const;  // empty: none
};

// A POST of JSON that asks to close the connection.
std::string Post(std::string_view path, std::string_view body, std::string_view headers = {});
// Reads to the end of the connection.
Answer ReadAnswer(net::testing::RawClient& client);

struct GatewaySetup {
  GatewayOptions gateway = {};
  tokens::TokenProvider::Options tokens = {};
  routing::RouterOptions router = {};
  net::HttpClient::Options client = {};
  net::HttpServer::Options server = {};
  std::size_t io_threads = 2;
  std::uint32_t block_size = 4;  // of the workers
  bool watches = true;           // engines are asked how they are, not only met by requests
};

// Everything between the client's socket and the engines.
class GatewayUnderTest {
 public:
  explicit GatewayUnderTest(const GatewaySetup& setup = {});
  ~GatewayUnderTest();

  // A worker of model "m". Its ranks have no event source.
  void AddWorker(std::uint64_t id, const std::string& url, std::uint32_t dp_size = 1,
                 std::optional<std::uint64_t> kv_blocks = std::nullopt);
  // The rank holds these whole blocks, exactly.
  void Hold(Rank rank, std::vector<TokenId> tokens);

  Answer Send(std::string_view path, std::string_view body, std::string_view headers = {}) const;
  // Cancels what is under way.
  void StopServer() { server_->Stop(Millis{0}); }
  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  [[nodiscard]] double Series(std::string_view name) const;
  // No booking, no request in flight.
  [[nodiscard]] bool IsIdle() const;
  [[nodiscard]] std::vector<routing::RankLoad> Loads() const { return router_->Loads(partition()); }
  static Partition partition() { return {"m", "default"}; }

  fleet::Catalog& catalog() { return catalog_; }
  index::IndexSet& indexes() { return indexes_; }
  const Clock& clock() { return clock_; }
  metrics::Registry& registry() { return registry_; }

 private:
  const std::uint32_t block_size_;
  SystemClock clock_;
  metrics::Registry registry_;
  net::IoRuntime runtime_;
  fleet::Catalog catalog_;
  index::IndexSet indexes_{index::IndexOptions{}};
  std::unique_ptr<routing::Router> router_;
  std::unique_ptr<net::HttpClient> client_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace kvr::service::testing
