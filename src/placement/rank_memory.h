// What earlier frames taught about one rank. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "placement/copy_table.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Cache groups of one rank and the attention they serve.
class GroupTable {
 public:
  // Groups a rank may teach; the rest is not remembered and so filtered as unlearned.
  static constexpr std::size_t kGroupsMax = 256;

  void Learn(std::uint32_t group, wire::GroupKind kind);
  // kAbsent when it was never learned.
  [[nodiscard]] wire::GroupKind KindOf(std::uint32_t group) const;

 private:
  struct Entry {
    std::uint32_t group;
    wire::GroupKind kind;
  };
  std::vector<Entry> entries_;
};

struct RankMemory {
  RankMemory(std::uint32_t rank, std::size_t blocks_max) : dp_rank(rank), blocks(blocks_max) {}

  std::uint32_t dp_rank;
  // What the main group's last telling store on the device said of the block size, in tokens.
  bool size_confirmed = false;         // there was one of the registered size
  std::uint32_t wrong_block_size = 0;  // ... and the last one was of this size; 0: of the right one
  GroupTable groups;
  CopyTable blocks;
};

}  // namespace kvr::placement
