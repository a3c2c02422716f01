#include "cmd/indexer_command.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/descriptor_limit.h"
#include "cmd/environment.h"
#include "cmd/indexer_config.h"
#include "cmd/parse_words.h"
#include "cmd/recovery.h"
#include "cmd/server_main.h"
#include "config/option_table.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "service/common_pages.h"
#include "service/indexer/access_log.h"
#include "service/indexer/indexer_service.h"
#include "service/indexer/peer_list.h"
#include "service/indexer/source_registry.h"
#include "service/rank_watch.h"
#include "service/recovery/stream_start.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute indexer";

// `streams` wait for a warm start, or until all ranks are known that share one.
Result<void> RegisterInitial(const IndexerConfig& config, service::SourceRegistry& sources,
                             service::StreamStart& streams, bool warm) {
  KVR_TRY(const auto requests, config.InitialSources());
  if (!warm) streams.Hold();
  for (const auto& request : requests)
    KVR_TRY_VOID(sources.Register(request));
  Result<void> begun;
  if (!warm) {
    streams.Release(
        [&begun](Rank /*rank*/, const Error& why) { begun = tl::make_unexpected(why); });
  }
  return begun;
}

int Serve(const IndexerConfig& config, const std::string& effective, StopSignals& signals) {
  const SystemClock clock;
  metrics::Registry registry;
  net::IoRuntime runtime({config.server.io_threads, "http"});
  const auto direct = net::MakeZmqTransport(config.server.zmq);
  const auto transport = ingest::MakePollTransport(*direct, runtime, config.server.poll, &registry);
  fleet::Catalog catalog;
  index::IndexSet indexes(config.server.index, config.server.index_shards);
  ingest::Ingest ingest(*transport, clock, registry, config.server.ingest);
  service::StreamStart streams(catalog, indexes, ingest, clock, config.recovery.quarantine);
  service::SourceRegistry sources(catalog, indexes, streams, clock, config.registry);
  service::PeerList peers;
  for (const std::string& url : config.recovery.start.peers.urls) {
    if (const auto added = peers.Add(url); !added) return UsageError(kName, added.error().message);
  }
  Recovery recovery({streams, indexes, catalog, registry, clock,
                     [&sources](Rank rank, const Error& why) { sources.Withdraw(rank, why); }},
                    config.recovery);
  std::unique_ptr<service::AccessLog> access_log;
  if (!config.access_log.path.empty()) {
    auto opened = service::AccessLog::Open(config.access_log, clock, registry);
    if (!opened) return UsageError(kName, opened.error().message);
    access_log = *std::move(opened);
  }
  service::IndexerService service({sources, peers, recovery.warm(), access_log.get()}, registry,
                                  clock, config.service);
  service::AddBuildInfo(registry, kVersion);
  service::RankWatch watch({}, catalog, clock);
  net::HttpServer server(runtime, registry, config.server.http);
  service.Mount(server);

  if (const auto registered = RegisterInitial(config, sources, streams, recovery.warm() != nullptr);
      !registered) {
    return UsageError(kName, registered.error().message);
  }
  if (const auto started = server.Start(); !started) {
    fmt::print(stderr, "{}: {}\n", kName, started.error().message);
    return 1;
  }
  KVR_INFO("configuration {}", effective);
  AnnounceListener("indexer", server.address_port());
  runtime.Spawn([&watch] { return watch.Run(); });
  recovery.Start();
  signals.Wait([&access_log] {
    if (const auto reopened = access_log->Reopen(); !reopened) {
      KVR_ERROR("{}", reopened.error().message);
    }
  });
  recovery.StopReading();  // which may be of this server
  server.Stop(config.server.drain);
  ingest.Stop();
  recovery.StopWriting();
  runtime.Stop();
  return 0;
}

int Run(const std::vector<std::string>& words) {
  IndexerConfig config;
  config::OptionTable table;
  config.Bind(table);
  CLI::App app("Follows engines' KV events and answers who holds how much of a prompt.",
               std::string(kName));
  std::string file;
  app.add_option("--config", file, "YAML file with any of these options");
  table.AddFlags(app);
  if (const auto code = ParseWords(app, words)) return *code;
  if (const auto loaded = table.Load(file, VariablesFor(table)); !loaded) {
    return UsageError(kName, loaded.error().message);
  }
  if (const auto valid = config.Finish(); !valid) {
    return UsageError(kName, valid.error().message);
  }
  SetLogLevel(config.server.log_level);
  StopSignals signals(config.access_log.path.empty() ? StopSignals::Hangup::kEnds
                                                     : StopSignals::Hangup::kReported);
  // Engines register later, and may be any number; half as many again are room for them.
  const std::uint64_t connections = config.server.http.connections_max;
  if (const auto warning = RaiseDescriptorLimit(connections + connections / 2 + kOwnDescriptors)) {
    KVR_WARN("{}", *warning);
  }
  return Serve(config, table.EffectiveJson(), signals);
}

}  // namespace

const Command kIndexerCommand = {"indexer", "index behind an HTTP API: register, query, dump", Run,
                                 true};

}  // namespace kvr::cmd
