// Copies of a cache group of which it is not yet known what they count for. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/ids.h"
#include "model/placement_event.h"
#include "placement/copy_table.h"

namespace kvr::placement {

// Counts copies by name, and keeps of each name what a store said of its block, for the case that
// the group turns out to be the main one. Allocates nothing once it had its size. Not thread-safe.
class HeldCopies {
 public:
  explicit HeldCopies(std::size_t names_max) : records_(names_max) {}

  struct Block {
    EngineHash name{};
    BlockHash local{};
    std::optional<EngineHash> parent;
    bool eligible = false;
    std::uint64_t order = 0;  // grows; parents mostly come before their children
  };

  // With what copy_rules.h asks for: the copies, the salt, whether the block has keys. `place` is
  // not 0 where what the block is is known.
  CopyTable& records() { return records_; }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  // Null when there is no room.
  BlockRecord* Add(EngineHash name) { return records_.Add(name); }
  // `record` is one of records(), and gone afterwards.
  void Erase(BlockRecord* record);

  // What a store says of blocks, of which those that have no record are passed over.
  struct Said {
    bool device = false;
    std::optional<EngineHash> parent;
    SaltState salt_state = SaltState::kNone;
    std::uint64_t salt_mix = 0;
    std::span<const std::uint8_t> keyed;  // whether keys are in the hash of block i; false beyond
    bool eligible = false;
  };
  void Learn(std::span<const PlacedBlock> blocks, const Said& said);
  // A name was said to be of different blocks: which one its copies are of is not known.
  [[nodiscard]] bool contradicted() const { return contradicted_; }

  // The blocks of which more than the name is known, in the order in which that came.
  [[nodiscard]] std::vector<Block> Known() const;

  // Heap in use, without the allocator's own.
  [[nodiscard]] std::size_t bytes() const {
    return records_.bytes() + known_.capacity() * sizeof(Block) +
           free_.capacity() * sizeof(std::uint32_t);
  }

 private:
  // Whether an earlier store said the same of the block under `parent`.
  [[nodiscard]] bool Knows(const BlockRecord& record, const PlacedBlock& block,
                           std::optional<EngineHash> parent, const Said& said) const;
  void Forget(BlockRecord& record);

  CopyTable records_;
  std::vector<Block> known_;         // a record's is at `place` - 1
  std::vector<std::uint32_t> free_;  // places in it
  std::uint64_t order_ = 0;
  bool contradicted_ = false;
};

}  // namespace kvr::placement
