// Small line charts as self-contained SVG text.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvr::sim {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
  bool dashed = false;
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool log_x = false;           // x must be above 0
  bool percent_y = false;       // y is a ratio, shown in percent
  std::optional<double> y_max;  // default: the largest value, rounded up
};

// One chart of 760x380 units. Colours and dashes tell series apart; a legend names them.
std::string ToSvg(const LineChart& chart);

// Several charts of equal size below one title, `columns` a row, with their own small legends.
std::string ToSvg(const std::string& title, const std::vector<LineChart>& charts,
                  std::size_t columns);

// For text in SVG and HTML.
std::string EscapeMarkup(const std::string& text);

}  // namespace kvr::sim
