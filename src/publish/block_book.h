// What one rank holds, and who says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "publish/block_table.h"
#include "publish/mutation.h"
#include "publish/snapshot.h"

namespace kvr::publish {

// Merges the events of several sources of one rank, such as an engine and a block manager beside
// it, into the events of the rank: a block that several hold is stored once, by the first, and
// removed once, by the last. Else events of a lone source pass as they are, repeated stores too, so
// that a router which has forgotten a block learns of it again.
//
// Whether a block is eligible is decided as in an index (see PrefixIndex), from the stores of all
// sources: one that another source's was told for is told again when it makes the block ineligible.
//
// A source holds a block in a tier or does not; copies within a source are counted by whoever
// normalises its events. A removal of a block that nobody was known to hold passes: to forget too
// much is safe. A clear of a source takes what it alone held.
//
// A held name that comes with another content is removed first, in every tier and whoever holds it:
// a snapshot has one content of a name, and which of two a later removal means could not be told.
// So of a block that an engine without salts in its names holds under two of them the later counts.
//
// Stores by name only become stores with content, which is known from an earlier store in any tier
// and kept for the last `remembered_max` blocks that nobody holds any more. What was never told is
// dropped and counted.
//
// Not thread-safe. Allocates nothing once warm, but for the table of blocks as it grows.
class BlockBook {
 public:
  static constexpr std::size_t kSourcesMax = 8;

  struct Options {
    // Blocks with a content, remembered ones included, which give way to held ones. Beyond it
    // blocks are not told, nor what their store says behind them, and snapshots are incomplete
    // until the rank is cleared: what nobody counts, nobody could take back.
    std::size_t blocks_max = std::size_t{1} << 24;
    std::size_t remembered_max = 4'096;
    // Of a run of a snapshot, and of a removal that a clear of one of several sources becomes.
    std::size_t run_blocks_max = 128;

    [[nodiscard]] Result<void> Validate() const;
  };

  struct Stats {
    std::uint64_t shared_stores = 0;     // blocks: another source had told of them
    std::uint64_t held_removals = 0;     // blocks: another source still holds them
    std::uint64_t unknown_removals = 0;  // blocks: nobody was known to hold them
    std::uint64_t unknown_content = 0;   // blocks stored by a name that was never told
    std::uint64_t renamed = 0;           // blocks: a known name came with another content
    std::uint64_t uncounted = 0;         // blocks beyond blocks_max
  };

  explicit BlockBook(const Options& options);

  // Applies what `source`, below kSourcesMax, says and hands on what is left of it. All events are
  // of one rank.
  void Apply(std::size_t source, const Mutation& mutation, MutationSink& out);

  // What is held, as runs whose parents come before their children; `cursor` and `rank` are the
  // caller's to set. O(blocks).
  [[nodiscard]] Snapshot Build() const;

  // Whether the source told of a block since it was last cleared.
  [[nodiscard]] bool Knows(std::size_t source) const { return (sources_ >> source & 1u) != 0; }
  // Nothing that is held was left out for want of room.
  [[nodiscard]] bool complete() const { return missing_ == 0; }
  [[nodiscard]] std::size_t blocks() const { return held_; }
  [[nodiscard]] const std::array<std::size_t, kTierCount>& blocks_in() const { return held_in_; }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  void Store(std::size_t source, const Mutation& mutation, MutationSink& out);
  void StoreNames(std::size_t source, const Mutation& mutation, MutationSink& out);
  void Remove(std::size_t source, const Mutation& mutation, MutationSink& out);
  void Clear(std::size_t source, const Mutation& mutation, MutationSink& out);
  // The source holds the block of the entry. Whether that has to be told.
  [[nodiscard]] bool Hold(std::size_t source, Tier tier, bool eligible, BlockEntry& entry);
  // Tells that the block has left every tier, whoever held it.
  void TellGone(const Mutation& store, BlockEntry& entry, MutationSink& out);
  // Whether the removal has to be told.
  bool Release(std::size_t source, Tier tier, EngineHash name);
  // Removals of names_, in pieces.
  void TellRemoved(const Mutation& cause, Tier tier, MutationSink& out);

  const Options options_;
  BlockTable table_;
  std::size_t held_ = 0;                           // entries that somebody holds
  std::array<std::size_t, kTierCount> held_in_{};  // ... in each tier
  SourceSet sources_ = 0;                          // that told of a block since their last clear
  std::uint64_t missing_ = 0;  // blocks beyond the limit since the last clear of the rank
  Stats stats_;

  RecentNames remembered_;

  std::vector<PlacedBlock> blocks_;  // of the store at hand
  std::vector<EngineHash> names_;    // of the removal at hand
};

}  // namespace kvr::publish
