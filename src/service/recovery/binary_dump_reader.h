// Reads a binary dump into partitions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "service/recovery/dump_chunks.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/recovered_rank.h"

namespace kvr::service {

// Takes the bytes of one dump, from a peer or a file, as they come. A partition is handed over when
// its end mark has come, so that nothing is ever half of what was written; whoever wants all or
// nothing keeps them until Finish succeeded. A partition that says what cannot be, or is too large,
// is rejected alone; damage fails the whole.
//
// What stays in memory is one partition, in 16 bytes a block and 40 a run of blocks, and one chunk.
// Not thread-safe.
class BinaryDumpReader {
 public:
  // Of `options`, piece_bytes_max means nothing here. `sink` must outlive the reader and is called
  // from within Put.
  BinaryDumpReader(const DumpReader::Options& options, DumpReader::Sink& sink)
      : options_(options), sink_(sink) {}

  // kCorrupt, kTooLarge, kUnprocessable: the dump is of no further use.
  Result<void> Put(std::string_view bytes);
  // After the last byte. kCorrupt when the dump ended early.
  Result<void> Finish();

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  Result<void> Take(std::uint32_t kind, std::string_view payload);
  // Of the optional kinds.
  Result<void> TakeAbout(std::string_view payload);
  // The number of a known kind came.
  Result<void> TakeKnown(DumpChunk kind, std::string_view payload);
  void TakeRejecting(DumpChunk kind, std::string_view payload);
  Result<void> BeginPartition(std::string_view payload);
  // Errors of the following reject the partition.
  Result<void> TakeInPartition(DumpChunk kind, std::string_view payload);
  Result<void> ReadRank(std::string_view payload);
  Result<void> ReadDigest(std::string_view payload);
  Result<void> ReadRuns(std::string_view payload);
  Result<void> ReadSides(std::string_view payload);
  // The rank goes on with that group. Groups without blocks cost memory too.
  Result<void> BeginSide(const SideGroup& about);
  Result<void> CheckEnd(std::string_view payload) const;
  Result<void> CheckSize() const;
  Result<void> CheckPartitions(std::string_view payload) const;

  const DumpReader::Options options_;
  DumpReader::Sink& sink_;
  DumpChunkReader chunks_;
  std::uint64_t bytes_ = 0;
  std::size_t partitions_ = 0;
  bool in_partition_ = false;
  bool rejected_ = false;  // the partition under way
  RecoveredPartition partition_;
  RecoveredRank* rank_ = nullptr;  // the one under way, in partition_
};

}  // namespace kvr::service
