#include "service/agent/publishing_index.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "index/rank_copy.h"
#include "model/overlap.h"

namespace kvr::service {

PublishingIndex::PublishingIndex(std::vector<PublishedRank*> ranks, WorkerId worker,
                                 std::size_t source, const index::HybridRanks& sides)
    : ranks_(std::move(ranks)), worker_(worker), source_(source), sides_(sides) {}

bool PublishingIndex::HasSideGroups(const PublishedRank& rank) const {
  return !sides_.empty() && sides_.Find({worker_, rank.rank().dp_rank}) != nullptr;
}

std::optional<RankSlot> PublishingIndex::FindRank(Rank rank) const {
  if (rank.worker != worker_) return std::nullopt;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->rank().dp_rank == rank.dp_rank) return RankSlot{static_cast<std::uint32_t>(i)};
  }
  return std::nullopt;
}

Result<RankSlot> PublishingIndex::AddRank(Rank rank) {
  if (const auto slot = FindRank(rank)) return *slot;
  return Fail(ErrorCode::kNotFound, fmt::format("nothing is published for worker {} rank {}",
                                                Raw(rank.worker), rank.dp_rank));
}

bool PublishingIndex::RemoveRank(Rank rank) {
  const auto slot = FindRank(rank);
  if (!slot) return false;
  PlacementEvent clear;
  clear.kind = PlacementKind::kCleared;
  clear.rank = rank;
  Apply(*slot, clear);
  return true;
}

index::ApplyResult PublishingIndex::Apply(RankSlot slot, const PlacementEvent& event) {
  PublishedRank& rank = *ranks_[Raw(slot)];
  rank.Apply(source_, event);
  if (event.kind == PlacementKind::kCleared) rank.EndList(source_);
  return {};
}

void PublishingIndex::EndBatch(std::span<const RankSlot> touched) {
  for (const RankSlot slot : touched) {
    PublishedRank& rank = *ranks_[Raw(slot)];
    if (!HasSideGroups(rank)) {
      rank.Accept(source_);
    } else if (rank.Refuse(source_)) {
      KVR_WARN(
          "worker {} rank {} has side groups, which are not published, so nothing of it is; let "
          "routers follow the engine directly",
          Raw(worker_), rank.rank().dp_rank);
    }
    rank.EndList(source_);
  }
}

void PublishingIndex::Match(std::span<const BlockHash> /*blocks*/,
                            const index::MatchOptions& /*options*/, OverlapScores& scores) const {
  scores.Reset(0);
}

void PublishingIndex::FindBlocks(std::span<const SequenceHash> /*sequence*/,
                                 std::vector<BlockHash>& blocks) const {
  blocks.clear();
}

void PublishingIndex::Dump(const std::function<void(const PlacementEvent&)>& /*emit*/) const {}

void PublishingIndex::CopyRank(Rank /*rank*/, index::RankCopy& copy) const {
  copy.runs.clear();
  copy.blocks.clear();
}

index::IndexStats PublishingIndex::Stats() const {
  index::IndexStats stats;
  stats.ranks = ranks_.size();
  for (const PublishedRank* const rank : ranks_)
    stats.nodes += rank->stats().publisher.blocks;
  return stats;
}

index::RankStats PublishingIndex::StatsOf(RankSlot slot) const {
  index::RankStats stats;
  stats.rank = {worker_, ranks_[Raw(slot)]->rank().dp_rank};
  const auto held = ranks_[Raw(slot)]->stats().publisher.blocks_in;
  std::copy(held.begin(), held.end(), stats.blocks.begin());
  return stats;
}

}  // namespace kvr::service
