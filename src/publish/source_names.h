// One name for a block, whichever source speaks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "publish/block_table.h"
#include "publish/mutation.h"

namespace kvr::publish {

// Every source names blocks in its own way. Where there are several, the events of each pass
// through one of these, and blocks are called by their sequence hash, which the same tokens with
// the same adapter, salt and objects have behind the same prefix, whoever stores them.
//
// What hangs behind a block that the source never told of has no place in a sequence; it keeps the
// source's names, and so does what is beyond the limit. A name that comes with another content is
// removed first. Not thread-safe. Allocates nothing once warm, but for the table as it grows.
class SourceNames {
 public:
  // `remembered_max` names are kept beyond the last copy of their block, for stores by name only.
  SourceNames(std::size_t blocks_max, std::size_t remembered_max)
      : table_(blocks_max), remembered_(remembered_max) {}

  // Hands on the mutation, renamed.
  void Pass(const Mutation& mutation, MutationSink& out);

  [[nodiscard]] std::size_t size() const { return table_.size(); }
  // Blocks that kept the source's names.
  [[nodiscard]] std::uint64_t unplaced() const { return unplaced_; }

 private:
  void PassStore(const Mutation& store, MutationSink& out);
  void PassNames(const Mutation& store, MutationSink& out);
  void PassRemoval(const Mutation& removal, MutationSink& out);
  // Removes, in every tier, what the entry's name has meant so far.
  void TellGone(const Mutation& store, BlockEntry& entry, MutationSink& out);

  BlockTable table_;  // by the source's name; `parent` is the sequence hash
  RecentNames remembered_;
  std::uint64_t unplaced_ = 0;
  std::vector<PlacedBlock> blocks_;
  std::vector<EngineHash> removed_;
};

}  // namespace kvr::publish
