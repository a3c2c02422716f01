#include "bench/growth.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "bench/index_feed.h"
#include "bench/measure.h"
#include "bench/op_generator.h"
#include "sim/svg_chart.h"

namespace kvr::bench {
namespace {

constexpr double kLoop_s = 0.1;
constexpr std::uint64_t kQueriesMin = 1'024;

struct SweepPlan {
  std::string name;
  std::vector<std::uint32_t> values;
  void (*set)(ShapeOptions& shape, std::uint32_t value);
  std::uint32_t (*get)(const GrowthPoint& point);
};

const std::vector<SweepPlan>& Plans() {
  // Each chain is held by all ranks of the index in the first sweep, so that answers grow with it.
  static const std::vector<SweepPlan> plans = {
      {"ranks",
       {1, 4, 16, 64, 256, 1'024, 4'096},
       [](ShapeOptions& shape, std::uint32_t value) { shape.ranks = shape.holders = value; },
       [](const GrowthPoint& point) { return point.ranks; }},
      {"depth",
       {1, 4, 16, 64, 256, 1'024, 4'096, 16'384, 65'536},
       [](ShapeOptions& shape, std::uint32_t value) { shape.depth = value; },
       [](const GrowthPoint& point) { return point.depth; }},
      {"holders",
       {1, 2, 4, 8, 16, 32, 64, 128},
       [](ShapeOptions& shape, std::uint32_t value) { shape.holders = value; },
       [](const GrowthPoint& point) { return point.holders; }},
  };
  return plans;
}

Result<GrowthPoint> MeasurePoint(ShapeOptions shape, std::uint64_t blocks) {
  const std::uint64_t chain_blocks = std::uint64_t{shape.depth} * shape.holders;
  shape.chains = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, blocks / chain_blocks));
  // Few long chains are asked more often, many short ones less.
  shape.queries_each =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kQueriesMin / shape.chains));
  shape.queries_each = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(4 * blocks / shape.depth, 1, shape.queries_each));
  KVR_TRY(const OpTrace trace, GenerateShape(shape));
  const IndexFeed feed(trace);
  const FillResult fill = MeasureFill(feed);
  const FedIndex& index = *fill.index;
  return GrowthPoint{.ranks = shape.ranks,
                     .depth = shape.depth,
                     .holders = shape.holders,
                     .chains = shape.chains,
                     .write_ns = fill.write.cpu_s * 1e9 / static_cast<double>(fill.write.blocks),
                     .query_ns = MeasureLoop(feed, index, kLoop_s).median_ns,
                     .query_p99_ns = static_cast<double>(MeasureAlone(feed, index).p99_ns),
                     .bytes = static_cast<double>(fill.memory.heap_bytes) /
                              static_cast<double>(fill.memory.held_blocks)};
}

}  // namespace

Result<std::vector<GrowthSweep>> MeasureGrowth(std::uint64_t blocks, std::size_t steps_max) {
  std::vector<GrowthSweep> sweeps;
  for (const SweepPlan& plan : Plans()) {
    GrowthSweep sweep{.name = plan.name, .points = {}};
    for (const std::uint32_t value : plan.values) {
      if (sweep.points.size() == steps_max) break;
      ShapeOptions shape;
      plan.set(shape, value);
      KVR_TRY(const GrowthPoint point, MeasurePoint(shape, blocks));
      sweep.points.push_back(point);
    }
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

std::string GrowthJson(const std::vector<GrowthSweep>& sweeps) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  for (const GrowthSweep& sweep : sweeps) {
    json.Key(sweep.name);
    json.BeginArray();
    for (const GrowthPoint& point : sweep.points) {
      json.BeginObject();
      json.Field("ranks", point.ranks);
      json.Field("depth", point.depth);
      json.Field("holders", point.holders);
      json.Field("chains", point.chains);
      json.Field("write_ns_per_block", point.write_ns);
      json.Field("query_ns", point.query_ns);
      json.Field("query_alone_p99_ns", point.query_p99_ns);
      json.Field("heap_bytes_per_held_block", point.bytes);
      json.EndObject();
    }
    json.EndArray();
  }
  json.EndObject();
  out += '\n';
  return out;
}

std::string GrowthText(const std::vector<GrowthSweep>& sweeps) {
  std::string out;
  for (const GrowthSweep& sweep : sweeps) {
    out += fmt::format("growth with {}\n{:>8}{:>8}{:>9}{:>9}{:>16}{:>11}{:>12}{:>14}\n", sweep.name,
                       "ranks", "depth", "holders", "chains", "write ns/block", "query ns",
                       "p99 alone", "bytes/block");
    for (const GrowthPoint& p : sweep.points) {
      out += fmt::format("{:>8}{:>8}{:>9}{:>9}{:>16.2f}{:>11.0f}{:>12.0f}{:>14.2f}\n", p.ranks,
                         p.depth, p.holders, p.chains, p.write_ns, p.query_ns, p.query_p99_ns,
                         p.bytes);
    }
  }
  return out;
}

std::string GrowthSvg(const std::vector<GrowthSweep>& sweeps) {
  struct Figure {
    const char* label;
    double GrowthPoint::*value;
  };
  static constexpr Figure kFigures[] = {{"query, ns", &GrowthPoint::query_ns},
                                        {"write, ns a block", &GrowthPoint::write_ns},
                                        {"heap bytes a held block", &GrowthPoint::bytes}};
  std::vector<sim::LineChart> charts;
  for (const Figure& figure : kFigures) {
    for (std::size_t i = 0; i < sweeps.size(); ++i) {
      sim::LineChart chart;
      chart.title = fmt::format("{} by {}", figure.label, sweeps[i].name);
      chart.x_label = sweeps[i].name;
      chart.y_label = figure.label;
      chart.log_x = true;
      sim::Series series;
      series.name = "run arena";
      for (const GrowthPoint& point : sweeps[i].points)
        series.points.emplace_back(Plans()[i].get(point), point.*figure.value);
      chart.series.push_back(std::move(series));
      charts.push_back(std::move(chart));
    }
  }
  return sim::ToSvg("How the index grows", charts, sweeps.size());
}

}  // namespace kvr::bench
