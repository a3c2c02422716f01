#include "cmd/mock_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/json_writer.h"
#include "cmd/parse_words.h"
#include "cmd/replay_capture.h"
#include "cmd/server_main.h"
#include "net/io_runtime.h"
#include "sim/event_feed.h"
#include "sim/mock_server.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute mock";

constexpr std::string_view kFaultsHelp =
    "POST /mock/fault takes one JSON object; every field is optional:\n"
    "  rank              event faults concern this rank only; else all\n"
    "  drop_messages     the next so many event messages never reach subscribers\n"
    "  keep_for_replay   ... but the replay socket has them (default true)\n"
    "  repeat_messages   the next so many event messages go out twice\n"
    "  swap_messages     the next so many go out behind the one after them\n"
    "  foreign_messages  at once, so many event messages of a rank that there is not\n"
    "  garbage_messages  at once, so many things on the event socket that are no messages\n"
    "  event_delay_ms    event messages from now on go out so much later\n"
    "  hold_events       true or false: event messages wait in their queue, or go out again\n"
    "  replay_silent     true or false: the replay socket stops, or resumes, answering\n"
    "  cut_replays       the next so many answers of the replay socket break off\n"
    "  cut_after         ... after so many messages (default 1)\n"
    "  error_requests    the next so many completion requests are answered\n"
    "  error_status      ... with this status (default 503)\n"
    "  die_requests      the next so many completion requests break off\n"
    "  die_after_tokens  ... once they have sent so many tokens (default 1)\n"
    "  restart           true: as a new process, with an empty cache and messages from 0\n"
    "  keep_numbers      ... but for the numbers of its messages (default false)\n";

struct MockArgs {
  sim::MockServer::Options server;  // of the first engine
  std::uint32_t engines = 1;
  std::uint32_t threads = 1;
  std::uint32_t drain_ms = 10'000;
  bool json_ready = false;
};

// Ports of one engine follow those of the one before, so that ranks do not collide.
sim::MockServer::Options OptionsOf(const MockArgs& args, std::uint32_t index) {
  sim::MockServer::Options options = args.server;
  const auto shift = [&](std::uint16_t& port, std::uint32_t by) {
    if (port != 0) port = static_cast<std::uint16_t>(port + index * by);
  };
  options.name = fmt::format("mock-engine-{}", index);
  options.engine.seed += index;
  shift(options.port, 1);
  shift(options.engine.events_port, options.engine.ranks);
  shift(options.engine.replay_port, options.engine.ranks);
  return options;
}

Result<void> CheckPorts(const MockArgs& args) {
  const auto& engine = args.server.engine;
  const std::uint64_t ranks = std::uint64_t{args.engines} * engine.ranks;
  if (args.server.port + std::uint64_t{args.engines} - 1 > 65'535 ||
      std::max(engine.events_port, engine.replay_port) + ranks - 1 > 65'535) {
    return Fail(ErrorCode::kInvalidArgument,
                "the ports of the last engine exceed 65535; choose lower ones, or 0 for free ones");
  }
  return {};
}

// Where a rank's events are to be had.
std::string EventsOf(const sim::MockServer& server, std::size_t rank) {
  if (server.engine().pulled()) return "trtllm+http://" + server.address_port();
  return server.engine().event_endpoints()[rank];
}

void AnnounceEngine(const sim::MockServer& server) {
  const std::string& name = server.options().name;
  AnnounceListener(name + "-http", server.address_port());
  const sim::MockEngine& engine = server.engine();
  for (std::size_t rank = 0; rank < engine.event_endpoints().size(); ++rank) {
    const std::string suffix = rank == 0 ? "" : fmt::format("-{}", rank);
    AnnounceEndpoint(fmt::format("{}-events{}", name, suffix), EventsOf(server, rank));
    if (engine.replay_endpoints()[rank].empty()) continue;
    AnnounceEndpoint(fmt::format("{}-replay{}", name, suffix), engine.replay_endpoints()[rank]);
  }
}

