// What fuzz targets of dumps do with what is read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "index/index_set.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/quarantine.h"
#include "service/recovery/recovered_rank.h"

namespace kvr::service {

inline void CheckRank(const RecoveredRank& rank) {
  std::size_t at = 0;
  for (const index::RankCopy::Run& run : rank.held.runs) {
    KVR_CHECK(run.begin == at && run.end > run.begin && run.tiers != 0);
    at = run.end;
  }
  KVR_CHECK(at == rank.held.blocks.size());
  KVR_CHECK(at > 0 || rank.watermark || !rank.sides.empty());
  KVR_CHECK(rank.watermark || !rank.digest);
}

inline std::string TextOf(const RecoveredPartition& partition) {
  std::string text = fmt::format("{}|{}|{}", partition.partition.model_name,
                                 partition.partition.routing_group, partition.block_size);
  for (const auto& [rank, recovered] : partition.ranks) {
    text += fmt::format(" {}.{}@{}", Raw(rank.worker), rank.dp_rank,
                        recovered.watermark ? fmt::to_string(*recovered.watermark) : "-");
    if (recovered.digest) text += fmt::format("={:x}", *recovered.digest);
    for (const index::RankCopy::Run& run : recovered.held.runs) {
      text +=
          fmt::format(" {:x}:{}", run.tiers, run.parent ? fmt::to_string(Raw(*run.parent)) : "-");
      for (std::size_t i = run.begin; i < run.end; ++i) {
        text += fmt::format(",{}/{}", Raw(recovered.held.blocks[i].engine),
                            Raw(recovered.held.blocks[i].local));
      }
      if (run.eligible) text += " eligible";
    }
    for (const index::SideGroupCopy& group : recovered.sides) {
      text += fmt::format(" group {}", group.about.group);
      for (const index::SideGroupCopy::Block& block : group.blocks)
        text += fmt::format(",{}@{}", Raw(block.name), block.tiers);
    }
  }
  return text;
}

// Keeps what comes, and says it as text.
struct DumpRecorder final : DumpReader::Sink {
  void Take(RecoveredPartition partition) override {
    KVR_CHECK(partition.block_size > 0 && !partition.partition.model_name.empty());
    std::size_t blocks = 0;
    for (const auto& [rank, recovered] : partition.ranks) {
      CheckRank(recovered);
      KVR_CHECK(long_events == 0 || !recovered.watermark);
      blocks += BlocksOf(recovered);
    }
    KVR_CHECK(blocks == partition.blocks);
    long_events = 0;
    lines.push_back(TextOf(partition));
    taken.push_back(std::move(partition));
  }
  void Reject(std::string_view name, DumpReject reason, std::string_view detail) override {
    KVR_CHECK(!detail.empty() || reason == DumpReject::kPeerError);
    ++rejected;
    lines.push_back(fmt::format("{}: {} {}", name, DumpRejectName(reason), detail));
  }
  void PassOver(std::string_view name, std::size_t events) override {
    KVR_CHECK(events > 0);
    long_events = events;
    lines.push_back(fmt::format("{}: {} events", name, events));
  }

  std::vector<std::string> lines;
  std::vector<RecoveredPartition> taken;
  std::size_t rejected = 0;
  std::size_t long_events = 0;  // of the partition that comes next
};

// Puts what was read through the quarantine into indexes, as registrations would.
inline void Rebuild(std::vector<RecoveredPartition> partitions, index::IndexSet& indexes) {
  for (RecoveredPartition& partition : partitions) {
    const auto made = indexes.GetOrCreate(partition.partition, partition.block_size);
    if (!made) continue;  // a second partition of the name, with another block size
    index::PartitionIndex& index = **made;
    std::vector<Rank> ranks;
    for (const auto& entry : partition.ranks)
      ranks.push_back(entry.first);
    Quarantine quarantine({});
    KVR_CHECK(quarantine.Add(std::move(partition), Nanos{0}).has_value());
    for (const Rank rank : ranks) {
      const auto recovered = quarantine.Take(rank, index.partition, index.block_size, Nanos{0});
      KVR_CHECK(recovered.has_value());
      if (const auto slot = index.index->AddRank(rank); slot) {
        ApplyRecovered(*recovered, rank, index, *slot);
      }
    }
    KVR_CHECK(quarantine.ranks() == 0 && quarantine.blocks() == 0);
  }
}

}  // namespace kvr::service
