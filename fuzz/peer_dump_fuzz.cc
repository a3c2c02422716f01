// A peer's dump, as it comes off the network. Byte 0 chooses the form and the limits, byte 1 how
// the text is cut; the rest is the text. However it is cut, the same is found. What is taken is
// whole, and an index that is built from it writes dumps that are read back without loss.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "service/indexer/dump_reader.h"
#include "service/indexer/dump_writer.h"
#include "service/indexer/quarantine.h"
#include "service/indexer/recovered_rank.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::Nanos;
using kvr::Rank;
using kvr::Raw;
using kvr::Result;
using kvr::index::IndexSet;
using kvr::index::PartitionIndex;
using kvr::service::DumpReader;
using kvr::service::DumpReject;
using kvr::service::DumpWriter;
using kvr::service::Quarantine;
using kvr::service::RecoveredPartition;
using kvr::service::RecoveredRank;

void CheckRank(const RecoveredRank& rank) {
  std::size_t at = 0;
  for (const RecoveredRank::Run& run : rank.runs) {
    KVR_CHECK(run.begin == at && run.end > run.begin);
    at = run.end;
  }
  KVR_CHECK(at == rank.blocks.size());
  KVR_CHECK(at > 0 || rank.watermark);
}

std::string TextOf(const RecoveredPartition& partition) {
  std::string text = fmt::format("{}|{}|{}", partition.partition.model_name,
                                 partition.partition.routing_group, partition.block_size);
  for (const auto& [rank, recovered] : partition.ranks) {
    text += fmt::format(" {}.{}@{}", Raw(rank.worker), rank.dp_rank,
                        recovered.watermark ? fmt::to_string(*recovered.watermark) : "-");
    for (const RecoveredRank::Run& run : recovered.runs) {
      text += fmt::format(" {}:{}", kvr::TierName(run.tier),
                          run.parent ? fmt::to_string(Raw(*run.parent)) : "-");
      for (std::size_t i = run.begin; i < run.end; ++i) {
        text +=
            fmt::format(",{}/{}", Raw(recovered.blocks[i].engine), Raw(recovered.blocks[i].local));
      }
    }
  }
  return text;
}

// Keeps what comes, and says it as text.
struct Recorder final : DumpReader::Sink {
  void Take(RecoveredPartition partition) override {
    KVR_CHECK(partition.block_size > 0 && !partition.partition.model_name.empty());
    std::size_t blocks = 0;
    for (const auto& [rank, recovered] : partition.ranks) {
      CheckRank(recovered);
      KVR_CHECK(long_events == 0 || !recovered.watermark);
      blocks += recovered.blocks.size();
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

// Reads `text` in pieces of 1 to `longest` bytes.
Recorder Read(std::string_view text, DumpReader::Form form, const DumpReader::Options& options,
              std::size_t longest) {
  Recorder recorder;
  DumpReader reader(options, form, recorder);
  Result<void> result;
  std::size_t length = 0;
  while (result && !text.empty()) {
    length = std::min(length % longest + 1, text.size());
    result = reader.Put(text.substr(0, length));
    text.remove_prefix(length);
  }
  if (result) result = reader.Finish();
  if (!result) recorder.lines.push_back(result.error().message);
  return recorder;
}

// Puts what was read through the quarantine into indexes, as registrations would.
void Rebuild(std::vector<RecoveredPartition> partitions, IndexSet& indexes) {
  for (RecoveredPartition& partition : partitions) {
    const auto made = indexes.GetOrCreate(partition.partition, partition.block_size);
    if (!made) continue;  // a second partition of the name, with another block size
    PartitionIndex& index = **made;
    std::vector<Rank> ranks;
    for (const auto& entry : partition.ranks)
      ranks.push_back(entry.first);
    Quarantine quarantine({});
    KVR_CHECK(quarantine.Add(std::move(partition), Nanos{0}).has_value());
    for (const Rank rank : ranks) {
      const auto recovered = quarantine.Take(rank, index.partition, index.block_size, Nanos{0});
      KVR_CHECK(recovered.has_value());
      if (const auto slot = index.index->AddRank(rank); slot) {
        ApplyRecovered(*recovered, rank, *index.index, *slot);
      }
    }
    KVR_CHECK(quarantine.ranks() == 0 && quarantine.blocks() == 0);
  }
}

void CheckRoundTrip(std::vector<RecoveredPartition> partitions, bool lines) {
  kvr::index::IndexOptions options;
  options.ranks_max = 64;
  IndexSet indexes(options);
  Rebuild(std::move(partitions), indexes);
  DumpWriter writer(lines ? DumpWriter::Form::kLines : DumpWriter::Form::kObject, indexes.List(),
                    std::make_shared<const kvr::fleet::Snapshot>());
  std::string text;
  for (std::string piece; writer.Next(1'000, piece);)
    text += piece;
  Recorder again =
      Read(text, lines ? DumpReader::Form::kLines : DumpReader::Form::kObject, {}, 4'096);
  KVR_CHECK(again.rejected == 0 && again.lines.size() == again.taken.size());
  IndexSet copies(options);
  Rebuild(std::move(again.taken), copies);
  for (const auto& index : indexes.List()) {
    const auto copy = copies.Find(index->partition);
    KVR_CHECK(copy != nullptr && copy->block_size == index->block_size);
    const auto had = index->index->Stats();
    const auto has = copy->index->Stats();
    KVR_CHECK(has.memberships <= had.memberships);
    KVR_CHECK(has.pending_blocks == 0);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool lines = (data[0] & 1u) != 0;
  const auto form = lines ? DumpReader::Form::kLines : DumpReader::Form::kObject;
  DumpReader::Options options;
  if ((data[0] & 2u) != 0) options.piece_bytes_max = 160;
  if ((data[0] & 4u) != 0) {
    options.dump_bytes_max = 4'096;
    options.partition_blocks_max = 4;
    options.partition_ranks_max = 2;
    options.partitions_max = 3;
  }
  Recorder whole = Read(text, form, options, std::max<std::size_t>(text.size(), 1));
  const Recorder pieces = Read(text, form, options, std::size_t{data[1]} + 1);
  // A dump that is too long ends with a piece.
  if (size <= options.dump_bytes_max) KVR_CHECK(whole.lines == pieces.lines);
  CheckRoundTrip(std::move(whole.taken), lines);
  return 0;
}
