// Makes operation files, says what is in one, and measures the index with them.
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "bench/growth.h"
#include "bench/op_file.h"
#include "bench/op_generator.h"
#include "bench/replay_report.h"
#include "sim/trace.h"

namespace kvr::bench {
namespace {

struct Args {
  std::string path;
  std::string trace;
  std::string preset = "small";
  GeneratorOptions generator;
  std::uint32_t trace_block_tokens = 512;
  ShapeOptions shape;
  ReplayOptions replay;
  bool json = false;
  std::string svg;
  std::uint64_t growth_blocks = 1u << 20;
  std::size_t growth_steps = 100;
  std::size_t rounds = 5;
};

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string Describe(const OpTrace& trace) {
  const OpCounts counts = CountOps(trace);
  return fmt::format(
      "seed {}, {} ranks, {} tokens a block\n"
      "{} queries ({} blocks), {} stores ({} blocks), {} removals ({} blocks), {} clears\n",
      trace.seed, trace.ranks, trace.block_tokens, counts.queries, counts.query_blocks,
      counts.stores, counts.stored_blocks, counts.removals, counts.removed_blocks, counts.clears);
}

Result<void> Write(const OpTrace& trace, const std::string& path) {
  KVR_TRY_VOID(WriteOpFile(trace, path));
  Print(Describe(trace));
  return {};
}

Result<void> RunGenerate(const Args& args) {
  sim::TraceOptions options;
  options.block_tokens = args.trace_block_tokens;
  KVR_TRY(const sim::Trace trace, sim::ReadTrace(args.trace, options));
  KVR_TRY(const OpTrace ops, GenerateOps(trace, args.generator));
  return Write(ops, args.path);
}

Result<void> RunShape(const Args& args) {
  KVR_TRY(const OpTrace ops, GenerateShape(args.shape));
  return Write(ops, args.path);
}

Result<void> RunDescribe(const Args& args) {
  KVR_TRY(const OpTrace ops, ReadOpFile(args.path));
  Print(Describe(ops));
  return {};
}

// A feed has all that is needed, so the trace is gone before anything is measured.
Result<IndexFeed> ReadFeed(const std::string& path, bool eligible = false) {
  KVR_TRY(const OpTrace ops, ReadOpFile(path));
  IndexFeed feed(ops, eligible);
  if (feed.queries() == 0 || feed.counts().update_blocks() == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                path + ": nothing to measure without a query and an update");
  }
  return feed;
}

Result<void> RunReplay(const Args& args) {
  KVR_TRY(const IndexFeed feed, ReadFeed(args.path));
  const ReplayResult result = Replay(feed, args.replay);
  Print(args.json ? ReplayJson(result) : ReplayText(result));
  return {};
}

Result<void> RunProvenance(const Args& args) {
  KVR_TRY(const IndexFeed plain, ReadFeed(args.path));
  KVR_TRY(const IndexFeed eligible, ReadFeed(args.path, true));
  const ProvenanceResult result = MeasureProvenance(plain, eligible, args.rounds);
  Print(fmt::format("provenance of every block kept: heap {:+.2f} %, time to apply {:+.2f} %\n",
                    (result.heap_ratio - 1) * 100, (result.apply_ratio - 1) * 100));
  return {};
}

Result<void> RunGrowth(const Args& args) {
  KVR_TRY(const auto sweeps, MeasureGrowth(args.growth_blocks, args.growth_steps));
  Print(args.json ? GrowthJson(sweeps) : GrowthText(sweeps));
  if (args.svg.empty()) return {};
  std::ofstream file(args.svg);
  file << GrowthSvg(sweeps);
  file.close();
  if (!file) return Fail(ErrorCode::kIo, args.svg + ": cannot be written");
  return {};
}

// A preset is the default of the options that are named beside it, so it is read before them.
std::string PresetOf(int argc, char** argv) {
  std::string preset = "small";
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--size") preset = argv[i + 1];
  }
  return preset;
}

