#include "sim/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace kvr::sim {
namespace {

// Distinct for the common kinds of colour blindness (Okabe and Ito).
constexpr std::array<std::string_view, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#e69f00", "#56b4e9", "#555555"};
constexpr double kTitleHeight = 34;

struct Box {
  double x;
  double y;
  double width;
  double height;
};

struct Range {
  double low;
  double high;
};

// A step of 1, 2 or 5 times a power of ten that cuts `span` into at most `parts`.
double NiceStep(double span, int parts) {
  const double raw = span / parts;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string TickText(double value, bool percent) {
  if (percent) return fmt::format("{:.3g} %", value * 100);
  if (std::abs(value) >= 1'000) return fmt::format("{:.3g}k", value / 1000);
  return fmt::format("{:.3g}", value);
}

std::vector<double> Ticks(Range range, bool log) {
  std::vector<double> ticks;
  if (log) {
    for (double decade = std::pow(10, std::floor(std::log10(range.low))); decade <= range.high;
         decade *= 10) {
      for (const double factor : {1.0, 3.0}) {
        const double tick = decade * factor;
        if (tick >= range.low && tick <= range.high) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double step = NiceStep(range.high - range.low, 6);
  for (double tick = std::ceil(range.low / step) * step; tick <= range.high + step * 1e-9;
       tick += step) {
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return ticks;
}

class Plot {
 public:
  Plot(const LineChart& chart, const Box& box) : chart_(chart), box_(box) { FindRanges(); }

  void Draw(std::string& out) const {
    DrawAxes(out);
    for (std::size_t i = 0; i < chart_.series.size(); ++i)
      DrawSeries(out, i);
    DrawLegend(out);
  }

 private:
  void FindRanges() {
    double x_low = 1e300;
    double x_high = -1e300;
    double y_high = 0;
    for (const Series& series : chart_.series) {
      for (const auto& [x, y] : series.points) {
        if (chart_.log_x && x <= 0) continue;
        x_low = std::min(x_low, x);
        x_high = std::max(x_high, x);
        y_high = std::max(y_high, y);
      }
    }
    if (x_low > x_high) {
      x_low = chart_.log_x ? 1 : 0;
      x_high = x_low + 1;
    }
    if (x_high <= x_low) x_high = x_low + 1;
    x_ = {x_low, x_high};
    if (y_high <= 0) y_high = 1;
    const double step = NiceStep(y_high, 5);
    y_ = {0, chart_.y_max.value_or(std::ceil(y_high / step) * step)};
  }

  [[nodiscard]] double MapX(double x) const {
    const double share =
        chart_.log_x ? (std::log(x) - std::log(x_.low)) / (std::log(x_.high) - std::log(x_.low))
                     : (x - x_.low) / (x_.high - x_.low);
    return box_.x + share * box_.width;
  }
  [[nodiscard]] double MapY(double y) const {
    const double share = std::clamp((y - y_.low) / (y_.high - y_.low), 0.0, 1.0);
    return box_.y + box_.height - share * box_.height;
  }

  void DrawAxes(std::string& out) const {
    auto to = std::back_inserter(out);
    fmt::format_to(to, "<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"t\">{}</text>\n", box_.x,
                   box_.y - 12, EscapeMarkup(chart_.title));
    for (const double tick : Ticks(y_, false)) {
      fmt::format_to(to,
                     "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"g\"/>"
                     "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"e\">{}</text>\n",
                     box_.x, box_.x + box_.width, MapY(tick), MapY(tick), box_.x - 6,
                     MapY(tick) + 4, TickText(tick, chart_.percent_y));
    }
    for (const double tick : Ticks(x_, chart_.log_x)) {
      fmt::format_to(to,
                     "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"g\"/>"
                     "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"m\">{}</text>\n",
                     MapX(tick), MapX(tick), box_.y, box_.y + box_.height, MapX(tick),
                     box_.y + box_.height + 16, TickText(tick, false));
    }
    fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"m\">{}</text>\n",
                   box_.x + box_.width / 2, box_.y + box_.height + 34,
                   EscapeMarkup(chart_.x_label));
    fmt::format_to(to,
                   "<text x=\"{0:.1f}\" y=\"{1:.1f}\" class=\"m\" transform=\"rotate(-90 {0:.1f} "
                   "{1:.1f})\">{2}</text>\n",
                   box_.x - 46, box_.y + box_.height / 2, EscapeMarkup(chart_.y_label));
  }

  void DrawSeries(std::string& out, std::size_t i) const {
    const Series& series = chart_.series[i];
    if (series.points.empty()) return;
    auto to = std::back_inserter(out);
    fmt::format_to(to, "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{} points=\"",
                   Colour(i), series.dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (const auto& [x, y] : series.points) {
      if (chart_.log_x && x <= 0) continue;
      fmt::format_to(to, "{:.1f},{:.1f} ", MapX(x), MapY(y));
    }
    out += "\"/>\n";
  }

  void DrawLegend(std::string& out) const {
    auto to = std::back_inserter(out);
    double y = box_.y + 8;
    for (std::size_t i = 0; i < chart_.series.size(); ++i, y += 17) {
      const double x = box_.x + box_.width + 12;
      fmt::format_to(to,
                     "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
                     "stroke-width=\"3\"{}/><text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                     x, x + 18, y, y, Colour(i),
                     chart_.series[i].dashed ? " stroke-dasharray=\"6 4\"" : "", x + 24, y + 4,
                     EscapeMarkup(chart_.series[i].name));
    }
  }

  static std::string_view Colour(std::size_t i) { return kColours[i % kColours.size()]; }

  const LineChart& chart_;
  const Box box_;
  Range x_{};
  Range y_{};
};

void Open(std::string& out, double width, double height) {
  fmt::format_to(
      std::back_inserter(out),
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"Helvetica,Arial,sans-serif\" font-size=\"12\" "
      "fill=\"#333\">\n<style>.t{{font-size:14px;font-weight:bold}}.g{{stroke:#ddd}}"
      ".e{{text-anchor:end}}.m{{text-anchor:middle}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
}

}  // namespace

std::string EscapeMarkup(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ToSvg(const LineChart& chart) {
  std::string out;
  Open(out, 760, 380);
  Plot(chart, Box{70, 40, 520, 280}).Draw(out);
  out += "</svg>\n";
  return out;
}

std::string ToSvg(const std::string& title, const std::vector<LineChart>& charts,
                  std::size_t columns) {
  constexpr double kCellWidth = 400;
  constexpr double kCellHeight = 250;
  const std::size_t rows = (charts.size() + columns - 1) / columns;
  std::string out;
  Open(out, kCellWidth * static_cast<double>(columns),
       kTitleHeight + kCellHeight * static_cast<double>(rows));
  fmt::format_to(std::back_inserter(out), "<text x=\"14\" y=\"24\" class=\"t\">{}</text>\n",
                 EscapeMarkup(title));
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const std::size_t row = i / columns;
    const double left = kCellWidth * static_cast<double>(i % columns);
    const double top = kTitleHeight + kCellHeight * static_cast<double>(row);
    Plot(charts[i], Box{left + 62, top + 30, 250, 160}).Draw(out);
  }
  out += "</svg>\n";
  return out;
}

}  // namespace kvr::sim
