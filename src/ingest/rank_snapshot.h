// All that a rank holds, as its publisher told it at once, gathered aside and put in the place of
// what was known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "index/prefix_index.h"
#include "index/rank_copy.h"
#include "model/ids.h"
#include "model/placement_event.h"

namespace kvr::ingest {

// Events of one rank are applied to nothing; what they come to replaces what an index knows of the
// rank. Not thread-safe.
class RankSnapshot {
 public:
  // `bytes_max` bounds the heap in use, about 40 bytes a block.
  explicit RankSnapshot(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether there is room for so many blocks. Makes it, so that none is copied as they come.
  bool Reserve(std::uint64_t blocks);
  // Applies the event. Hash-only stores are not for here. False when there is no room for it; what
  // was gathered is then of no use.
  bool Add(const PlacementEvent& event);

  [[nodiscard]] std::size_t bytes() const;
  // Blocks that some tier holds.
  [[nodiscard]] std::size_t blocks() const { return held_; }

  using Applied = std::function<void(const PlacementEvent&, const index::ApplyResult&)>;
  // Makes `index` hold of the rank what was gathered and nothing else, eligible or not as it was
  // told, whatever the index heard before: first goes what was not
  // told, then comes what is missing, but for the tiers of what stays, which come before. So what
  // is in both is found all the while, and nothing is found that is in neither. An index that has
  // more of the rank than it tells, such as blocks behind one that went, is cleared of it first.
  // Queries and other updates get their turn in between. `applied` hears of every event. Once.
  void ReplaceIn(index::PrefixIndex& index, RankSlot slot, Rank rank, const Applied& applied);

 private:
  struct Entry {
    EngineHash name{};
    BlockHash local{};
    EngineHash parent{};
    std::uint8_t tiers = 0;        // that hold it, a bit each; none: it is gone
    std::uint8_t known_tiers = 0;  // in which the index has it
    bool has_parent : 1 = false;
    bool eligible : 1 = false;
    bool kept : 1 = false;  // the index has it in this place, behind none that has to go
    bool known_eligible : 1 = false;

    // Whether it is there, with this content and in this place.
    [[nodiscard]] bool Is(BlockHash content, std::optional<EngineHash> before) const {
      return tiers != 0 && local == content && has_parent == before.has_value() &&
             parent == before.value_or(EngineHash{});
    }
  };
  static_assert(sizeof(Entry) == 32);
  using Place = std::uint32_t;  // in entries_, counted from 1; 0: none

  class Changes;

  bool Store(const PlacementEvent& event);
  void Remove(const PlacementEvent& event);
  void Clear();
  [[nodiscard]] Entry* Find(EngineHash name);
  // The cell of the name in places_, or where it would go.
  [[nodiscard]] std::size_t CellOf(EngineHash name) const;
  // Room for so many entries.
  bool Grow(std::size_t entries);
  void MarkKept(const index::RankCopy& known);
  void RemoveOthers(const index::RankCopy& known, Changes& changes);
  // What is missing of the blocks that are kept, or said of them in error.
  void StoreInKept(Changes& changes);
  void StoreOthers(Changes& changes);

  const std::size_t bytes_max_;
  std::vector<Entry> entries_;  // a block comes behind its parent unless it is a stray
  std::vector<Place> places_;   // open addressing, a power of two, at most half used
  std::size_t held_ = 0;
};

}  // namespace kvr::ingest
