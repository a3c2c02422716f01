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
// source's name until a store says where it belongs. A name that comes to mean another block is
// removed first. Of several names of a source that mean one block, which is what one adapter gives
// that is loaded twice, the last takes the block with it. What is beyond the limit is not passed,
// nor what its store says behind it: nobody could take it back.
//
// Not thread-safe. Allocates nothing once warm, but for the table as it grows.
class SourceNames {
 public:
  // `remembered_max` names are kept beyond the last copy of their block, for stores by name only.
  SourceNames(std::size_t blocks_max, std::size_t remembered_max)
      : table_(blocks_max), remembered_(remembered_max), meanings_(blocks_max) {}

  // Hands on the mutation, renamed.
  void Pass(const Mutation& mutation, MutationSink& out);

  [[nodiscard]] std::size_t size() const { return table_.size(); }
  // Blocks that kept the source's names.
  [[nodiscard]] std::uint64_t unplaced() const { return unplaced_; }
  // Blocks stored by a name that the source never told of; they are not passed.
  [[nodiscard]] std::uint64_t unknown() const { return unknown_; }
  // Blocks beyond the limit, and those of them since the last clear.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t missing() const { return missing_; }

 private:
  void PassStore(const Mutation& store, MutationSink& out);
  void PassNames(const Mutation& store, MutationSink& out);
  void PassRemoval(const Mutation& removal, MutationSink& out);
  // Hands on the blocks gathered so far; what follows goes on behind them.
  void TellStored(Mutation& renamed, MutationSink& out);
  // Removes, in every tier, what the entry's name has meant so far.
  void TellGone(const Mutation& store, NameEntry& entry, MutationSink& out);
  // The name holds its block in the tier, or does no more.
  void Hold(NameEntry& entry, Tier tier);
  void Release(NameEntry& entry, Tier tier);
  // Whether any name does.
  [[nodiscard]] bool IsHeld(EngineHash told, Tier tier) const;

  NameTable table_;
  RecentNames remembered_;
  MeaningTable meanings_;  // of names that are held: no more than those
  std::uint64_t unplaced_ = 0;
  std::uint64_t unknown_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t missing_ = 0;
  std::vector<PlacedBlock> blocks_;
  std::vector<EngineHash> removed_;
};

}  // namespace kvr::publish
