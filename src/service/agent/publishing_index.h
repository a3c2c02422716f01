// What an agent has in the place of an index.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "index/prefix_index.h"
#include "index/side_groups.h"
#include "ingest/batch_listener.h"
#include "service/agent/published_rank.h"

namespace kvr::service {

// Hands on what ingest would have an index apply, so that streams are followed, put in order and
// repaired by one code whoever wants their events. It answers no match; what a rank holds its
// publisher knows.
//
// A clear is told at once, also one that no message brought. Thread-safe as PrefixIndex says. A
// rank that goes is cleared for its followers.
//
// What a rank with side groups can reuse of its main group's blocks no event says, so that its
// followers would expect too much: nothing of it is published.
class PublishingIndex final : public index::PrefixIndex, public ingest::BatchListener {
 public:
  // `ranks`, which must outlive the index, get the events of the same ranks of `worker`, under the
  // number `source`: several workers may tell of what is one worker's to its followers.
  // `sides`, which must outlive it too, knows the worker's ranks that have side groups.
  PublishingIndex(std::vector<PublishedRank*> ranks, WorkerId worker, std::size_t source,
                  const index::HybridRanks& sides);

  // kNotFound when the rank is none of those given.
  Result<RankSlot> AddRank(Rank rank) override;
  [[nodiscard]] std::optional<RankSlot> FindRank(Rank rank) const override;
  bool RemoveRank(Rank rank) override;
  index::ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override;
  void EndBatch(std::span<const RankSlot> touched) override;
  void Match(std::span<const BlockHash> blocks, const index::MatchOptions& options,
             OverlapScores& scores) const override;
  void FindBlocks(std::span<const SequenceHash> sequence,
                  std::vector<BlockHash>& blocks) const override;
  // Nothing: followers take snapshots.
  void Dump(const std::function<void(const PlacementEvent&)>& emit) const override;
  void CopyRank(Rank rank, index::RankCopy& copy) const override;
  [[nodiscard]] index::IndexStats Stats() const override;
  // Of the published rank, whichever source told of it.
  [[nodiscard]] index::RankStats StatsOf(RankSlot slot) const override;

 private:
  [[nodiscard]] bool HasSideGroups(const PublishedRank& rank) const;

  const std::vector<PublishedRank*> ranks_;  // by slot
  const WorkerId worker_;
  const std::size_t source_;
  const index::HybridRanks& sides_;
};

}  // namespace kvr::service
