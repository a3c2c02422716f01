#include "service/recovery/binary_dump_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "service/recovery/dump_records.h"

namespace kvr::service {
namespace {

constexpr unsigned kAllTiers = (1u << kTierCount) - 1;
constexpr unsigned kSideTiers = index::TierBit(Tier::kDevice) | index::TierBit(Tier::kHostPinned);

// A time stamp, in ms, that fits into Nanos.
constexpr std::uint64_t kYearsMillis = 9'000'000'000'000;

constexpr std::size_t kSideGroupsMax = 256;  // of one rank; no engine has so many

tl::unexpected<Error> Malformed(std::string message) {
  return Fail(ErrorCode::kCorrupt, std::move(message));
}

bool ReadText(PayloadCursor& cursor, std::string& text) {
  std::uint32_t length = 0;
  std::string_view bytes;
  if (!cursor.Read(length) || !cursor.Read(length, bytes)) return false;
  text = bytes;
  return true;
}

}  // namespace

Result<void> BinaryDumpReader::Put(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > options_.dump_bytes_max) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("the dump is longer than {} bytes", options_.dump_bytes_max));
  }
  return chunks_.Put(
      bytes, [this](std::uint32_t kind, std::string_view payload) { return Take(kind, payload); });
}

Result<void> BinaryDumpReader::Finish() {
  return chunks_.Finish();
}

Result<void> BinaryDumpReader::Take(std::uint32_t kind, std::string_view payload) {
  const auto known = static_cast<DumpChunk>(kind);
  if (known >= DumpChunk::kPartition && known <= DumpChunk::kEnd) return TakeKnown(known, payload);
  if (known == kAboutChunk) return TakeAbout(payload);
  if (known == kDigestChunk && in_partition_) TakeRejecting(known, payload);
  if ((kind & kOptionalChunk) != 0) return {};
  return Fail(ErrorCode::kUnprocessable,
              fmt::format("the dump has chunks of kind {}, which this program cannot read", kind));
}

Result<void> BinaryDumpReader::TakeKnown(DumpChunk kind, std::string_view payload) {
  const bool outside = kind == DumpChunk::kPartition || kind == DumpChunk::kEnd;
  if (outside == in_partition_) {
    return Malformed(fmt::format("the dump has a chunk of kind {} where none can be",
                                 static_cast<std::uint32_t>(kind)));
  }
  if (kind == DumpChunk::kPartition) return BeginPartition(payload);
  if (kind == DumpChunk::kEnd) return CheckPartitions(payload);
  TakeRejecting(kind, payload);
  in_partition_ = kind != DumpChunk::kPartitionEnd;
  return {};
}

void BinaryDumpReader::TakeRejecting(DumpChunk kind, std::string_view payload) {
  if (rejected_) return;
  const auto taken = TakeInPartition(kind, payload);
  if (taken) return;
  rejected_ = true;
  rank_ = nullptr;
  const Partition name = std::exchange(partition_, {}).partition;
  sink_.Reject(
      fmt::format("{}:{}", name.model_name, name.routing_group),
      taken.error().code == ErrorCode::kTooLarge ? DumpReject::kTooLarge : DumpReject::kMalformed,
      taken.error().message);
}

Result<void> BinaryDumpReader::TakeAbout(std::string_view payload) {
  PayloadCursor cursor(payload);
  std::uint64_t written = 0;
  // Later versions may say more.
  if (!cursor.Read(written) || written > kYearsMillis) {
    return Malformed("the dump does not say when it was written");
  }
  return sink_.Begin(Millis{static_cast<std::int64_t>(written)});
}

Result<void> BinaryDumpReader::BeginPartition(std::string_view payload) {
  if (++partitions_ > options_.partitions_max) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("the dump has more than {} partitions", options_.partitions_max));
  }
  partition_ = {};
  rank_ = nullptr;
  rejected_ = false;
  PayloadCursor cursor(payload);
  Partition& names = partition_.partition;
  if (!cursor.Read(partition_.block_size) || !ReadText(cursor, names.model_name) ||
      !ReadText(cursor, names.routing_group) || !cursor.at_end()) {
    return Malformed("the head of a partition has a wrong length");
  }
  in_partition_ = true;
  if (partition_.block_size > 0 && !names.model_name.empty()) return {};
  rejected_ = true;
  sink_.Reject(fmt::format("{}:{}", names.model_name, names.routing_group), DumpReject::kMalformed,
               "it has no model or no block size");
  return {};
}

Result<void> BinaryDumpReader::TakeInPartition(DumpChunk kind, std::string_view payload) {
  if (kind == DumpChunk::kRank) return ReadRank(payload);
  if (kind == DumpChunk::kPartitionEnd) {
    KVR_TRY_VOID(CheckEnd(payload));
    rank_ = nullptr;
    std::erase_if(partition_.ranks, [](const auto& entry) {
      const RecoveredRank& rank = entry.second;
      return rank.held.blocks.empty() && rank.sides.empty() && !rank.watermark;
    });
    sink_.Take(std::exchange(partition_, {}));
    return {};
  }
  if (rank_ == nullptr) return Malformed("blocks of no rank");
  if (kind == kDigestChunk) return ReadDigest(payload);
  KVR_TRY_VOID(kind == DumpChunk::kRuns ? ReadRuns(payload) : ReadSides(payload));
  return CheckSize();
}

