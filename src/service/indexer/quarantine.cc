#include "service/indexer/quarantine.h"

#include <utility>

#include <fmt/format.h>

namespace kvr::service {

Result<void> Quarantine::Add(RecoveredPartition partition, Nanos now) {
  std::size_t blocks = 0;
  for (const auto& [rank, recovered] : partition.ranks)
    blocks += BlocksOf(recovered);
  if (blocks > options_.blocks_max - blocks_ ||
      partition.ranks.size() > options_.ranks_max - waiting_.size()) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("recovered blocks of unregistered workers are limited to {}, and to {} "
                            "ranks",
                            options_.blocks_max, options_.ranks_max));
  }
  for (auto& [rank, recovered] : partition.ranks) {
    if (waiting_.contains(rank)) continue;
    blocks_ += BlocksOf(recovered);
    waiting_.emplace(rank,
                     Waiting{partition.partition, partition.block_size, now, std::move(recovered)});
  }
  return {};
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
