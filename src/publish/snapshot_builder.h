// A table of blocks as runs. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "publish/block_table.h"
#include "publish/snapshot.h"

namespace kvr::publish {

// Used once.
class SnapshotBuilder {
 public:
  SnapshotBuilder(const BlockTable& table, std::size_t run_blocks_max)
      : table_(table), run_blocks_max_(run_blocks_max), seen_(table.entries().size(), false) {}

  Snapshot Build();

 private:
  // The entry and those above it that were not seen yet, topmost first.
  void Emit(std::size_t place);
  void Add(const BlockEntry& entry);
  void EndStretch();

  const BlockTable& table_;
  const std::size_t run_blocks_max_;
  std::vector<bool> seen_;
  std::vector<std::size_t> chain_;
  std::vector<const BlockEntry*> stretch_;  // of one chain, held alike
  Snapshot snapshot_;
};

}  // namespace kvr::publish
