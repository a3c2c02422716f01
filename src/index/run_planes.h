// Who holds which stretch of one run.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "index/heap_bytes.h"
#include "model/tier.h"

namespace kvr::index {

// What is noted of each (slot, block) pair: a bit each, in planes. The first planes are the tiers.
inline constexpr std::size_t kEligiblePlane = kTierCount;        // see PlacementEvent::eligible
inline constexpr std::size_t kRememberedPlane = kTierCount + 1;  // in no tier, but its name is kept
inline constexpr std::size_t kPlaneCount = kTierCount + 2;

// Slots of a run are its first to its last block, counted from the root: `begin` to `end - 1`.
struct Stretch {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] std::uint32_t size() const { return end - begin; }
  [[nodiscard]] bool Has(std::uint32_t depth) const { return depth >= begin && depth < end; }
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// A slot that holds a part of the run.
struct Partial {
  std::uint32_t slot = 0;
  Stretch held;

  friend bool operator==(const Partial&, const Partial&) = default;
};

// One plane of one run to look at: a bitmap of the slots that hold the run whole, and what the
// others hold, ordered by slot and depth; neighbours of one slot neither overlap nor touch.
struct PlaneView {
  std::span<const std::uint64_t> whole;
  std::span<const Partial> parts;

  static constexpr std::uint32_t kWordBits = 64;

  // True only when nobody holds anything.
  [[nodiscard]] bool empty() const { return whole.empty() && parts.empty(); }
  [[nodiscard]] std::uint64_t Word(std::size_t w) const { return w < whole.size() ? whole[w] : 0; }
  [[nodiscard]] bool HasWhole(std::uint32_t slot) const {
    return ((Word(slot / kWordBits) >> (slot % kWordBits)) & 1u) != 0;
  }
  [[nodiscard]] std::span<const Partial> PartsOf(std::uint32_t slot) const;
  [[nodiscard]] bool HasAny(std::uint32_t slot) const {
    return HasWhole(slot) || !PartsOf(slot).empty();
  }
  // What the slot holds around `depth` in a run of `run`; empty at `depth` when it does not.
  [[nodiscard]] Stretch Around(std::uint32_t slot, std::uint32_t depth, Stretch run) const;
  [[nodiscard]] bool Has(std::uint32_t slot, std::uint32_t depth, Stretch run) const {
    return Around(slot, depth, run).size() > 0;
  }
  // Appends every slot that holds something, each once.
  void AppendSlots(std::vector<std::uint32_t>& slots) const;
  // How many blocks of `asked` the slot holds.
  [[nodiscard]] std::uint32_t Count(std::uint32_t slot, Stretch asked) const;
  [[nodiscard]] bool AnyWhole() const {
    for (const std::uint64_t word : whole) {
      if (word != 0) return true;
    }
    return false;
  }
  [[nodiscard]] std::uint32_t CountWhole() const {
    int count = 0;
    for (const std::uint64_t word : whole)
      count += std::popcount(word);
    return static_cast<std::uint32_t>(count);
  }
};

// A plane under change. `run` is always what the run is before the call, or becomes by it.
class PlaneDraft {
 public:
  [[nodiscard]] PlaneView view() const { return {whole_, parts_}; }
  void Assign(const PlaneView& from);
  void Clear();

  // How many blocks were new, or were held.
  std::uint32_t Add(std::uint32_t slot, Stretch held, Stretch run);
  std::uint32_t Remove(std::uint32_t slot, Stretch held, Stretch run);
  void Drop(std::uint32_t slot);

  // The run got longer: nobody holds what was added to `run`.
  void Lengthen(Stretch run);
  // The run is cut down to `run`.
  void Shorten(Stretch run);
  // What this plane is for the blocks of `run`, a part of the run.
  void CopyStretch(Stretch run, PlaneDraft& part) const;
  // Appends the plane of a run that follows: [run.begin, middle) and [middle, run.end).
  void Join(const PlaneView& tail, std::uint32_t middle, Stretch run);
  // An upper bound of the parts that Join would leave.
  static std::size_t PartsOfJoin(const PlaneView& head, const PlaneView& tail);

  [[nodiscard]] std::size_t bytes() const {
    return HeapBytes(whole_.capacity() * sizeof(whole_[0])) +
           HeapBytes(parts_.capacity() * sizeof(parts_[0]));
  }

 private:
  using Parts = std::vector<Partial>;

  [[nodiscard]] Parts::iterator FirstOf(std::uint32_t slot);
  void SetWhole(std::uint32_t slot);
  void ClearWhole(std::uint32_t slot) {
    whole_[slot / PlaneView::kWordBits] &= ~(std::uint64_t{1} << (slot % PlaneView::kWordBits));
  }

  std::vector<std::uint64_t> whole_;
  Parts parts_;
};

}  // namespace kvr::index
