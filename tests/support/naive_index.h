// The reference model: what an index has to answer, in the simplest words.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "index/options.h"
#include "index/prefix_index.h"

namespace kvr::index {

// For tests: every answer by walking ordered sets, one lock around all. It never forgets a chain it
// has seen, so its memory only grows.
class NaiveIndex final : public PrefixIndex {
 public:
  explicit NaiveIndex(const IndexOptions& options) : options_(options) {}

  Result<RankSlot> AddRank(Rank rank) override KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<RankSlot> FindRank(Rank rank) const override KVR_EXCLUDES(mutex_);
  bool RemoveRank(Rank rank) override KVR_EXCLUDES(mutex_);
  ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override KVR_EXCLUDES(mutex_);
  void Match(std::span<const BlockHash> blocks, const MatchOptions& options,
             OverlapScores& scores) const override KVR_EXCLUDES(mutex_);
  void FindBlocks(std::span<const SequenceHash> sequence,
                  std::vector<BlockHash>& blocks) const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<Rank> Ranks() const override KVR_EXCLUDES(mutex_);
  void CopyRank(Rank rank, RankCopy& copy) const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] IndexStats Stats() const override KVR_EXCLUDES(mutex_);
  [[nodiscard]] RankStats StatsOf(RankSlot slot) const override KVR_EXCLUDES(mutex_);

  // What any index may answer for the device tier of one rank: at most the longest prefix it holds;
  // at least the longest prefix whose blocks were each stored under a reachable parent and had no
  // ancestor removed since.
  struct Bounds {
    std::uint32_t lower = 0;
    std::uint32_t upper = 0;
  };
  [[nodiscard]] Bounds DeviceBounds(Rank rank, std::span<const BlockHash> blocks) const
      KVR_EXCLUDES(mutex_);

 private:
  // A chain of block hashes from the root, as a number. 0 is the root itself.
  using Chain = std::size_t;
  using Tiers = unsigned;  // one bit a tier

  struct Known {
    EngineHash name{};
    Tiers tiers = 0;  // none: only the name is remembered
    bool eligible = false;
    std::uint64_t removed_by = 0;  // number of the event that last removed it
  };
  struct Waiting {
    EngineHash name{};
    std::optional<PlacedBlock> content;  // none: only the name was announced
    std::optional<EngineHash> parent;
    Tiers tiers = 0;
    bool eligible = false;  // with content
  };
  struct Claim {
    bool by_name = false;
    bool eligible = false;
  };
  struct RankBlocks {
    Rank rank;
    std::map<Chain, Known> known;
    std::map<EngineHash, std::vector<Chain>> names;  // newest last
    std::vector<Chain> remembered;                   // chains without a tier, oldest first
    std::vector<Waiting> waiting;                    // oldest first
    std::set<Chain> reachable;                       // device tier
    std::uint64_t events = 0;
  };

  Chain Extend(Chain parent, BlockHash local) KVR_REQUIRES(mutex_);
  std::optional<Chain> Find(Chain parent, BlockHash local) const KVR_REQUIRES(mutex_);
  static std::optional<Chain> Named(const RankBlocks& blocks, EngineHash name, bool held_only);

  ApplyResult Store(RankBlocks& blocks, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  ApplyResult Remove(RankBlocks& blocks, const PlacementEvent& event) KVR_REQUIRES(mutex_);
  // True when something changed.
  bool Hold(RankBlocks& blocks, Chain chain, EngineHash name, Tiers tiers, Claim claim)
      KVR_REQUIRES(mutex_);
  bool HoldOne(RankBlocks& blocks, Chain chain, EngineHash name, Tiers tiers, Claim claim)
      KVR_REQUIRES(mutex_);
  void Drop(RankBlocks& blocks, Chain chain, Tier tier) KVR_REQUIRES(mutex_);
  void Forget(RankBlocks& blocks, Chain chain) KVR_REQUIRES(mutex_);
  void Wait(RankBlocks& blocks, Waiting block, ApplyResult& result) KVR_REQUIRES(mutex_);
  bool Extends(Chain chain, Chain prefix) const KVR_REQUIRES(mutex_);

  const IndexOptions options_;
  mutable Mutex mutex_;
  std::map<std::pair<Chain, BlockHash>, Chain> chains_ KVR_GUARDED_BY(mutex_);
  std::vector<std::pair<Chain, BlockHash>> links_ KVR_GUARDED_BY(mutex_){{}};  // chain → its end
  std::vector<std::optional<RankBlocks>> slots_ KVR_GUARDED_BY(mutex_);
  std::uint64_t pending_dropped_ KVR_GUARDED_BY(mutex_) = 0;
  std::uint64_t name_conflicts_ KVR_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvr::index
