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
  GroupTable groups;
  CopyTable blocks;
};

}  // namespace kvr::placement
