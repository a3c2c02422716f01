#include "config/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace kvr::config {
namespace {

// Edits that turn `a` into `b`: insert, delete, replace, or swap two neighbours.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_up(b.size() + 1);
  std::vector<std::size_t> up(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(up.begin(), up.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = up[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_up[j - 2] + 1);
    }
    std::swap(two_up, up);
    std::swap(up, row);
  }
  return up[b.size()];
}

}  // namespace

std::string Suggest(std::string_view name, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = Distance(name, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      nearest = &candidate;
    }
  }
  if (nearest != nullptr) return fmt::format("did you mean `{}`?", *nearest);
  return known.empty() ? std::string() : fmt::format("known: {}", fmt::join(known, ", "));
}

}  // namespace kvr::config
