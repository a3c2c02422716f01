#include "sched/eligibility.h"

#include <algorithm>

#include <fmt/core.h>

namespace kvr::sched {
namespace {

bool Has(const Host& host, std::string_view taint) {
  return std::ranges::find(host.taints, taint) != host.taints.end();
}

bool IsAllowed(const Constraints& constraints, WorkerId worker) {
  return !constraints.allowed ||
         std::ranges::find(*constraints.allowed, worker) != constraints.allowed->end();
}

bool HasOneRank(std::span<const Host> hosts, WorkerId worker) {
  return std::ranges::count_if(hosts,
                               [&](const Host& host) { return host.rank.worker == worker; }) == 1;
}

std::string Describe(const Pin& pin) {
  return pin.dp_rank ? fmt::format("pinned worker {} rank {}", Raw(pin.worker), *pin.dp_rank)
                     : fmt::format("pinned worker {}", Raw(pin.worker));
}

using Counts = std::array<std::size_t, kRefusalNames.size()>;

std::string Describe(const Counts& counts, std::size_t hosts) {
  std::string text = fmt::format("none of {} ranks can take the request", hosts);
  for (std::size_t i = 1; i < counts.size(); ++i) {
    if (counts[i] > 0) text += fmt::format(", {} {}", counts[i], kRefusalNames[i]);
  }
  return text;
}

}  // namespace

Refusal Check(const Constraints& constraints, const Host& host) {
  if (!IsAllowed(constraints, host.rank.worker)) return Refusal::kNotAllowed;
  if (const auto& pin = constraints.pinned) {
    if (pin->worker != host.rank.worker) return Refusal::kNotPinned;
    if (pin->dp_rank && *pin->dp_rank != host.rank.dp_rank) return Refusal::kNotPinned;
  } else if (std::ranges::find(constraints.excluded, host.rank) != constraints.excluded.end()) {
    return Refusal::kExcluded;
  }
  if (!host.available) return Refusal::kUnavailable;
  for (const std::string_view taint : constraints.required_taints) {
    if (!Has(host, taint)) return Refusal::kMissingTaint;
  }
  return host.overloaded ? Refusal::kOverloaded : Refusal::kNone;
}

Result<void> FindEligible(const Constraints& constraints, std::span<const Host> hosts,
                          std::vector<std::uint32_t>& eligible) {
  eligible.clear();
  const auto& pin = constraints.pinned;
  if (pin && !IsAllowed(constraints, pin->worker)) {
    return Fail(ErrorCode::kInvalidArgument,
                Describe(*pin) + " is not among the allowed workers: drop the pin or allow it");
  }
  Counts counts{};
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Refusal refusal = Check(constraints, hosts[i]);
    ++counts[static_cast<std::size_t>(refusal)];
    if (refusal == Refusal::kNone) eligible.push_back(static_cast<std::uint32_t>(i));
  }
  if (pin && !pin->dp_rank && !eligible.empty() && !HasOneRank(hosts, pin->worker)) {
    eligible.clear();
    return Fail(ErrorCode::kUnavailable,
                Describe(*pin) + " has more than one rank: name the rank too");
  }
  if (!eligible.empty()) return {};
  const bool overloaded = counts[static_cast<std::size_t>(Refusal::kOverloaded)] > 0;
  if (pin) {
    return overloaded ? Fail(ErrorCode::kOverloaded, Describe(*pin) + " is overloaded")
                      : Fail(ErrorCode::kUnavailable,
                             Describe(*pin) + ": " + Describe(counts, hosts.size()));
  }
  return Fail(overloaded ? ErrorCode::kOverloaded : ErrorCode::kUnavailable,
              Describe(counts, hosts.size()));
}

std::optional<double> PreferredWeight(const Constraints& constraints, const Host& host) {
  if (constraints.preferred_taints.empty() || constraints.pinned) return std::nullopt;
  double sum = 0;
  for (const auto& [taint, weight] : constraints.preferred_taints) {
    if (Has(host, taint)) sum += weight;
  }
  return sum;
}

}  // namespace kvr::sched
