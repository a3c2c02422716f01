#include "sim/replay_report.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "sim/svg_chart.h"

namespace kvr::sim {
namespace {

struct Column {
  std::string head;
  std::string (*cell)(const ArmResult&);
};

std::string Ms(double ms) {
  return ms >= 10'000 ? fmt::format("{:.1f} s", ms / 1000) : fmt::format("{:.0f} ms", ms);
}
std::string TokenMs(double ms) {
  return fmt::format("{:.1f} ms", ms);
}
std::string Percent(double ratio) {
  return fmt::format("{:.2f} %", ratio * 100);
}

using Table = std::vector<Column>;

// Two tables, so that a terminal of ordinary width can show them.
const std::vector<Table>& Tables() {
  static const Column policy = {"policy", [](const ArmResult& a) { return a.name; }};
  static const std::vector<Table> tables = {
      {policy,
       {"requests", [](const ArmResult& a) { return fmt::format("{}", a.requests); }},
       {"errors", [](const ArmResult& a) { return fmt::format("{}", a.errors); }},
       {"cached", [](const ArmResult& a) { return Percent(a.CachedRatio()); }},
       {"predicted", [](const ArmResult& a) { return Percent(a.PredictedRatio()); }},
       {"work CV", [](const ArmResult& a) { return fmt::format("{:.3f}", a.work_cv); }},
       {"TTFT mean", [](const ArmResult& a) { return Ms(a.ttft.mean); }},
       {"p50", [](const ArmResult& a) { return Ms(a.ttft.p50); }},
       {"p90", [](const ArmResult& a) { return Ms(a.ttft.p90); }},
       {"p99", [](const ArmResult& a) { return Ms(a.ttft.p99); }}},
      {policy,
       {"TPOT mean", [](const ArmResult& a) { return TokenMs(a.tpot.mean); }},
       {"p50", [](const ArmResult& a) { return TokenMs(a.tpot.p50); }},
       {"p90", [](const ArmResult& a) { return TokenMs(a.tpot.p90); }},
       {"p99", [](const ArmResult& a) { return TokenMs(a.tpot.p99); }},
       {"E2E mean", [](const ArmResult& a) { return Ms(a.e2e.mean); }},
       {"p50", [](const ArmResult& a) { return Ms(a.e2e.p50); }},
       {"p90", [](const ArmResult& a) { return Ms(a.e2e.p90); }},
       {"p99", [](const ArmResult& a) { return Ms(a.e2e.p99); }},
       {"sent late, p99", [](const ArmResult& a) { return Ms(a.send_lag.p99); }}},
  };
  return tables;
}

void WriteDistribution(JsonWriter& json, std::string_view name, const Distribution& d) {
  json.Key(name);
  json.BeginObject();
  json.Field("count", d.count);
  json.Field("mean", d.mean);
  json.Field("std", d.std);
  json.Field("min", d.min);
  json.Field("p50", d.p50);
  json.Field("p75", d.p75);
  json.Field("p90", d.p90);
  json.Field("p95", d.p95);
  json.Field("p99", d.p99);
  json.Field("max", d.max);
  json.EndObject();
}

double PerSecond(std::uint64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) * 1'000 / ms : 0;
}

void WriteArm(JsonWriter& json, const ArmResult& arm) {
  json.BeginObject();
  json.Field("policy", arm.name);
  json.Field("time_scale", arm.time_scale);
  json.Field("duration_ms", arm.duration_ms);
  json.Field("requests", arm.requests);
  json.Field("errors", arm.errors);
  json.Key("error_samples");
  json.BeginArray();
  for (const std::string& sample : arm.error_samples)
    json.Value(sample);
  json.EndArray();
  json.Field("prompt_tokens", arm.prompt_tokens);
  json.Field("output_tokens", arm.output_tokens);
  json.Field("prompt_tokens_per_second", PerSecond(arm.prompt_tokens, arm.duration_ms));
  json.Field("output_tokens_per_second", PerSecond(arm.output_tokens, arm.duration_ms));
  json.Field("actual_cached_tokens", arm.actual_cached_tokens);
  json.Field("predicted_cached_tokens", arm.predicted_cached_tokens);
  json.Field("prediction_error_tokens", arm.prediction_error_tokens);
  json.Field("without_prediction", arm.without_prediction);
  json.Field("without_actual", arm.without_actual);
  json.Field("cached_ratio", arm.CachedRatio());
  json.Field("predicted_ratio", arm.PredictedRatio());
  WriteDistribution(json, "send_lag_ms", arm.send_lag);
  WriteDistribution(json, "ttft_ms", arm.ttft);
  WriteDistribution(json, "tpot_ms", arm.tpot);
  WriteDistribution(json, "e2e_ms", arm.e2e);
  json.Field("work_cv", arm.work_cv);
  json.Key("ranks");
  json.BeginArray();
  for (const RankLoad& rank : arm.ranks) {
    json.BeginObject();
    json.Field("name", rank.name);
    json.Field("requests", rank.requests);
    json.Field("work_tokens", rank.work_tokens);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

// Where slice `i` begins, in seconds.
double SliceStart(const ArmResult& arm, std::size_t i) {
  return arm.duration_ms / 1000 * static_cast<double>(i) / static_cast<double>(kReplaySlices);
}

std::string TtftChart(const ReplayReport& report) {
  LineChart chart;
  chart.title = "Time to first token: share of requests answered within";
  chart.x_label = "time to first token, ms (log)";
  chart.y_label = "share of requests";
  chart.log_x = true;
  chart.percent_y = true;
  chart.y_max = 1;
  for (const ArmResult& arm : report.arms) {
    Series series;
    series.name = arm.name;
    const std::size_t n = arm.ttft_sorted_ms.size();
    const std::size_t step = std::max<std::size_t>(1, n / 300);
    for (std::size_t i = 0; i < n; i += step) {
      series.points.emplace_back(std::max(arm.ttft_sorted_ms[i], 0.1),
                                 static_cast<double>(i + 1) / static_cast<double>(n));
    }
    if (n > 0) series.points.emplace_back(std::max(arm.ttft_sorted_ms[n - 1], 0.1), 1.0);
    chart.series.push_back(std::move(series));
  }
  return ToSvg(chart);
}

std::string HitRatioChart(const ReplayReport& report) {
  LineChart chart;
  chart.title = "Prompt tokens found in an engine's cache";
  chart.x_label = "time, s";
  chart.y_label = "share of prompt tokens";
  chart.percent_y = true;
  double end = 0;
  for (const ArmResult& arm : report.arms) {
    Series series;
    series.name = arm.name;
    for (std::size_t i = 0; i < arm.hit_ratio.size(); ++i) {
      series.points.emplace_back(SliceStart(arm, i), arm.hit_ratio[i]);
    }
    end = std::max(end, arm.duration_ms / 1000);
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back({"infinite cache (mean)",
                          {{0, report.infinite_cache_ratio}, {end, report.infinite_cache_ratio}},
                          true});
  return ToSvg(chart);
}

std::string LoadChart(const ReplayReport& report) {
  double top = 1;
  for (const ArmResult& arm : report.arms) {
    for (const RankLoad& rank : arm.ranks) {
      for (const double active : rank.active)
        top = std::max(top, active);
    }
  }
  std::vector<LineChart> charts;
  for (const ArmResult& arm : report.arms) {
    LineChart chart;
    chart.title = arm.name;
    chart.x_label = "time, s";
    chart.y_label = "requests under way";
    chart.y_max = top;
    for (const RankLoad& rank : arm.ranks) {
      Series series;
      series.name = rank.name;
      for (std::size_t i = 0; i < rank.active.size(); ++i) {
        series.points.emplace_back(SliceStart(arm, i), rank.active[i]);
      }
      chart.series.push_back(std::move(series));
    }
    charts.push_back(std::move(chart));
  }
  return ToSvg("Requests under way per rank (worker/rank)", charts, 2);
}

std::string Html(const ReplayReport& report, std::string_view charts) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(
      to,
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>"
      "body{{font:14px/1.5 Helvetica,Arial,sans-serif;margin:2em auto;max-width:1000px;color:#222}}"
      "table{{border-collapse:collapse;margin:1em 0}}td,th{{padding:.3em .7em;text-align:right;"
      "border-bottom:1px solid #ddd;white-space:nowrap}}td:first-child,th:first-child"
      "{{text-align:left}}svg{{max-width:100%;height:auto;margin:1em 0}}</style></head><body>\n"
      "<h1>{0}</h1>\n<table>\n",
      EscapeMarkup(report.title));
  for (const auto& [name, value] : report.setup) {
    fmt::format_to(to, "<tr><td>{}</td><td style=\"text-align:left\">{}</td></tr>\n",
                   EscapeMarkup(name), EscapeMarkup(value));
  }
  out += "</table>\n";
  for (const Table& table : Tables()) {
    out += "<table>\n<tr>";
    for (const Column& column : table)
      fmt::format_to(to, "<th>{}</th>", column.head);
    out += "</tr>\n";
    for (const ArmResult& arm : report.arms) {
      out += "<tr>";
      for (const Column& column : table) {
        fmt::format_to(to, "<td>{}</td>", EscapeMarkup(column.cell(arm)));
      }
      out += "</tr>\n";
    }
    out += "</table>\n";
  }
  fmt::format_to(
      to,
      "<p>cached: prompt tokens the engines reused, by their own usage reports. "
      "predicted: what the router expected when it chose. One cache of unlimited size "
      "would have spared {}. work CV: standard deviation over mean of the tokens each rank "
      "had to compute in the whole run, which hides imbalance that passes. sent late: how far "
      "behind its due time the client sent; the times include "
      "it.</p>\n{}</body></html>\n",
      Percent(report.infinite_cache_ratio), charts);
  return out;
}

Result<void> WriteFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Fail(ErrorCode::kIo, fmt::format("cannot write {}", path.string()));
  return {};
}

void AppendTable(std::string& out, const ReplayReport& report, const Table& table) {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : table)
    rows[0].push_back(column.head);
  for (const ArmResult& arm : report.arms) {
    auto& row = rows.emplace_back();
    for (const Column& column : table)
      row.push_back(column.cell(arm));
  }
  std::vector<std::size_t> widths(table.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  auto to = std::back_inserter(out);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == 0) {
        fmt::format_to(to, "{:<{}}", row[i], widths[i]);
      } else {
        fmt::format_to(to, "  {:>{}}", row[i], widths[i]);
      }
    }
    out += '\n';
  }
}

}  // namespace