int Run(int argc, char** argv) {
  Args args;
  args.preset = PresetOf(argc, argv);
  if (const auto preset = GeneratorPreset(args.preset)) args.generator = *preset;
  args.replay.readers_max = std::max(1u, std::thread::hardware_concurrency());

  CLI::App app("Operation files, and how fast the index takes them.", "index_ops");
  app.require_subcommand(1);
  GeneratorOptions& g = args.generator;
  auto* generate = app.add_subcommand("generate", "Make an operation file from a recorded trace");
  generate->add_option("trace", args.trace, "Mooncake JSONL")->required();
  generate->add_option("file", args.path, "Operation file to write")->required();
  generate->add_option("--size", args.preset, "small, big or huge: defaults of what follows")
      ->check(CLI::IsMember({"small", "big", "huge"}));
  generate->add_option("--requests", g.requests_max, "Of the trace, from its beginning");
  generate->add_option("--trace-block-tokens", args.trace_block_tokens, "Tokens of a hash id");
  generate->add_option("--block-tokens", g.block_tokens, "Tokens of a block");
  generate->add_option("--length-factor", g.length_factor, "Prompts so many times longer");
  generate->add_option("--copies", g.copies, "Of each request; copies share nothing");
  generate->add_option("--ranks", g.ranks, "Engines");
  generate->add_option("--engine-blocks", g.engine_blocks, "Cache of each engine");
  generate->add_option("--seed", g.seed, "Of the partition");
  auto* shape = app.add_subcommand("shape", "Make an operation file of one shape");
  shape->add_option("file", args.path, "Operation file to write")->required();
  shape->add_option("--ranks", args.shape.ranks);
  shape->add_option("--depth", args.shape.depth, "Blocks of a chain");
  shape->add_option("--holders", args.shape.holders, "Ranks that hold each chain");
  shape->add_option("--chains", args.shape.chains);
  shape->add_option("--queries-each", args.shape.queries_each, "Of each chain");
  shape->add_option("--seed", args.shape.seed);
  auto* describe = app.add_subcommand("describe", "Check an operation file and count");
  describe->add_option("file", args.path)->required();
  auto* replay = app.add_subcommand("replay", "Measure the index with an operation file");
  replay->add_option("file", args.path)->required();
  replay->add_flag("--json", args.json);
  replay->add_option("--seconds", args.replay.loop_s, "Of queries back to back");
  replay->add_option("--readers", args.replay.readers_max, "1, 2, 4, ... so many threads");
  replay->add_option("--window", args.replay.window_s,
                     "Seconds of an open loop beside the full one");
  auto* provenance = app.add_subcommand("provenance", "Measure what a block's provenance costs");
  provenance->add_option("file", args.path)->required();
  provenance->add_option("--rounds", args.rounds)->check(CLI::Range(1, 1'000));
  auto* growth = app.add_subcommand("growth", "Measure the index by ranks, depth and holders");
  growth->add_flag("--json", args.json);
  growth->add_option("--svg", args.svg, "Write charts to this file");
  growth->add_option("--blocks", args.growth_blocks, "Held at each point");
  growth->add_option("--steps", args.growth_steps, "At most so many points a sweep");

  Result<void> result;
  generate->callback([&] { result = RunGenerate(args); });
  shape->callback([&] { result = RunShape(args); });
  describe->callback([&] { result = RunDescribe(args); });
  replay->callback([&] { result = RunReplay(args); });
  provenance->callback([&] { result = RunProvenance(args); });
  growth->callback([&] { result = RunGrowth(args); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (result) return 0;
  std::fputs(("index_ops: " + result.error().message + "\n").c_str(), stderr);
  return ExitCode(result.error().code);
}

}  // namespace
}  // namespace kvr::bench

int main(int argc, char** argv) {
  return kvr::bench::Run(argc, argv);
}
