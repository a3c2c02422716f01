// How much of a prefix an engine with several cache groups can really reuse.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "index/hash_mix.h"
#include "index/prefix_index.h"
#include "index/rank_copy.h"
#include "model/ids.h"
#include "model/overlap.h"
#include "model/placement_event.h"
#include "model/side_group.h"
#include "model/tier.h"

namespace kvr::index {

// What is known of one side group, aside from the rank it is of.
struct SideGroupCopy {
  struct Block {
    EngineHash name{};
    unsigned tiers = 0;  // device and host_pinned, a bit each; how many copies is not kept
  };

  SideGroup about;
  std::vector<Block> blocks;
};

// The side groups of one rank, beside the main group's blocks in a PrefixIndex.
//
// Blocks of all groups that end at the same token have the same name, so a side group is a set of
// names, and the main group's events say where they are. Physical copies are counted per group,
// tier and name. A block counts as present while a copy is left on the device or in host memory;
// deeper tiers belong to no group.
//
// Whatever is not known counts as absent, so the answer may be too small, never too large; save
// that of a group with smaller blocks than the main group's only those that end where a main block
// ends can be looked at.
//
// One writer, the thread that ingests the rank's events; any number of readers.
class SideGroups {
 public:
  struct Options {
    // Distinct (group, name) pairs, and main blocks whose place is known. Beyond it new ones are
    // not remembered.
    std::size_t blocks_max = 1u << 22;
    // Main blocks that no tier holds any more and whose place is still known: engines announce a
    // block in a farther tier after they removed it from the nearer one, by its name only.
    std::size_t remembered_max = 4'096;
    std::uint64_t hash_seed = 0;
  };
  struct Stats {
    std::size_t groups = 0;
    std::size_t blocks = 0;     // (group, name) pairs with a copy
    std::uint64_t refused = 0;  // by blocks_max, since the start
  };

  // `block_size` is the main group's, in tokens, and not 0.
  SideGroups(std::uint32_t block_size, const Options& options);

  // Makes the group known, or brings what is known of it up to date.
  void Declare(const SideGroup& group) KVR_EXCLUDES(mutex_);
  // `tier` is device or host_pinned; others change nothing. The group has been declared.
  void Store(std::uint32_t group, Tier tier, std::span<const SideCopy> copies) KVR_EXCLUDES(mutex_);
  void Remove(std::uint32_t group, Tier tier, std::span<const SideCopy> copies)
      KVR_EXCLUDES(mutex_);
  // An event of the main group, or a clear, which empties all groups and keeps them known.
  void ApplyMain(const PlacementEvent& event) KVR_EXCLUDES(mutex_);
  // What PrefixIndex::CopyKnown has of the rank, before the first event of the main group.
  void LearnMain(const RankCopy& known) KVR_EXCLUDES(mutex_);
  // Events were lost: the next removal of a block is taken for that of its last copy.
  void ForgetCounts() KVR_EXCLUDES(mutex_);

  [[nodiscard]] std::vector<SideGroupCopy> Copy() const KVR_EXCLUDES(mutex_);
  // Adds what another one knew, who may have applied some of the events that come next. So from now
  // until a clear copies are not counted: every removal is that of the last one.
  void Restore(std::span<const SideGroupCopy> copy) KVR_EXCLUDES(mutex_);

  // Blocks that the rank can reuse of the prefix it holds by `overlap`, but of at most
  // `blocks_max`: an engine computes the last token of a prompt itself.
  [[nodiscard]] std::uint32_t HitOf(const RankOverlap& overlap, std::uint32_t blocks_max) const
      KVR_EXCLUDES(mutex_);

  [[nodiscard]] Stats stats() const KVR_EXCLUDES(mutex_);

 private:
  class Path;

  static constexpr std::size_t kTiers = 2;  // device and host_pinned
  using Copies = std::array<std::uint32_t, kTiers>;
  struct Group {
    SideGroup about;
    std::unordered_map<std::uint64_t, Copies, SeededHash> blocks;
  };
  // Where a main block is: behind another, or at the root.
  struct Place {
    std::optional<EngineHash> parent;
    std::uint8_t tiers = 0;  // that hold it, a bit each
  };

  using Places = std::unordered_map<std::uint64_t, Place, SeededHash>;

  Group* Find(std::uint32_t group) KVR_REQUIRES(mutex_);
  void StoreMain(const PlacementEvent& event) KVR_REQUIRES(mutex_);
  void RemoveMain(const PlacementEvent& event) KVR_REQUIRES(mutex_);
  // Null when there is no room for it.
  Place* FindOrAddPlace(EngineHash name) KVR_REQUIRES(mutex_);
  void LimitRemembered() KVR_REQUIRES(mutex_);
  static bool Has(const Group& group, Path& path, std::uint32_t end);
  // The longest prefix of at most `end` blocks of which `group` has every block.
  std::uint32_t LongestWhole(const Group& group, Path& path, std::uint32_t end) const
      KVR_REQUIRES_SHARED(mutex_);
  // Whether `group` has what it needs for a prefix of `end` blocks; else `next` is the longest
  // shorter one worth asking for.
  bool Agrees(const Group& group, Path& path, std::uint32_t end, std::uint32_t& next) const
      KVR_REQUIRES_SHARED(mutex_);

  const std::uint32_t block_size_;
  const Options options_;
  mutable SharedMutex mutex_;
  std::vector<Group> groups_ KVR_GUARDED_BY(mutex_);
  Places places_ KVR_GUARDED_BY(mutex_);
  std::deque<EngineHash> remembered_ KVR_GUARDED_BY(mutex_);  // oldest first; some held again
  std::size_t blocks_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t refused_ KVR_GUARDED_BY(mutex_) = 0;
  bool uncounted_ KVR_GUARDED_BY(mutex_) = false;
};

// The ranks of one partition that have side groups. Thread-safe. Costs those that have none one
// relaxed read.
class HybridRanks {
 public:
  // `options` are those of each rank.
  explicit HybridRanks(const SideGroups::Options& options) : options_(options) {}

  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  // Null when the rank has no side groups.
  [[nodiscard]] std::shared_ptr<SideGroups> Find(Rank rank) const KVR_EXCLUDES(mutex_);
  // The rank's, made when there is none. Where the rank's blocks are by then is read from `index`;
  // see PrefixIndex::CopyKnown.
  std::shared_ptr<SideGroups> FindOrAdd(Rank rank, const PrefixIndex& index,
                                        std::uint32_t block_size) KVR_EXCLUDES(mutex_);
  // The rank is taken for one without side groups again.
  void Drop(Rank rank) KVR_EXCLUDES(mutex_);

  // As SideGroups::HitOf; none when the rank has no side groups.
  [[nodiscard]] std::optional<std::uint32_t> HitOf(const RankOverlap& overlap,
                                                   std::uint32_t blocks_max) const;

 private:
  const SideGroups::Options options_;
  std::atomic<std::size_t> count_{0};
  mutable SharedMutex mutex_;
  std::map<Rank, std::shared_ptr<SideGroups>> ranks_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::index
