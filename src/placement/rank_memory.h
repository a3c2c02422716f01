// What earlier frames taught about one rank. Private to the module.
#pragma once

#include <cstdint>
#include <optional>

#include "placement/chunk_book.h"
#include "placement/copy_table.h"
#include "placement/gone_names.h"
#include "placement/group_table.h"
#include "placement/translator_options.h"
#include "wire/partial_blocks.h"

namespace kvr::placement {

struct RankMemory {
  RankMemory(std::uint32_t rank, const MemoryLimits& limits)
      : dp_rank(rank),
        groups(limits),
        blocks(limits.counted_blocks_max),
        chunks(limits),
        partials(limits.partial_blocks_max) {}

  std::uint32_t dp_rank;
  // What the main group's last telling store on the device said of the block size, in tokens.
  bool size_confirmed = false;         // there was one of the registered size
  std::uint32_t wrong_block_size = 0;  // ... and the last one was of this size; 0: of the right one
  GroupTable groups;
  bool said_unclear = false;  // the last side event that said whether all is clear of them
  CopyTable blocks;           // of the main group
  GoneNames gone;             // from `blocks`
  ChunkBook chunks;
  wire::PartialBlocks partials;  // on the device

  // Whose copies are among `blocks`, beside those in tiers that no group has: the number of the
  // group that was the main one then, and whether any came without a number.
  std::optional<std::uint32_t> owner;
  bool numberless = false;
  // Of the stream's changes of the main window, so many were applied to this rank.
  std::uint64_t main_changes = 0;

  // All copies are gone. What groups are stays known.
  void ForgetCopies() {
    groups.ForgetCopies();
    blocks.Clear();
    gone.Clear();
    chunks.Clear();
    partials.Clear();
    owner.reset();
    numberless = false;
  }
  // Some copies are gone, and nobody knows which.
  void ForgetCounts() {
    groups.ForgetCopies();
    blocks.ForgetCounts();
  }
};

}  // namespace kvr::placement