Result<void> BinaryDumpReader::ReadRank(std::string_view payload) {
  PayloadCursor cursor(payload);
  std::uint64_t worker = 0;
  Rank rank;
  std::uint32_t flags = 0;
  std::uint64_t watermark = 0;
  if (!cursor.Read(worker) || !cursor.Read(rank.dp_rank) || !cursor.Read(flags) ||
      !cursor.Read(watermark) || !cursor.at_end() || (flags & ~kHasWatermark) != 0) {
    return Malformed("the head of a rank is none");
  }
  rank.worker = static_cast<WorkerId>(worker);
  const auto [entry, is_new] = partition_.ranks.try_emplace(rank);
  if (!is_new) return Malformed(fmt::format("rank {}.{} is in it twice", worker, rank.dp_rank));
  rank_ = &entry->second;
  if (flags != 0) rank_->watermark = watermark;
  return CheckSize();
}

Result<void> BinaryDumpReader::ReadDigest(std::string_view payload) {
  PayloadCursor cursor(payload);
  std::uint64_t digest = 0;
  if (!cursor.Read(digest) || !cursor.at_end() || !rank_->watermark || rank_->digest) {
    return Malformed("the digest of a rank's message is none");
  }
  rank_->digest = digest;
  return {};
}

Result<void> BinaryDumpReader::ReadRuns(std::string_view payload) {
  index::RankCopy& held = rank_->held;
  for (PayloadCursor cursor(payload); !cursor.at_end();) {
    std::uint32_t count = 0;
    std::uint16_t tiers = 0;
    std::uint16_t flags = 0;
    std::uint64_t parent = 0;
    std::string_view blocks;
    if (!cursor.Read(count) || !cursor.Read(tiers) || !cursor.Read(flags) || !cursor.Read(parent) ||
        !cursor.Read(std::uint64_t{count} * sizeof(PlacedBlock), blocks) || count == 0 ||
        tiers == 0 || (tiers & ~kAllTiers) != 0 || (flags & ~(kHasParent | kEligible)) != 0) {
      return Malformed("a run of blocks is none");
    }
    index::RankCopy::Run run;
    if ((flags & kHasParent) != 0) run.parent = static_cast<EngineHash>(parent);
    run.eligible = (flags & kEligible) != 0;
    run.tiers = tiers;
    run.begin = held.blocks.size();
    ReadBlocks(blocks, held.blocks);
    run.end = held.blocks.size();
    held.runs.push_back(run);
    partition_.blocks += count;
  }
  return {};
}

Result<void> BinaryDumpReader::ReadSides(std::string_view payload) {
  PayloadCursor cursor(payload);
  SideGroup about;
  std::uint32_t rule = 0;
  if (!cursor.Read(about.group) || !cursor.Read(rule) || !cursor.Read(about.block_size) ||
      !cursor.Read(about.window) || rule > static_cast<std::uint32_t>(SideRule::kNever)) {
    return Malformed("the head of a side group is none");
  }
  about.rule = static_cast<SideRule>(rule);
  std::vector<index::SideGroupCopy>& sides = rank_->sides;
  if (sides.empty() || sides.back().about != about) {
    KVR_TRY_VOID(BeginSide(about));
  }
  while (!cursor.at_end()) {
    std::uint64_t name = 0;
    std::uint8_t tiers = 0;
    if (!cursor.Read(name) || !cursor.Read(tiers) || tiers == 0 || (tiers & ~kSideTiers) != 0) {
      return Malformed("a block of a side group is none");
    }
    sides.back().blocks.push_back({static_cast<EngineHash>(name), tiers});
    ++partition_.blocks;
  }
  return {};
}

Result<void> BinaryDumpReader::BeginSide(const SideGroup& about) {
  const auto same = [&about](const index::SideGroupCopy& side) {
    return side.about.group == about.group;
  };
  std::vector<index::SideGroupCopy>& sides = rank_->sides;
  if (sides.size() >= kSideGroupsMax || std::ranges::any_of(sides, same)) {
    return Malformed(fmt::format("side group {} is one too many or in it twice", about.group));
  }
  sides.push_back({about, {}});
  return {};
}

Result<void> BinaryDumpReader::CheckEnd(std::string_view payload) const {
  PayloadCursor cursor(payload);
  std::uint64_t ranks = 0;
  std::uint64_t blocks = 0;
  if (!cursor.Read(ranks) || !cursor.Read(blocks) || !cursor.at_end()) {
    return Malformed("its end mark is none");
  }
  if (ranks == partition_.ranks.size() && blocks == partition_.blocks) return {};
  return Malformed(fmt::format("it has {} ranks and {} blocks, its end mark says {} and {}",
                               partition_.ranks.size(), partition_.blocks, ranks, blocks));
}

Result<void> BinaryDumpReader::CheckSize() const {
  if (partition_.blocks <= options_.partition_blocks_max &&
      partition_.ranks.size() <= options_.partition_ranks_max) {
    return {};
  }
  return Fail(ErrorCode::kTooLarge,
              fmt::format("it has more than {} blocks or {} ranks", options_.partition_blocks_max,
                          options_.partition_ranks_max));
}

Result<void> BinaryDumpReader::CheckPartitions(std::string_view payload) const {
  PayloadCursor cursor(payload);
  std::uint64_t partitions = 0;
  if (cursor.Read(partitions) && cursor.at_end() && partitions == partitions_) return {};
  return Malformed(
      fmt::format("the dump has {} partitions, its end mark says otherwise", partitions_));
}

}  // namespace kvr::service
