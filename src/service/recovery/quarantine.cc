#include "service/recovery/quarantine.h"

#include <utility>

#include <fmt/format.h>

namespace kvr::service {

Result<void> Quarantine::Add(RecoveredPartition partition, Nanos now) {
  std::erase_if(partition.ranks,
                [this](const auto& entry) { return !IsFresher(entry.first, entry.second); });
  std::size_t blocks = 0;
  std::size_t replaced_blocks = 0;
  std::size_t replaced_ranks = 0;
  for (const auto& [rank, recovered] : partition.ranks) {
    blocks += BlocksOf(recovered);
    const auto known = waiting_.find(rank);
    if (known == waiting_.end()) continue;
    replaced_blocks += BlocksOf(known->second.rank);
    ++replaced_ranks;
  }
  if (blocks > options_.blocks_max - (blocks_ - replaced_blocks) ||
      partition.ranks.size() > options_.ranks_max - (waiting_.size() - replaced_ranks)) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("recovered blocks that wait are limited to {}, and to {} ranks",
                            options_.blocks_max, options_.ranks_max));
  }
  blocks_ += blocks - replaced_blocks;
  for (auto& [rank, recovered] : partition.ranks) {
    waiting_.insert_or_assign(
        rank, Waiting{partition.partition, partition.block_size, now, std::move(recovered)});
  }
  return {};
}

bool Quarantine::IsFresher(Rank rank, const RecoveredRank& recovered) const {
  const auto known = waiting_.find(rank);
  if (known == waiting_.end()) return true;
  const auto& watermark = known->second.rank.watermark;
  return !watermark || (recovered.watermark && *recovered.watermark > *watermark);
}

std::optional<RecoveredRank> Quarantine::Take(Rank rank, const Partition& partition,
                                              std::uint32_t block_size, Nanos registered) {
  const auto found = waiting_.find(rank);
  if (found == waiting_.end()) return std::nullopt;
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  blocks_ -= BlocksOf(waiting.rank);
  if (waiting.partition != partition || waiting.block_size != block_size ||
      registered - waiting.since >= options_.grace) {
    return std::nullopt;
  }
  return std::move(waiting.rank);
}

std::size_t Quarantine::DropExpired(Nanos now) {
  return std::erase_if(waiting_, [&](const auto& entry) {
    if (now - entry.second.since < options_.grace) return false;
    blocks_ -= BlocksOf(entry.second.rank);
    return true;
  });
}

}  // namespace kvr::service
