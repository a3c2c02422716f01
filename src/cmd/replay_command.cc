#include "cmd/replay_command.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/result.h"
#include "base/text.h"
#include "cmd/parse_words.h"
#include "cmd/replay_fleet.h"
#include "net/http.h"
#include "sched/policy.h"
#include "sim/event_feed.h"
#include "sim/replay_client.h"
#include "sim/replay_report.h"
#include "sim/replay_stats.h"
#include "sim/trace.h"

namespace kvr::cmd {
namespace {

constexpr std::string_view kName = "kvroute replay";

struct ReplayArgs {
  std::string trace;
  sim::TraceOptions trace_options;
  sim::TraceTransform transform;
  double speedup = 1;  // of arrivals, engines and reported times
  double load = 1;     // of arrivals alone
  std::size_t limit = 0;
  sim::ReplayOptions replay;

  std::vector<std::string> arms;  // NAME=URL of routers that run already
  double time_scale = 1;

  std::string policies = "kv,round_robin,random,least_loaded";
  FleetOptions fleet;

  std::string json;
  std::string report;
  bool no_progress = false;
};

void AddOptions(CLI::App& app, ReplayArgs& args) {
  app.add_option("TRACE", args.trace, "Mooncake JSONL file")->required();
  app.add_option("--limit", args.limit, "Only the first so many requests; 0: all");
  app.add_option("--trace-block-size", args.trace_options.block_tokens,
                 "Tokens that one id of the trace stands for")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  app.add_option("--speedup", args.speedup,
                 "Arrivals come so much faster; engines started here run so much faster too, and "
                 "all times are reported in their time")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option(
         "--load", args.load,
         "Arrivals come so much denser than recorded, on top of the speed-up: the fleet has "
         "so much more to do")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--input-scale", args.transform.input_scale, "Prompt lengths times so much")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--output-scale", args.transform.output_scale, "Output lengths times so much")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--seed", args.replay.seed, "Of the tokens made up for the trace")
      ->capture_default_str();
  app.add_option("--model", args.replay.model, "Model named in the requests")
      ->capture_default_str();
  app.add_option("--vocabulary", args.replay.vocabulary, "Token ids are below")
      ->check(CLI::Range(2u, 1u << 31))
      ->capture_default_str();
  app.add_option("--json", args.json, "Write the results as JSON to this file; - for stdout");
  app.add_option("--report", args.report, "Write report.html, SVG charts and JSON to this folder");
  app.add_flag("--no-progress", args.no_progress, "No progress bar on stderr");

  app.add_option("--arm", args.arms,
                 "A router that runs already, as NAME=URL; repeat to compare several. Without it a "
                 "fleet of mock engines and a gateway are started for each policy")
      ->allow_extra_args(false);
  app.add_option("--time-scale", args.time_scale,
                 "With --arm: measured times are multiplied by this")
      ->check(AboveZero())
      ->capture_default_str();

  app.add_option("--policies", args.policies, "Policies to compare, in this order")
      ->capture_default_str();
  app.add_option("--engines", args.fleet.engines, "Engines of each fleet")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--dp-size", args.fleet.ranks, "Data-parallel ranks an engine")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--block-size", args.fleet.block_size, "Tokens per KV block")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--num-blocks", args.fleet.device_blocks, "KV blocks a rank")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--host-blocks", args.fleet.host_blocks, "Blocks of the CPU tier a rank")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--dialect", args.fleet.dialect, "Event dialect of the engines")
      ->capture_default_str();
}

// "kv  [#####.....]  512/1000 requests, 0 errors", redrawn in place on a terminal and printed once
// at the end elsewhere.
class ProgressBar {
 public:
  ProgressBar(std::string name, std::size_t total, bool enabled)
      : name_(std::move(name)),
        total_(total),
        enabled_(enabled),
        tty_(isatty(STDERR_FILENO) == 1) {}

  void Update(std::size_t done, std::size_t errors) {
    if (!enabled_) return;
    const std::size_t step = done * kWidth / std::max<std::size_t>(total_, 1);
    const bool last = done == total_;
    if (!last && (!tty_ || step == drawn_)) return;
    drawn_ = step;
    fmt::print(stderr, "{}{:<14} [{}{}] {}/{} requests, {} errors{}", tty_ ? "\r" : "", name_,
               std::string(step, '#'), std::string(kWidth - step, '.'), done, total_, errors,
               last ? "\n" : "");
    std::fflush(stderr);
  }

