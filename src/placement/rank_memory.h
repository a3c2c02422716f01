// What earlier frames taught about one rank. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/side_group.h"
#include "placement/chunk_book.h"
#include "placement/copy_table.h"
#include "placement/held_events.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Cache groups of one rank and what they serve.
class GroupTable {
 public:
  // Groups a rank may teach; the rest is not remembered and so filtered as unlearned.
  static constexpr std::size_t kGroupsMax = 256;

  struct Entry {
    wire::GroupKind kind = wire::GroupKind::kAbsent;
    SideGroup side;  // what it is beside the main group
  };

  // Learns from a store that names its group and kind. The first group of a main kind is the main
  // group.
  void Learn(const wire::EngineEvent& event);
  // Null when it was never learned.
  [[nodiscard]] Entry* Find(std::uint32_t group) {
    for (Entry& entry : entries_) {
      if (entry.side.group == group) return &entry;
    }
    return nullptr;
  }
  // True when another group than this one is the main group.
  [[nodiscard]] bool IsFurther(std::uint32_t group) const { return main_.value_or(group) != group; }

 private:
  std::vector<Entry> entries_;
  std::optional<std::uint32_t> main_;
};

struct RankMemory {
  RankMemory(std::uint32_t rank, const MemoryLimits& limits)
      : dp_rank(rank),
        blocks(limits.counted_blocks_max),
        held(limits.held_names_max),
        chunks(limits) {}

  std::uint32_t dp_rank;
  // What the main group's last telling store on the device said of the block size, in tokens.
  bool size_confirmed = false;         // there was one of the registered size
  std::uint32_t wrong_block_size = 0;  // ... and the last one was of this size; 0: of the right one
  GroupTable groups;
  CopyTable blocks;
  HeldEvents held;
  ChunkBook chunks;
};

}  // namespace kvr::placement
