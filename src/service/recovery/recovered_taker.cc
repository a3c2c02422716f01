#include "service/recovery/recovered_taker.h"

#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/log.h"

namespace kvr::service {

namespace {

// As one line, whatever is in it.
std::string Quoted(std::string_view name) {
  std::string quoted;
  AppendJsonString(quoted, name);
  return quoted;
}

}  // namespace

RecoveryCounts::RecoveryCounts(metrics::Registry& registry, const std::string& source)
    : bytes(registry.AddCounter("kvr_recovery_bytes_total",
                                "Bytes of dumps read to begin with, by where they came from",
                                {{"source", source}})),
      long_events(registry.AddCounter("kvr_recovery_events_rejected_total",
                                      "Events of dumps that were not used, by reason",
                                      {{"source", source}, {"reason", "too_large"}})) {
  for (std::size_t i = 0; i < dumps_.size(); ++i) {
    dumps_[i] = &registry.AddCounter(
        "kvr_recovery_dumps_total", "Dumps asked for to begin with, by outcome",
        {{"source", source}, {"outcome", std::string(kDumpOutcomeNames[i])}});
  }
  for (std::size_t i = 0; i < rejects_.size(); ++i) {
    rejects_[i] =
        &registry.AddCounter("kvr_recovery_partitions_rejected_total",
                             "Partitions of dumps that were not used, by reason",
                             {{"source", source}, {"reason", std::string(kDumpRejectNames[i])}});
  }
}

void RecoveredTaker::Take(RecoveredPartition partition) {
  const std::string name =
      fmt::format("{}:{}", partition.partition.model_name, partition.partition.routing_group);
  DropHybridRanks(name, partition);
  const std::size_t its_ranks = partition.ranks.size();
  const std::size_t its_blocks = partition.blocks;
  const auto followed = streams_.Recover(std::move(partition));
  if (!followed) {
    Reject(name,
           followed.error().code == ErrorCode::kTooLarge ? DumpReject::kTooLarge
                                                         : DumpReject::kBlockSize,
           followed.error().message);
    return;
  }
  if (*followed > 0) {
    KVR_INFO("{}: {} ranks of {} are passed over, they have events of their own", who_, *followed,
             Quoted(name));
  }
  ++partitions_;
  ranks_ += its_ranks - *followed;
  blocks_ += its_blocks;
}

void RecoveredTaker::DropHybridRanks(std::string_view name, RecoveredPartition& partition) const {
  const std::size_t dropped = std::erase_if(partition.ranks, [&partition](const auto& entry) {
    if (entry.second.sides.empty()) return false;
    partition.blocks -= BlocksOf(entry.second);
    return true;
  });
  if (dropped > 0) {
    KVR_INFO("{}: {} ranks of {} are of hybrid models and begin without it", who_, dropped,
             Quoted(name));
  }
}

void RecoveredTaker::Reject(std::string_view name, DumpReject reason, std::string_view detail) {
  counts_.Count(reason);
  KVR_WARN("{}: partition {} is not used ({}): {}", who_, Quoted(name), DumpRejectName(reason),
           detail);
}

void RecoveredTaker::PassOver(std::string_view name, std::size_t events) {
  counts_.long_events.Add(events);
  KVR_WARN("{}: {} events of partition {} are too long and not used; no rank of it is exact", who_,
           events, Quoted(name));
}

}  // namespace kvr::service
