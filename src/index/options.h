// The bounds of an index, which its owner configures.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace kvr::index {

// The bounds of one index.
struct IndexOptions {
  // Beyond it AddRank fails with kOverloaded.
  std::uint32_t ranks_max = 65'536;
  // Distinct blocks. Those kept for a remembered name give way; a store that would pass it even so
  // is refused whole with kCapacity. Block numbers have 32 bits.
  std::uint32_t blocks_max = 1u << 30;
  // A rank's blocks that wait for their parent or content; beyond it the oldest are dropped.
  std::uint32_t pending_blocks_max = 16'384;
  // Names a rank keeps of blocks it no longer holds, oldest forgotten first. Engines announce a
  // block in a farther tier after they removed it from the nearer one, by its name only. A name
  // keeps all blocks before its own: where these are more than 16 times as many that nobody holds,
  // or 65,536, names are forgotten earlier.
  std::uint32_t remembered_names_max = 4'096;
  // Blocks of a hybrid model's side groups, a rank; see SideGroups. Beyond it new ones count as
  // absent.
  std::uint32_t side_blocks_max = 1u << 22;
  // Heap of one index, counted as glibc gives it out; 0: no limit. An update that passes it evicts
  // the least recently used blocks, so that answers may be too low, never too high. One event may
  // pass it for as long as it is applied. Side groups are not counted.
  std::uint64_t memory_limit = 0;
  // Mixed into every hash table, whose keys come from outside. Set a secret one in production.
  std::uint64_t hash_seed = 0x9E3779B97F4A7C15u;

  [[nodiscard]] Result<void> Validate() const;
};

}  // namespace kvr::index