 private:
  static constexpr std::size_t kWidth = 40;
  const std::string name_;
  const std::size_t total_;
  const bool enabled_;
  const bool tty_;
  std::size_t drawn_ = 0;
};

std::vector<sim::RequestRecord> Send(const ReplayArgs& args, const std::string& name,
                                     const net::Url& router, const sim::Trace& trace) {
  ProgressBar bar(name, trace.requests.size(), !args.no_progress);
  return sim::RunReplay(router, trace, args.replay,
                        [&bar](std::size_t done, std::size_t errors) { bar.Update(done, errors); });
}

struct RunningArm {
  std::string name;
  net::Url url;
};

Result<RunningArm> ReadArm(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--arm `{}` is not NAME=URL, as in `kv=http://127.0.0.1:8080`", word));
  }
  KVR_TRY(net::Url url, net::ParseOpenAiUrl(word.substr(equals + 1)));
  return RunningArm{word.substr(0, equals), std::move(url)};
}

Result<sim::ArmResult> RunRunningArm(const ReplayArgs& args, const std::string& word,
                                     const sim::Trace& trace) {
  KVR_TRY(const RunningArm arm, ReadArm(word));
  const auto records = Send(args, arm.name, arm.url, trace);
  return sim::SummarizeArm(arm.name, records, args.time_scale);
}

Result<sim::ArmResult> RunFleetArm(const ReplayArgs& args, const std::string& policy,
                                   const sim::Trace& trace) {
  FleetOptions options = args.fleet;
  options.policy = policy;
  options.model = args.replay.model;
  options.speedup = args.speedup;
  options.seed = args.replay.seed;
  KVR_TRY(Fleet fleet, Fleet::Start(options));
  const auto records = Send(args, policy, fleet.gateway(), trace);
  auto result = sim::SummarizeArm(policy, records, options.speedup, fleet.ranks());
  KVR_TRY_VOID(fleet.Stop());
  return result;
}

sim::ReplayReport DescribeRun(const ReplayArgs& args, const sim::Trace& trace) {
  sim::ReplayReport report;
  report.title = "kvroute replay";
  report.infinite_cache_ratio = sim::InfiniteCacheBound(trace, args.fleet.block_size).ratio();
  const auto add = [&](std::string name, std::string value) {
    report.setup.emplace_back(std::move(name), std::move(value));
  };
  add("trace", fmt::format("{}, {} requests", args.trace.substr(args.trace.rfind('/') + 1),
                           trace.requests.size()));
  add("speed-up", fmt::format("{}", args.speedup));
  if (args.load != 1) add("load", fmt::format("arrivals {} times as dense as recorded", args.load));
  if (args.transform.input_scale != 1 || args.transform.output_scale != 1) {
    add("lengths", fmt::format("prompts x {}, outputs x {}", args.transform.input_scale,
                               args.transform.output_scale));
  }
  add("seed", fmt::format("{}", args.replay.seed));
  if (args.arms.empty()) {
    const FleetOptions& fleet = args.fleet;
    add("engines",
        fmt::format("{} mock engines of {} rank(s), {} blocks of {} tokens each, {} on the CPU, "
                    "events as {}; started cold for each policy",
                    fleet.engines, fleet.ranks, fleet.device_blocks, fleet.block_size,
                    fleet.host_blocks, fleet.dialect));
    add("times", "in the engines' time: wall time multiplied by the speed-up");
  }
  return report;
}

Result<sim::ReplayReport> RunArms(const ReplayArgs& args, const sim::Trace& trace) {
  sim::ReplayReport report = DescribeRun(args, trace);
  for (const std::string& arm : args.arms) {
    KVR_TRY(auto result, RunRunningArm(args, arm, trace));
    report.arms.push_back(std::move(result));
  }
  if (!args.arms.empty()) return report;
  for (const std::string_view policy : Split(args.policies, ',')) {
    KVR_TRY(auto result, RunFleetArm(args, std::string(policy), trace));
    report.arms.push_back(std::move(result));
  }
  return report;
}

