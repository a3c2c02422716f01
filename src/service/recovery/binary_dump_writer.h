// Writes GET /dump?format=binary and snapshots, a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "index/rank_copy.h"
#include "index/side_groups.h"
#include "service/recovery/dump_chunks.h"
#include "service/recovery/dump_writer.h"

namespace kvr::service {

// All that is known of the registered ranks of some partitions, side groups included, in the form
// of docs/dump-format.md. One rank at a time is held, in 16 bytes a block; each is as it was at one
// moment.
//
// A watermark is read before the rank's blocks are, so that whoever enters the blocks and then the
// stream from the watermark on misses nothing. It is written of ranks with a position only, see
// RankHealth; a rank that was cleared while its blocks were read has none.
class BinaryDumpWriter final : public DumpSource {
 public:
  // `snapshot` says which ranks there are and how they are doing, `now` is the wall time.
  BinaryDumpWriter(std::vector<std::shared_ptr<index::PartitionIndex>> partitions,
                   std::shared_ptr<const fleet::Snapshot> snapshot, Nanos now);

  bool Next(std::size_t bytes, std::string& piece) override;

 private:
  void WriteSome(std::string& out);
  void WriteAbout(std::string& out);
  void BeginPartition(std::string& out);
  void EndPartition(std::string& out);
  void BeginRank(const fleet::RankEntry& entry, std::string& out);
  void WriteRuns(std::string& out);
  void WriteSides(std::string& out);

  const std::vector<std::shared_ptr<index::PartitionIndex>> partitions_;
  const std::shared_ptr<const fleet::Snapshot> snapshot_;
  const Nanos now_;
  DumpChunkWriter chunks_;
  bool begun_ = false;
  bool ended_ = false;
  std::size_t partition_ = 0;  // the one under way, or the next
  bool in_partition_ = false;
  std::uint64_t ranks_written_ = 0;             // of the partition
  std::uint64_t blocks_written_ = 0;            // likewise
  std::vector<const fleet::RankEntry*> ranks_;  // of the partition
  std::size_t rank_ = 0;                        // the next of them

  // What is left of the rank under way.
  index::RankCopy held_;
  std::size_t run_ = 0;
  std::size_t run_at_ = 0;  // in held_.blocks, when a part of the run is written
  std::vector<index::SideGroupCopy> sides_;
  std::size_t side_ = 0;
  std::size_t side_at_ = 0;
};

}  // namespace kvr::service
