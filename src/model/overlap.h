// The answer of an index: who holds how much of one request.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"
#include "model/tier.h"

namespace kvr {

// Leading request blocks one rank holds. `blocks[tier]` counts the blocks matched in that tier
// beyond where the tier before it ended; their sum is the depth of the whole match.
struct RankOverlap {
  Rank rank;
  std::array<std::uint32_t, kTierCount> blocks{};
  EngineHash last{};  // the rank's own name of the deepest matched block; meaningless at depth 0

  // Makes the match end after `depth` blocks, if it is deeper; `last` is then meaningless.
  void CutTo(std::uint32_t depth) {
    for (std::uint32_t& held : blocks) {
      held = std::min(held, depth);
      depth -= held;
    }
  }

  [[nodiscard]] std::uint32_t device() const { return blocks[0]; }
  [[nodiscard]] std::uint32_t depth() const {
    return blocks[0] + blocks[1] + blocks[2] + blocks[3];
  }
};

// Dense by slot and reusable: a second query into the same object allocates nothing once it has
// seen the largest slot. Not thread-safe: one object a thread.
class OverlapScores {
 public:
  // Slots with a depth of at least 1, in no order.
  [[nodiscard]] std::span<const RankSlot> scored() const { return scored_; }
  // How many ranks hold the first i+1 blocks in the device tier. Empty unless asked for.
  [[nodiscard]] std::span<const std::uint32_t> device_holders() const { return device_holders_; }

  // The overlap at `slot`; all zero when the rank matched nothing or the slot is not in use.
  [[nodiscard]] const RankOverlap& at(RankSlot slot) const {
    static constexpr RankOverlap kNothing{};
    const std::size_t word = Raw(slot) / kWordBits;
    if (word >= is_scored_.size() || (is_scored_[word] >> Raw(slot) % kWordBits & 1) == 0)
      return kNothing;
    return by_slot_[Raw(slot)];
  }

  // For indexes only. Empties the answer for a query over slots below `slots`.
  void Reset(std::size_t slots) {
    is_scored_.assign((slots + kWordBits - 1) / kWordBits, 0);
    scored_.clear();
    device_holders_.clear();
    if (by_slot_.size() < slots) by_slot_.resize(slots);
  }
  // For indexes only. The entry to fill for a slot, with no blocks yet; call once a slot and query.
  RankOverlap& Score(RankSlot slot, Rank rank) {
    is_scored_[Raw(slot) / kWordBits] |= std::uint64_t{1} << Raw(slot) % kWordBits;
    scored_.push_back(slot);
    RankOverlap& entry = by_slot_[Raw(slot)];
    entry.rank = rank;
    entry.blocks = {};
    return entry;
  }
  // For indexes only. The entry of a slot that Score was called for.
  RankOverlap& Entry(RankSlot slot) { return by_slot_[Raw(slot)]; }
  std::vector<std::uint32_t>& mutable_device_holders() { return device_holders_; }
  // For indexes only. Room to work in that is kept between queries; its content is not.
  std::vector<std::uint64_t>& scratch() { return scratch_; }

 private:
  static constexpr std::size_t kWordBits = 64;

  std::vector<RankOverlap> by_slot_;      // of slots that are not scored: left from earlier queries
  std::vector<std::uint64_t> is_scored_;  // a bit a slot
  std::vector<RankSlot> scored_;
  std::vector<std::uint32_t> device_holders_;
  std::vector<std::uint64_t> scratch_;
};

}  // namespace kvr
