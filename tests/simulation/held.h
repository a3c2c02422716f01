// What a rank holds, as somebody knows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "index/prefix_index.h"
#include "model/ids.h"
#include "model/tier.h"

namespace kvr::simulation {

using Held = std::set<std::pair<Tier, std::uint64_t>>;  // the block's name

inline bool Within(const Held& known, const Held& truth) {
  return std::ranges::includes(truth, known);
}

// What the index says the rank holds, and can be reached from a root.
Held HeldIn(const index::PrefixIndex& index, Rank rank);
// ... and which of it is eligible.
Held EligibleIn(const index::PrefixIndex& index, Rank rank);

}  // namespace kvr::simulation