void AppendEngine(JsonWriter& json, const sim::MockServer& server) {
  const sim::MockEngine& engine = server.engine();
  json.BeginObject();
  json.Field("name", server.options().name);
  json.Field("model", server.options().model);
  json.Field("url", "http://" + server.address_port());
  json.Field("dialect", engine.options().dialect);
  json.Field("block_size", engine.options().core.pool.block_size);
  json.Key("ranks");
  json.BeginArray();
  for (std::size_t rank = 0; rank < engine.event_endpoints().size(); ++rank) {
    json.BeginObject();
    json.Field("dp_rank", rank);
    json.Field("events", EventsOf(server, rank));
    json.Key("replay");
    if (engine.replay_endpoints()[rank].empty()) {
      json.Null();
    } else {
      json.Value(engine.replay_endpoints()[rank]);
    }
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void AnnounceJson(const std::vector<std::unique_ptr<sim::MockServer>>& servers) {
  std::string line;
  JsonWriter json(line);
  json.BeginObject();
  json.Key("engines");
  json.BeginArray();
  for (const auto& server : servers)
    AppendEngine(json, *server);
  json.EndArray();
  json.EndObject();
  std::puts(line.c_str());
  std::fflush(stdout);
}

int Serve(const MockArgs& args) {
  StopSignals signals;
  // A thread runs engines that share nothing with those of another one.
  std::vector<std::unique_ptr<net::IoRuntime>> runtimes;
  for (std::uint32_t i = 0; i < std::min(args.threads, args.engines); ++i) {
    const net::IoRuntime::Options options{.threads = 1, .thread_name = fmt::format("mock{}-", i)};
    runtimes.push_back(std::make_unique<net::IoRuntime>(options));
  }
  std::vector<std::unique_ptr<sim::MockServer>> servers;
  const auto stop = [&](Millis grace) {
    for (const auto& server : servers)
      server->Stop(grace);
  };
  for (std::uint32_t i = 0; i < args.engines; ++i) {
    auto server = sim::MockServer::Create(*runtimes[i % runtimes.size()], OptionsOf(args, i));
    if (!server) {
      std::fprintf(stderr, "%s: %s\n", std::string(kName).c_str(), server.error().message.c_str());
      stop(Millis{0});
      return ExitCode(server.error().code);
    }
    servers.push_back(*std::move(server));
  }
  if (args.json_ready) {
    AnnounceJson(servers);
  } else {
    for (const auto& server : servers)
      AnnounceEngine(*server);
  }
  signals.Wait();
  stop(Millis(args.drain_ms));
  return 0;
}

// What CLI11 fills in and is no number or text of MockArgs itself.
struct Words {
  std::string decode = "linear";
  std::string preemption = "last";
  std::string replay_layout;
  std::string capture;
  bool no_prefix_caching = false;
  bool no_chunked_prefill = false;
  bool no_replay = false;
  bool independent_ranks = false;
  double tick_ms = 1;
};

void AddServerOptions(CLI::App& app, MockArgs& args) {
  auto& server = args.server;
  app.add_option("--engines", args.engines, "Engines in this process")
      ->check(CLI::Range(1, 1'024))
      ->capture_default_str();
  app.add_option("--threads", args.threads, "I/O threads that the engines are spread over")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--address", server.engine.address, "Address to bind")->capture_default_str();
  app.add_option("--port", server.port,
                 "HTTP port of the first engine, then ascending; 0: free ones")
      ->capture_default_str();
  app.add_option("--model", server.model, "Model name")->capture_default_str();
  app.add_option("--default-max-tokens", server.max_tokens_default,
                 "Output tokens of requests that do not say")
      ->capture_default_str();
  app.add_option("--drain-ms", args.drain_ms, "How long requests may finish after a signal")
      ->capture_default_str();
  app.add_flag("--json-ready", args.json_ready,
               "Once ready print one JSON line with all endpoints in place of `listening` lines");
}

void AddEngineOptions(CLI::App& app, MockArgs& args, Words& words) {
  auto& engine = args.server.engine;
  auto& core = engine.core;
  app.add_option("--block-size", core.pool.block_size, "Tokens per KV block")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--num-blocks", core.pool.blocks_max, "KV blocks of a rank")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--host-blocks", core.pool.host_blocks_max, "Blocks of the CPU tier; 0: none")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--max-num-seqs", core.requests_max, "Requests running at once")
      ->capture_default_str();
  app.add_option("--max-waiting", core.waiting_max, "Requests waiting at most; then 429")
      ->capture_default_str();
  app.add_option("--max-batched-tokens", core.pass_tokens_max, "Tokens scheduled in one pass")
      ->capture_default_str();
  app.add_option("--max-model-len", core.context_tokens_max,
                 "Prompt and output tokens of a request; 0: what the pool holds")
      ->capture_default_str();
  app.add_option("--vocabulary", core.vocabulary, "Token ids are below")->capture_default_str();
  app.add_option("--preemption", words.preemption,
                 "Who makes room: the `last` or the `first` admitted")
      ->check(CLI::IsMember({"last", "first"}))
      ->capture_default_str();
  app.add_flag("--no-prefix-caching", words.no_prefix_caching, "Compute every prompt whole");
  app.add_flag("--no-chunked-prefill", words.no_chunked_prefill, "Compute a prompt in one pass");
  app.add_option("--dp-size", engine.ranks, "Data-parallel ranks")
      ->check(CLI::Range(1, 1'024))
      ->capture_default_str();
  app.add_flag("--independent-ranks", words.independent_ranks,
               "Ranks do not wait for each other at the end of a pass");
  app.add_option("--seed", engine.seed, "Decides the engines' block hashes")->capture_default_str();
}

void AddTimeOptions(CLI::App& app, MockArgs& args, Words& words) {
  auto& time = args.server.engine.core.time;
  app.add_option("--speedup", time.speedup, "Everything takes so much less time")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--decode-speedup", time.decode_speedup, "On top, for decode alone")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--decode-model", words.decode,
                 "`linear` in batch and context, or the published `curve` without a batch term")
      ->check(CLI::IsMember({"linear", "curve"}))
      ->capture_default_str();
  app.add_option("--decode-base-ms", time.decode_base_ms, "Linear model: of each decode step")
      ->capture_default_str();
  app.add_option("--decode-ms-per-request", time.decode_ms_per_request,
                 "Linear model: of each request in the batch")
      ->capture_default_str();
  app.add_option("--decode-ms-per-token", time.decode_ms_per_token,
                 "Linear model: of each token of context")
      ->capture_default_str();
  app.add_option("--host-load-ms-per-token", time.host_load_ms_per_token,
                 "Of each token that comes back from the CPU tier")
      ->capture_default_str();
  app.add_option("--tick-ms", words.tick_ms,
                 "Shortest time between two wake-ups; tokens that came up meanwhile leave together")
      ->check(CLI::Range(0.0, 1'000.0))
      ->capture_default_str();
}

void AddEventOptions(CLI::App& app, MockArgs& args, Words& words) {
  auto& engine = args.server.engine;
  app.add_option("--dialect", engine.dialect, "Event dialect: " + sim::FeedDialectNames())
      ->capture_default_str();
  app.add_option("--events-port", engine.events_port,
                 "Event port of the first rank of the first engine, then ascending; 0: free ones")
      ->capture_default_str();
  app.add_option("--replay-port", engine.replay_port, "The same for the replay sockets")
      ->capture_default_str();
  app.add_flag("--no-replay", words.no_replay, "No replay sockets");
  app.add_option("--replay-layout", words.replay_layout,
                 "Frames of a replay answer: `seq` or `topic`; default: as the dialect's release")
      ->check(CLI::IsMember({"seq", "topic"}));
  app.add_option("--replay-messages", engine.replay_messages_max, "Messages kept for replay")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--topic", engine.topic, "Topic of the event messages");
  app.add_option("--replay-capture", words.capture,
                 "Instead of engines, publish this file of `kvroute capture` with its spacing, "
                 "divided by --speedup");
}

void Interpret(const Words& words, MockArgs& args) {
  auto& engine = args.server.engine;
  if (words.decode == "curve") engine.core.time.decode = sim::TimeModel::Decode::kPublishedCurve;
  if (words.preemption == "first") {
    engine.core.preemption = sim::EngineCore::Preemption::kFirstAdmitted;
  }
  engine.core.pool.prefix_caching = !words.no_prefix_caching;
  engine.core.chunked_prefill = !words.no_chunked_prefill;
  engine.replay = !words.no_replay;
  engine.ranks_in_step = !words.independent_ranks;
  engine.tick = Nanos{static_cast<std::int64_t>(words.tick_ms * 1e6)};
  if (words.replay_layout == "seq") engine.replay_layout = net::ReplayLayout::kSeqPayload;
  if (words.replay_layout == "topic") engine.replay_layout = net::ReplayLayout::kTopicSeqPayload;
}

ReplayCaptureArgs CaptureArgs(const MockArgs& args, const Words& words) {
  const auto& engine = args.server.engine;
  ReplayCaptureArgs capture;
  capture.file = words.capture;
  capture.speedup = engine.core.time.speedup;
  capture.address = engine.address;
  capture.events_port = engine.events_port;
  capture.replay_port = engine.replay_port;
  capture.replay = engine.replay;
  capture.layout = engine.replay_layout;
  capture.replay_messages_max = engine.replay_messages_max;
  return capture;
}

int Run(const std::vector<std::string>& argv) {
  MockArgs args;
  Words words;
  CLI::App app(
      "Serves engines without a GPU: OpenAI API, KV cache events over ZeroMQ, replay, and faults "
      "on "
      "demand (POST /mock/fault).",
      std::string(kName));
  app.footer(std::string(kFaultsHelp));
  AddServerOptions(app, args);
  AddEngineOptions(app, args, words);
  AddTimeOptions(app, args, words);
  AddEventOptions(app, args, words);
  if (const auto code = ParseWords(app, argv)) return *code;
  Interpret(words, args);
  if (!words.capture.empty()) return ReplayCapture(CaptureArgs(args, words));
  if (args.server.model.empty()) {
    return UsageError(kName, "--model is empty; name the model as clients will, or leave it out");
  }
  if (const auto ports = CheckPorts(args); !ports) return UsageError(kName, ports.error().message);
  return Serve(args);
}

}  // namespace

const Command kMockCommand = {"mock", "engines without a GPU, for tests and demos", Run, true};

}  // namespace kvr::cmd
