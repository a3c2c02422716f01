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
// removed once, by the last. Events of a lone source pass as they are, repeated stores too, so that
// a router which has forgotten a block learns of it again.
//
// A source holds a block in a tier or does not; copies within a source are counted by whoever
// normalises its events. A removal of a block that nobody was known to hold passes: to forget too
// much is safe. A clear of a source takes what it alone held.
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
    // Blocks with a content, remembered ones included. Beyond it stores and removals pass
    // unmerged and snapshots are incomplete.
    std::size_t blocks_max = std::size_t{1} << 24;
    std::size_t remembered_max = 4'096;
    std::size_t run_blocks_max = 128;  // of a run of a snapshot

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

  [[nodiscard]] std::size_t blocks() const { return held_; }
  [[nodiscard]] const std::array<std::size_t, kTierCount>& blocks_in() const { return held_in_; }
  [[nodiscard]] const Stats& stats() const { return stats_; }

 private:
  void Store(std::size_t source, const Mutation& mutation, MutationSink& out);
  void StoreNames(std::size_t source, const Mutation& mutation, MutationSink& out);
  void Remove(std::size_t source, const Mutation& mutation, MutationSink& out);
  void Clear(std::size_t source, const Mutation& mutation, MutationSink& out);
  // Whether the store of the block has to be told.
  bool Hold(std::size_t source, const Mutation& mutation, const PlacedBlock& block,
            std::optional<EngineHash> parent);
  // Whether the removal has to be told.
  bool Release(std::size_t source, Tier tier, EngineHash name);
  // The removals of a clear that is not the rank's.
  void TellRemoved(const Mutation& clear, Tier tier, MutationSink& out);

  const Options options_;
  BlockTable table_;
  std::size_t held_ = 0;                           // entries that somebody holds
  std::array<std::size_t, kTierCount> held_in_{};  // ... in each tier
  SourceSet sources_ = 0;                          // that ever told of a block
  std::uint64_t missing_ = 0;  // blocks beyond the limit since the last clear of the rank
  Stats stats_;

  RecentNames remembered_;

  std::vector<PlacedBlock> blocks_;  // of the store at hand
  std::vector<EngineHash> names_;    // of the removal at hand
};

}  // namespace kvr::publish
