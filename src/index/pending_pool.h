// Blocks of one rank that have no place yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "model/ids.h"

namespace kvr::index {

struct PendingBlock {
  EngineHash name{};
  std::optional<BlockHash> local;    // none: only the name was announced
  std::optional<EngineHash> parent;  // with `local`: what it waits for
  std::uint8_t tiers = 0;            // a bit each
  bool eligible = false;             // with `local`
};

// A block is told by its name, content and parent: announced again it gets more tiers and becomes
// the newest, and all that say so have to be eligible for it to be. What has the same name and
// another content or parent is another block. An announcement by name only means the newest that
// waits under this name; it waits alone when there is none, until the first that brings a content
// takes it over. Beyond `blocks_max` the oldest go. Ordered maps, because engines choose the keys
// and this is no hot path. Not thread-safe.
class PendingPool {
 public:
  explicit PendingPool(std::size_t blocks_max) : blocks_max_(blocks_max) {}

  // The block that was dropped to make room, if one was; `block` itself where none may wait.
  std::optional<PendingBlock> Add(PendingBlock block);

  // The block of this name without content, taken out of the pool.
  std::optional<PendingBlock> TakeNameOnly(EngineHash name);
  // The blocks whose parent has this name, oldest first, taken out of the pool.
  std::vector<PendingBlock> TakeChildren(EngineHash parent);
  // Takes one tier from the newest block of this name that waits in it; false when none does.
  bool Remove(EngineHash name, std::uint8_t tier);

  // Calls `use` with every block, oldest first.
  template <typename Use>
  void ForEach(Use use) const {
    for (const auto& [age, block] : blocks_)
      use(block);
  }

  // Drops up to `count`; says how many.
  std::size_t DropOldest(std::size_t count);
  void Clear();
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }
  // Estimated heap in use.
  [[nodiscard]] std::size_t bytes() const;

 private:
  using Age = std::uint64_t;  // grows: the oldest has the smallest
  using Blocks = std::map<Age, PendingBlock>;
  using Content = std::tuple<EngineHash, EngineHash, BlockHash>;  // parent, name, block hash

  static Content ContentOf(const PendingBlock& block) {
    return {*block.parent, block.name, *block.local};
  }
  // What `block` says more of; end(): none.
  [[nodiscard]] Blocks::iterator FindSame(const PendingBlock& block);
  // The newest of this name; end(): none.
  [[nodiscard]] Blocks::iterator Newest(EngineHash name);
  PendingBlock TakeOut(Blocks::iterator it);

  std::size_t blocks_max_;
  Age next_age_ = 0;
  Blocks blocks_;
  std::set<std::pair<EngineHash, Age>> by_name_;
  std::map<Content, Age> by_content_;
};

}  // namespace kvr::index
