#include "service/recovery/binary_dump_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "service/recovery/dump_records.h"

namespace kvr::service {
namespace {

void AppendText(std::string& out, std::string_view text) {
  AppendNumber(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

}  // namespace

BinaryDumpWriter::BinaryDumpWriter(std::vector<std::shared_ptr<index::PartitionIndex>> partitions,
                                   std::shared_ptr<const fleet::Snapshot> snapshot, Nanos now)
    : partitions_(std::move(partitions)), snapshot_(std::move(snapshot)), now_(now) {}

bool BinaryDumpWriter::Next(std::size_t bytes, std::string& piece) {
  piece.clear();
  while (!ended_ && piece.size() < bytes)
    WriteSome(piece);
  return !piece.empty();
}

void BinaryDumpWriter::WriteSome(std::string& out) {
  if (!begun_) {
    DumpChunkWriter::Head(out);
    WriteAbout(out);
    begun_ = true;
  } else if (run_ < held_.runs.size()) {
    WriteRuns(out);
  } else if (side_ < sides_.size()) {
    WriteSides(out);
  } else if (in_partition_ && rank_ < ranks_.size()) {
    BeginRank(*ranks_[rank_++], out);
  } else if (in_partition_) {
    EndPartition(out);
  } else if (partition_ < partitions_.size()) {
    BeginPartition(out);
  } else {
    chunks_.Begin(DumpChunk::kEnd, out);
    AppendNumber(out, std::uint64_t{partitions_.size()});
    chunks_.End(out);
    ended_ = true;
  }
}

void BinaryDumpWriter::WriteAbout(std::string& out) {
  chunks_.Begin(kAboutChunk, out);
  AppendNumber(out, static_cast<std::uint64_t>(std::chrono::floor<Millis>(now_).count()));
  chunks_.End(out);
}

void BinaryDumpWriter::BeginPartition(std::string& out) {
  const index::PartitionIndex& partition = *partitions_[partition_];
  chunks_.Begin(DumpChunk::kPartition, out);
  AppendNumber(out, partition.block_size);
  AppendText(out, partition.partition.model_name);
  AppendText(out, partition.partition.routing_group);
  chunks_.End(out);
  ranks_.clear();
  for (const fleet::Worker* worker : snapshot_->In(partition.partition)) {
    for (const fleet::RankEntry& entry : worker->ranks)
      ranks_.push_back(&entry);
  }
  rank_ = 0;
  ranks_written_ = 0;
  blocks_written_ = 0;
  in_partition_ = true;
}

void BinaryDumpWriter::EndPartition(std::string& out) {
  chunks_.Begin(DumpChunk::kPartitionEnd, out);
  AppendNumber(out, ranks_written_);
  AppendNumber(out, blocks_written_);
  chunks_.End(out);
  in_partition_ = false;
  ++partition_;
}

void BinaryDumpWriter::BeginRank(const fleet::RankEntry& entry, std::string& out) {
  const index::PartitionIndex& partition = *partitions_[partition_];
  std::optional<StreamPosition> position = entry.health->position();
  partition.index->CopyRank(entry.rank, held_);
  run_ = 0;
  run_at_ = 0;
  const auto sides = partition.hybrid->Find(entry.rank);
  sides_ = sides ? sides->Copy() : std::vector<index::SideGroupCopy>();
  side_ = 0;
  side_at_ = 0;
  const auto after = entry.health->position();
  if (!after || (position && after->message < position->message)) position.reset();
  if (held_.runs.empty() && sides_.empty() && !position) return;
  ++ranks_written_;
  chunks_.Begin(DumpChunk::kRank, out);
  AppendNumber(out, Raw(entry.rank.worker));
  AppendNumber(out, entry.rank.dp_rank);
  AppendNumber(out, position ? kHasWatermark : std::uint32_t{0});
  AppendNumber(out, position ? position->message : std::uint64_t{0});
  chunks_.End(out);
  if (!position || !position->digest) return;
  chunks_.Begin(kDigestChunk, out);
  AppendNumber(out, *position->digest);
  chunks_.End(out);
}

void BinaryDumpWriter::WriteRuns(std::string& out) {
  const std::size_t begin = out.size();
  chunks_.Begin(DumpChunk::kRuns, out);
  while (run_ < held_.runs.size() && out.size() - begin < DumpChunkWriter::kPayloadBytes) {
    const index::RankCopy::Run& run = held_.runs[run_];
    const std::size_t room =
        1 + (DumpChunkWriter::kPayloadBytes - (out.size() - begin)) / sizeof(PlacedBlock);
    const std::size_t at = std::max(run.begin, run_at_);
    const std::size_t count = std::min(run.end - at, room);
    std::optional<EngineHash> parent = run.parent;
    if (at > run.begin) parent = held_.blocks[at - 1].engine;
    AppendNumber(out, static_cast<std::uint32_t>(count));
    AppendNumber(out, static_cast<std::uint16_t>(run.tiers));
    AppendNumber(out, static_cast<std::uint16_t>((parent ? kHasParent : 0u) |
                                                 (run.eligible ? kEligible : 0u)));
    AppendNumber(out, Raw(parent.value_or(EngineHash{})));
    AppendBlocks(out, std::span(held_.blocks).subspan(at, count));
    blocks_written_ += count;
    run_at_ = at + count;
    if (run_at_ == run.end) ++run_;
  }
  chunks_.End(out);
  if (run_ == held_.runs.size()) held_ = {};
}

void BinaryDumpWriter::WriteSides(std::string& out) {
  const index::SideGroupCopy& group = sides_[side_];
  constexpr std::size_t kBlocks = DumpChunkWriter::kPayloadBytes / kSideBlockBytes;
  const std::size_t count = std::min(kBlocks, group.blocks.size() - side_at_);
  chunks_.Begin(DumpChunk::kSides, out);
  AppendNumber(out, group.about.group);
  AppendNumber(out, static_cast<std::uint32_t>(group.about.rule));
  AppendNumber(out, group.about.block_size);
  AppendNumber(out, group.about.window);
  for (std::size_t i = side_at_; i < side_at_ + count; ++i) {
    AppendNumber(out, Raw(group.blocks[i].name));
    AppendNumber(out, static_cast<std::uint8_t>(group.blocks[i].tiers));
  }
  chunks_.End(out);
  blocks_written_ += count;
  side_at_ += count;
  if (side_at_ < group.blocks.size()) return;
  side_at_ = 0;
  if (++side_ == sides_.size()) sides_ = {};
}

}  // namespace kvr::service
