#include "cmd/gateway_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "cmd/descriptor_limit.h"
#include "cmd/environment.h"
#include "cmd/gateway_config.h"
#include "cmd/parse_words.h"
#include "cmd/recovery.h"
#include "cmd/server_main.h"
#include "cmd/worker_config.h"
#include "config/option_table.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "routing/router.h"
#include "service/common_pages.h"
#include "service/gateway/enroll.h"
#include "service/gateway/gateway.h"
#include "service/recovery/stream_start.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute gateway";
constexpr Nanos kSweepInterval = std::chrono::seconds(5);

net::Task<void> SweepUntilCancelled(routing::Router& router) {
  for (;;) {
    const bool slept = co_await net::Sleep(kSweepInterval);
    if (!slept) co_return;
    router.Sweep();
  }
}

// Its requests are routed as those of an engine without events.
void FailedToFollow(Rank rank, const Error& why) {
  KVR_ERROR("the events of worker {} rank {} are not followed: {}", Raw(rank.worker), rank.dp_rank,
            why.message);
}

// Once, since nothing about it changes by itself.
void WarnOfWorkersWithoutEvents(const std::vector<WorkerConfig>& workers) {
  constexpr std::size_t kNamedMax = 16;
  std::vector<std::uint64_t> without;
  for (const WorkerConfig& worker : workers) {
    if (worker.spec.events.empty()) without.push_back(Raw(worker.spec.id));
  }
  if (without.empty()) return;
  const std::size_t named = std::min(without.size(), kNamedMax);
  KVR_WARN(
      "no `events` of worker {}{}: only earlier requests tell what may be cached there "
      "(routing.approximate_ttl_ms)",
      fmt::join(without.begin(), without.begin() + static_cast<std::ptrdiff_t>(named), ", "),
      named < without.size() ? fmt::format(" and {} more", without.size() - named) : "");
}

// All parts of a running gateway. Built from the bottom up, taken down in reverse.
class Node {
 public:
  explicit Node(const GatewayConfig& config)
      : config_(config),
        runtime_({config.server.io_threads, "io"}),
        direct_(net::MakeZmqTransport(config.server.zmq)),
        transport_(ingest::MakePollTransport(*direct_, runtime_, config.server.poll, &registry_)),
        indexes_(config.server.index, config.server.index_shards),
        ingest_(*transport_, clock_, registry_, config.server.ingest),
        streams_(catalog_, indexes_, ingest_, clock_, config.recovery.quarantine),
        recovery_({streams_, indexes_, catalog_, registry_, clock_, FailedToFollow},
                  config.recovery),
        router_(catalog_, indexes_, clock_, registry_, config.router),
        client_(runtime_, config.client),
        gateway_({router_, catalog_, indexes_, client_, clock_, registry_, recovery_.warm()},
                 config.gateway, config.tokens, RandomSeed()),
        server_(runtime_, registry_, config.server.http) {}
  ~Node() { Stop(); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Result<void> Start() {
    for (const WorkerConfig& worker : config_.workers) {
      KVR_TRY_VOID(service::Enroll(worker.spec, worker.share_stream, catalog_, indexes_, streams_));
    }
    service::AddBuildInfo(registry_, kVersion);
    gateway_.AddRoutes(server_);
    runtime_.Spawn([this] { return SweepUntilCancelled(router_); });
    KVR_TRY_VOID(server_.Start());
    gateway_.WatchFleet(runtime_);
    recovery_.Start();
    return {};
  }

  [[nodiscard]] std::string address_port() const { return server_.address_port(); }

  // Idempotent.
  void Stop() {
    recovery_.StopReading();  // which may be of this server
    server_.Stop(config_.server.drain);
    ingest_.Stop();
    recovery_.StopWriting();
    runtime_.Stop();
  }

 private:
  const GatewayConfig& config_;
  SystemClock clock_;
  metrics::Registry registry_;
  net::IoRuntime runtime_;
  std::unique_ptr<net::EventTransport> direct_;
  std::unique_ptr<net::EventTransport> transport_;  // ... and engines that are asked
  fleet::Catalog catalog_;
  index::IndexSet indexes_;
  ingest::Ingest ingest_;
  service::StreamStart streams_;
  Recovery recovery_;
  routing::Router router_;
  net::HttpClient client_;
  service::Gateway gateway_;
  net::HttpServer server_;
};

// A connection a client and one to an engine for each request, the event streams, and the process's
// own files.
std::uint64_t DescriptorsNeeded(const GatewayConfig& config) {
  constexpr std::uint64_t kPerRank = 6;  // two sockets, each with what its transport opens
  std::uint64_t ranks = 0;
  for (const WorkerConfig& worker : config.workers)
    ranks += worker.spec.dp_ranks.size();
  return config.server.http.connections_max + config.gateway.in_flight_max + kPerRank * ranks +
         kOwnDescriptors;
}

// The exit code when the command ends here; nothing when `config` is complete and `effective` says
// what is in it.
std::optional<int> ReadConfig(const std::vector<std::string>& words, GatewayConfig& config,
                              std::string& effective) {
  config::OptionTable table;
  config.Bind(table);
  CLI::App app("Routes OpenAI requests to the engine that holds their prefix in its KV cache.",
               std::string(kName));
  std::string file;
  std::vector<std::string> workers;
  app.add_option("--config", file, "YAML file: the sections below and a list `workers`");
  app.add_option("--worker", workers,
                 "id=1,url=http://HOST:8000,model=NAME,block-size=16,events=tcp://HOST:5557,"
                 "replay=tcp://HOST:5657[,dp-size=2][,routing-group=G][,topic=T]; repeatable")
      ->allow_extra_args(false);
  table.AddFlags(app);
  if (const auto code = ParseWords(app, words)) return code;

  auto loaded = table.Load(file, VariablesFor(table));
  if (!loaded) return UsageError(kName, loaded.error().message);
  auto all = ReadAllWorkers(table.Subtree("workers"), workers);
  if (!all) return UsageError(kName, all.error().message);
  config.workers = *std::move(all);
  if (const auto finished = config.Finish(); !finished) {
    return UsageError(kName, finished.error().message);
  }
  if (config.workers.empty()) {
    return UsageError(kName, "no workers; list them in --config or give --worker");
  }
  SetLogLevel(config.server.log_level);
  effective = table.EffectiveJson({{"workers", WorkersJson(config.workers)}});
  return std::nullopt;
}

int Run(const std::vector<std::string>& words) {
  GatewayConfig config;
  std::string effective;
  if (const auto code = ReadConfig(words, config, effective)) return *code;
  StopSignals signals;
  if (const auto warning = RaiseDescriptorLimit(DescriptorsNeeded(config))) {
    KVR_WARN("{}", *warning);
  }
  Node node(config);
  if (const auto started = node.Start(); !started) {
    const Error& error = started.error();
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(kName.size()), kName.data(),
                 error.message.c_str());
    return ExitCode(error.code);
  }
  KVR_INFO("configuration {}", effective);
  WarnOfWorkersWithoutEvents(config.workers);
  AnnounceListener("gateway", node.address_port());
  const int signal = signals.Wait();
  KVR_INFO("signal {}: draining", signal);
  node.Stop();
  return 0;
}

}  // namespace

const Command kGatewayCommand = {"gateway", "OpenAI-compatible proxy that routes by cache and load",
                                 Run, true};

}  // namespace kvr::cmd