std::string ToTable(const ReplayReport& report) {
  std::string out;
  for (const Table& table : Tables()) {
    AppendTable(out, report, table);
    out += '\n';
  }
  fmt::format_to(std::back_inserter(out),
                 "one cache of unlimited size would have spared {} of the prompt tokens\n",
                 Percent(report.infinite_cache_ratio));
  return out;
}

std::string ToJson(const ReplayReport& report) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("setup");
  json.BeginObject();
  for (const auto& [name, value] : report.setup)
    json.Field(name, value);
  json.EndObject();
  json.Field("infinite_cache_ratio", report.infinite_cache_ratio);
  json.Key("arms");
  json.BeginArray();
  for (const ArmResult& arm : report.arms)
    WriteArm(json, arm);
  json.EndArray();
  json.EndObject();
  return out;
}

Result<void> WriteReport(const ReplayReport& report, const std::filesystem::path& directory) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot make {}: {}", directory.string(), failed.message()));
  }
  const std::string ttft = TtftChart(report);
  const std::string hit_ratio = HitRatioChart(report);
  const std::string load = LoadChart(report);
  KVR_TRY_VOID(WriteFile(directory / "ttft.svg", ttft));
  KVR_TRY_VOID(WriteFile(directory / "hit_ratio.svg", hit_ratio));
  KVR_TRY_VOID(WriteFile(directory / "load.svg", load));
  KVR_TRY_VOID(WriteFile(directory / "report.json", ToJson(report) + "\n"));
  KVR_TRY_VOID(WriteFile(directory / "table.txt", ToTable(report)));
  return WriteFile(directory / "report.html", Html(report, ttft + hit_ratio + load));
}

}  // namespace kvr::sim
