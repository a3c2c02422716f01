// Which ranks may take a request, and why none may.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace kvr::sched {

// Worker chosen by the caller. Without a rank the worker must have exactly one.
struct Pin {
  WorkerId worker{};
  std::optional<std::uint32_t> dp_rank = {};
};

// A preferred taint and its weight; the cost is multiplied by exp(−tanh(Σ weights of its worker)).
using PreferredTaint = std::pair<std::string_view, double>;

// Where a request may go. All spans borrow for the call.
struct Constraints {
  std::optional<std::span<const WorkerId>> allowed = {};  // none: all; empty: nobody
  std::optional<Pin> pinned = {};
  std::span<const Rank> excluded = {};  // failed this request before; a pinned request is not moved
  std::span<const std::string_view> required_taints = {};
  std::span<const PreferredTaint> preferred_taints = {};
};

// One rank of the partition.
struct Host {
  Rank rank;
  bool available = true;    // may be sent requests now: serving, and the engine is up
  bool overloaded = false;  // its worker is over its thresholds
  std::span<const std::string> taints = {};
};

// The first that fails, in the order they are checked.
enum class Refusal : std::uint8_t {
  kNone,
  kNotAllowed,    // not in the allow list
  kNotPinned,     // another worker or rank is pinned
  kExcluded,      // failed this request before
  kUnavailable,   // draining, down or not ready
  kMissingTaint,  // lacks a required taint
  kOverloaded,
};
inline constexpr std::array<std::string_view, 7> kRefusalNames = {
    "none", "not_allowed", "not_pinned", "excluded", "unavailable", "missing_taint", "overloaded"};
constexpr std::string_view RefusalName(Refusal refusal) {
  return kRefusalNames[static_cast<std::size_t>(refusal)];
}

Refusal Check(const Constraints& constraints, const Host& host);

// Replaces `eligible` by the indices of the hosts that may take the request; at least one, else:
//   kInvalidArgument  the pinned worker is not in the allow list
//   kOverloaded       the pinned worker, or every rank that could take it, is overloaded
//   kUnavailable      nobody is there: the message counts the hosts by refusal
Result<void> FindEligible(const Constraints& constraints, std::span<const Host> hosts,
                          std::vector<std::uint32_t>& eligible);

// Σ weights of the preferred taints the host has; nothing when the request prefers none.
std::optional<double> PreferredWeight(const Constraints& constraints, const Host& host);

}  // namespace kvr::sched
