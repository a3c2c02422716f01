// Telling the blocks of a rank that gives one name to several of them.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "index/rank_copy.h"

namespace kvr::index {

// Which blocks of a copy have one name, oldest first, by their number in RankCopy::blocks.
using SharedName = std::vector<std::size_t>;

inline constexpr std::size_t kNoBlock = std::numeric_limits<std::size_t>::max();

// A store finds its parent by name, which leads to the newest block of this name. So that each run
// of `plain` finds its own, some blocks are told again right before it: that makes them the newest
// and changes nothing else. At last the newest of each name are told again, so that removals take
// the blocks in the same order; a block that no store can put into its place is left out.
//
// No run has a name twice, its parent's included, so that it may be cut anywhere. Thus a block that
// goes by the name of the one before it cannot be told, and is left out with all that is behind it.
// What is told again is at most as much as there is, and some; blocks that would need more are left
// out, too.
//
// `plain` has each block once, parents first. `parents` has for each run the block before its first
// one, or kNoBlock at the root.
RankCopy TellSharedNames(const RankCopy& plain, std::span<const std::size_t> parents,
                         std::span<const SharedName> shared);

}  // namespace kvr::index
