#include "cmd/agent_command.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/agent_config.h"
#include "cmd/descriptor_limit.h"
#include "cmd/environment.h"
#include "cmd/parse_words.h"
#include "cmd/server_main.h"
#include "config/option_table.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "index/side_groups.h"
#include "ingest/ingest.h"
#include "ingest/poll_transport.h"
#include "metrics/registry.h"
#include "net/event_socket.h"
#include "net/http_server.h"
#include "net/io_runtime.h"
#include "service/agent/agent_service.h"
#include "service/agent/published_rank.h"
#include "service/agent/publishing_index.h"
#include "service/common_pages.h"
#include "service/gateway/enroll.h"
#include "service/rank_watch.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute agent";

using Ranks = std::vector<std::unique_ptr<service::PublishedRank>>;

// One publisher a rank, each with an id of its own.
Result<Ranks> OpenRanks(const AgentConfig& config, const Clock& clock) {
  const fleet::WorkerSpec& spec = config.workers.front().spec;
  Ranks ranks;
  for (const std::uint32_t dp_rank : spec.dp_ranks) {
    const std::uint64_t publisher_id = std::max<std::uint64_t>(1, RandomSeed());
    KVR_TRY(const auto options, config.RankOptions({spec.id, dp_rank}, publisher_id));
    KVR_TRY(auto rank, service::PublishedRank::Open(options, clock));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

std::vector<service::PublishedRank*> Borrowed(const Ranks& ranks) {
  std::vector<service::PublishedRank*> borrowed;
  for (const auto& rank : ranks)
    borrowed.push_back(rank.get());
  return borrowed;
}

// What the worker's events go to, as the given source of the ranks.
std::shared_ptr<index::PartitionIndex> IndexOf(const fleet::WorkerSpec& spec, std::size_t source,
                                               const Ranks& ranks) {
  auto partition = std::make_shared<index::PartitionIndex>();
  partition->partition = spec.partition;
  partition->block_size = spec.block_size;
  partition->hybrid = std::make_unique<index::HybridRanks>(index::SideGroups::Options{});
  partition->index = std::make_unique<service::PublishingIndex>(Borrowed(ranks), spec.id, source,
                                                                *partition->hybrid);
  return partition;
}

Result<void> EnrollAll(const AgentConfig& config, const Ranks& ranks, fleet::Catalog& catalog,
                       ingest::Ingest& ingest) {
  for (std::size_t source = 0; source < config.workers.size(); ++source) {
    const WorkerConfig& worker = config.workers[source];
    const auto index = IndexOf(worker.spec, source, ranks);
    KVR_TRY_VOID(service::Enroll(worker.spec, worker.share_stream, catalog, index, ingest));
  }
  return {};
}

// "events" and "replay", of rank 2 "events-2" and "replay-2".
void AnnounceRank(const service::PublishedRank& rank) {
  const std::uint32_t number = rank.rank().dp_rank;
  const std::string suffix = number == 0 ? std::string() : fmt::format("-{}", number);
  AnnounceEndpoint("events" + suffix, rank.endpoint());
  if (!rank.replay_endpoint().empty()) {
    AnnounceEndpoint("replay" + suffix, rank.replay_endpoint());
  }
}

int Failed(const Error& error) {
  fmt::print(stderr, "{}: {}\n", kName, error.message);
  return ExitCode(error.code);
}

int Serve(const AgentConfig& config, const std::string& effective, StopSignals& signals) {
  const SystemClock clock;
  metrics::Registry registry;
  net::IoRuntime runtime({config.server.io_threads, "http"});
  const auto direct = net::MakeZmqTransport(config.server.zmq);
  const auto transport = ingest::MakePollTransport(*direct, runtime, config.server.poll, &registry);
  auto opened = OpenRanks(config, clock);
  if (!opened) return Failed(opened.error());
  const Ranks ranks = *std::move(opened);
  fleet::Catalog catalog;
  ingest::Ingest ingest(*transport, clock, registry, config.server.ingest);
  service::AgentService service(Borrowed(ranks), catalog, registry);
  service::AddBuildInfo(registry, kVersion);
  service::RankWatch watch({}, catalog, clock);
  net::HttpServer server(runtime, registry, config.server.http);
  service.Mount(server);

  if (const auto enrolled = EnrollAll(config, ranks, catalog, ingest); !enrolled) {
    return Failed(enrolled.error());
  }
  if (const auto started = server.Start(); !started) return Failed(started.error());
  KVR_INFO("configuration {}", effective);
  AnnounceListener("agent", server.address_port());
  for (const auto& rank : ranks)
    AnnounceRank(*rank);
  runtime.Spawn([&watch] { return watch.Run(); });
  const Millis coalesce = config.rank.publisher.coalescer.timeout;
  if (coalesce > Millis{0}) runtime.Spawn([&service, coalesce] { return service.Tick(coalesce); });
  signals.Wait();
  ingest.Stop();
  for (const auto& rank : ranks)
    rank->Flush();
  server.Stop(config.server.drain);
  runtime.Stop();
  return 0;
}

// The exit code when the command ends here.
std::optional<int> ReadConfig(const std::vector<std::string>& words, AgentConfig& config,
                              std::string& effective) {
  config::OptionTable table;
  config.Bind(table);
  CLI::App app("Follows one engine's KV events and publishes them for many routers.",
               std::string(kName));
  std::string file;
  std::vector<std::string> workers;
  app.add_option("--config", file, "YAML file: the sections below and a list `workers`");
  app.add_option(
         "--worker", workers,
         "id=1,url=http://HOST:8000,model=NAME,block-size=16,events=tcp://HOST:5557,"
         "replay=tcp://HOST:5657[,dp-size=2][,topic=T]; further ones, with ids of their own, "
         "tell of the first one's cache")
      ->allow_extra_args(false);
  table.AddFlags(app);
  if (const auto code = ParseWords(app, words)) return code;
  if (const auto loaded = table.Load(file, VariablesFor(table)); !loaded) {
    return UsageError(kName, loaded.error().message);
  }
  auto all = ReadAllWorkers(table.Subtree("workers"), workers);
  if (!all) return UsageError(kName, all.error().message);
  config.workers = *std::move(all);
  if (const auto finished = config.Finish(); !finished) {
    return UsageError(kName, finished.error().message);
  }
  effective = table.EffectiveJson({{"workers", WorkersJson(config.workers)}});
  return std::nullopt;
}

int Run(const std::vector<std::string>& words) {
  AgentConfig config;
  std::string effective;
  if (const auto code = ReadConfig(words, config, effective)) return *code;
  SetLogLevel(config.server.log_level);
  StopSignals signals;
  constexpr std::uint64_t kPerRank = 16;  // two sockets of each side, with what they open
  const std::uint64_t ranks = config.workers.size() * config.workers.front().spec.dp_ranks.size();
  if (const auto warning = RaiseDescriptorLimit(config.server.http.connections_max +
                                                kPerRank * ranks + kOwnDescriptors)) {
    KVR_WARN("{}", *warning);
  }
  return Serve(config, effective, signals);
}

}  // namespace

const Command kAgentCommand = {
    "agent", "beside an engine: merges its KV events and publishes them for routers", Run, true};

}  // namespace kvr::cmd
