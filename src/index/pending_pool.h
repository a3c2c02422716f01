// Blocks of one rank that have no place yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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

// One block a name: a second announcement adds its tiers, replaces the content if it brings one,
// and makes the block the newest. All that bring the same content have to be eligible for it to be.
// Beyond `blocks_max` the oldest go. Ordered maps, because engines choose the keys and this is no
// hot path. Not thread-safe.
class PendingPool {
 public:
  explicit PendingPool(std::size_t blocks_max) : blocks_max_(blocks_max) {}

  // How many blocks were dropped to make room: 0 or 1.
  std::size_t Add(PendingBlock block);

  // The block of this name, taken out of the pool.
  std::optional<PendingBlock> Take(EngineHash name);
  // The blocks whose parent has this name, oldest first, taken out of the pool.
  std::vector<PendingBlock> TakeChildren(EngineHash parent);
  // Takes one tier from the block of this name; false when it does not wait in that tier.
  bool Remove(EngineHash name, std::uint8_t tier);

  // Calls `use` with every block.
  template <typename Use>
  void ForEach(Use use) const {
    for (const auto& [name, waiting] : by_name_)
      use(waiting.block);
  }

  // Drops up to `count`; says how many.
  std::size_t DropOldest(std::size_t count);
  void Clear();
  [[nodiscard]] std::size_t size() const { return by_name_.size(); }
  // Estimated heap in use.
  [[nodiscard]] std::size_t bytes() const;

 private:
  using Age = std::uint64_t;  // grows: the oldest has the smallest
  struct Waiting {
    PendingBlock block;
    Age age = 0;
  };

  Waiting TakeOut(std::map<EngineHash, Waiting>::iterator it);

  std::size_t blocks_max_;
  Age next_age_ = 0;
  std::map<EngineHash, Waiting> by_name_;
  std::map<Age, EngineHash> by_age_;
  std::map<std::pair<EngineHash, Age>, EngineHash> by_parent_;
};

}  // namespace kvr::index