Result<void> Show(const ReplayArgs& args, const sim::ReplayReport& report) {
  if (args.json == "-") {
    fmt::print("{}\n", sim::ToJson(report));
  } else {
    fmt::print("{}", sim::ToTable(report));
  }
  for (const sim::ArmResult& arm : report.arms) {
    for (const std::string& sample : arm.error_samples) {
      fmt::print(stderr, "{}: {}: {}\n", kName, arm.name, sample);
    }
  }
  if (!args.json.empty() && args.json != "-") {
    std::ofstream file(args.json, std::ios::trunc);
    file << sim::ToJson(report) << '\n';
    file.close();
    if (!file) return Fail(ErrorCode::kIo, fmt::format("cannot write {}", args.json));
  }
  if (!args.report.empty()) {
    KVR_TRY_VOID(sim::WriteReport(report, args.report));
    fmt::print(stderr, "report: {}/report.html\n", args.report);
  }
  for (const sim::ArmResult& arm : report.arms) {
    if (arm.errors == arm.requests) {
      return Fail(ErrorCode::kUpstream, fmt::format("every request of `{}` failed", arm.name));
    }
  }
  return {};
}

// What would only come out after the engines have worked for minutes.
Result<void> CheckFolder(std::string_view option, const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed && access(folder.c_str(), W_OK | X_OK) == 0) return {};
  if (!failed) failed = {errno, std::generic_category()};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} `{}`: cannot write there: {}; name another folder", option,
                          folder.string(), failed.message()));
}

Result<void> CheckFile(std::string_view option, const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code ignored;
  std::string wrong;
  if (std::filesystem::is_directory(file, ignored)) {
    wrong = "is a folder";
  } else if (!std::filesystem::is_directory(folder, ignored)) {
    wrong = fmt::format("there is no folder `{}`", folder.string());
  } else {
    const bool exists = std::filesystem::exists(file, ignored);
    if (access(exists ? file.c_str() : folder.c_str(), W_OK) != 0)
      wrong = std::generic_category().message(errno);
  }
  if (wrong.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} `{}`: cannot write there: {}; name another file, or - for stdout",
                          option, file.string(), wrong));
}

Result<void> CheckPolicies(const std::string& policies) {
  for (const std::string_view policy : Split(policies, ',')) {
    const auto& known = sched::kPolicyNames;
    if (std::find(known.begin(), known.end(), policy) != known.end()) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--policies: `{}` is no policy; give some of {}, separated by commas",
                            policy, fmt::join(known, ", ")));
  }
  return {};
}

Result<void> Check(const ReplayArgs& args) {
  for (const std::string& arm : args.arms)
    KVR_TRY_VOID(ReadArm(arm));
  KVR_TRY_VOID(CheckPolicies(args.policies));
  if (const auto dialect = sim::FeedDialectByName(args.fleet.dialect); !dialect) {
    return Fail(ErrorCode::kInvalidArgument, "--dialect: " + dialect.error().message);
  }
  if (!args.json.empty() && args.json != "-") KVR_TRY_VOID(CheckFile("--json", args.json));
  if (!args.report.empty()) KVR_TRY_VOID(CheckFolder("--report", args.report));
  return {};
}

Result<void> Replay(const ReplayArgs& args) {
  KVR_TRY(sim::Trace read, sim::ReadTrace(args.trace, args.trace_options));
  sim::TraceTransform transform = args.transform;
  if (args.limit > 0) transform.limit = args.limit;
  transform.speedup = args.speedup * args.load;
  KVR_TRY(const sim::Trace trace, sim::Transform(std::move(read), transform));
  if (trace.requests.empty()) return Fail(ErrorCode::kInvalidArgument, "the trace is empty");
  KVR_TRY(const auto report, RunArms(args, trace));
  return Show(args, report);
}

int Run(const std::vector<std::string>& words) {
  ReplayArgs args;
  CLI::App app("Sends a recorded trace open loop and compares policies.", std::string(kName));
  AddOptions(app, args);
  // A script's words can be overridden by words after them.
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1) option->take_last();
  }
  if (const auto code = ParseWords(app, words)) return *code;
  if (const auto checked = Check(args); !checked) return UsageError(kName, checked.error().message);
  if (const auto replayed = Replay(args); !replayed) {
    fmt::print(stderr, "{}: {}\n", kName, replayed.error().message);
    return ExitCode(replayed.error().code);
  }
  return 0;
}

}  // namespace

const Command kReplayCommand = {"replay", "a recorded trace against a fleet, policies side by side",
                                Run};

}  // namespace kvr::cmd
