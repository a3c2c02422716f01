// A binary dump, from a peer or a file. Byte 0 chooses the limits and whether the rest is the dump
// itself, or chunks to make one of, so that checksums keep nothing out: a byte for the kind, of
// which the highest bit stands for that of the kind, two for the length. Byte 1 says how the dump
// is cut; however it is, the same is found. What is taken is whole, and an index that is built from
// it writes a dump that is read back without loss.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "dump_recorder.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "service/recovery/binary_dump_reader.h"
#include "service/recovery/binary_dump_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::Result;
using kvr::index::IndexSet;
using kvr::service::BinaryDumpReader;
using kvr::service::BinaryDumpWriter;
using kvr::service::DumpChunk;
using kvr::service::DumpChunkWriter;
using kvr::service::DumpReader;
using kvr::service::DumpRecorder;
using kvr::service::kOptionalChunk;
using kvr::service::RecoveredPartition;

std::string FromChunks(std::string_view chunks) {
  constexpr std::size_t kHeadBytes = 3;
  std::string dump;
  DumpChunkWriter writer;
  DumpChunkWriter::Head(dump);
  while (chunks.size() >= kHeadBytes) {
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(chunks[i]); };
    const std::size_t length = at(1) + std::size_t{256} * at(2);
    const std::uint32_t kind = (at(0) & 0x80u) != 0 ? kOptionalChunk | (at(0) & 0x7Fu) : at(0);
    writer.Begin(static_cast<DumpChunk>(kind), dump);
    chunks.remove_prefix(kHeadBytes);
    dump += chunks.substr(0, length);
    chunks.remove_prefix(std::min(length, chunks.size()));
    writer.End(dump);
  }
  return dump;
}

// Reads `dump` in pieces of 1 to `longest` bytes.
DumpRecorder Read(std::string_view dump, const DumpReader::Options& options, std::size_t longest,
                  bool& whole) {
  DumpRecorder recorder;
  BinaryDumpReader reader(options, recorder);
  Result<void> result;
  std::size_t length = 0;
  while (result && !dump.empty()) {
    length = std::min(length % longest + 1, dump.size());
    result = reader.Put(dump.substr(0, length));
    dump.remove_prefix(length);
  }
  if (result) result = reader.Finish();
  if (!result) recorder.lines.push_back(result.error().message);
  whole = result.has_value();
  return recorder;
}

// All ranks that `partitions` name, as far as no two claim one worker.
std::shared_ptr<const kvr::fleet::Snapshot> Register(
    const std::vector<RecoveredPartition>& partitions, kvr::fleet::Catalog& catalog) {
  for (const RecoveredPartition& partition : partitions) {
    for (const auto& entry : partition.ranks) {
      kvr::fleet::WorkerSpec spec;
      spec.id = entry.first.worker;
      spec.partition = partition.partition;
      spec.block_size = partition.block_size;
      spec.dp_ranks = {entry.first.dp_rank};
      static_cast<void>(catalog.AddRank(std::move(spec)));
    }
  }
  return catalog.snapshot();
}

void CheckRoundTrip(std::vector<RecoveredPartition> partitions) {
  kvr::fleet::Catalog catalog;
  const auto snapshot = Register(partitions, catalog);
  IndexSet indexes(kvr::index::IndexOptions{});
  Rebuild(std::move(partitions), indexes);
  const auto dump = [&snapshot](const IndexSet& from) {
    BinaryDumpWriter writer(from.List(), snapshot, kvr::Nanos{0});
    std::string all;
    for (std::string piece; writer.Next(1'000, piece);)
      all += piece;
    return all;
  };
  bool whole = false;
  DumpRecorder again = Read(dump(indexes), {}, 4'096, whole);
  KVR_CHECK(whole && again.rejected == 0);
  IndexSet copies(kvr::index::IndexOptions{});
  Rebuild(std::move(again.taken), copies);
  for (const auto& index : copies.List()) {
    const auto original = indexes.Find(index->partition);
    KVR_CHECK(original != nullptr && original->block_size == index->block_size);
    const auto has = index->index->Stats();
    KVR_CHECK(has.memberships <= original->index->Stats().memberships);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string dump = (data[0] & 1u) != 0 ? FromChunks(text) : std::string(text);
  DumpReader::Options options;
  if ((data[0] & 2u) != 0) {
    options.dump_bytes_max = 4'096;
    options.partition_blocks_max = 4;
    options.partition_ranks_max = 2;
    options.partitions_max = 3;
  }
  bool whole = false;
  bool whole_in_pieces = false;
  DumpRecorder once = Read(dump, options, std::max<std::size_t>(dump.size(), 1), whole);
  const DumpRecorder pieces = Read(dump, options, std::size_t{data[1]} + 1, whole_in_pieces);
  // One that is too long ends with a piece.
  if (dump.size() <= options.dump_bytes_max) {
    KVR_CHECK(once.lines == pieces.lines && whole == whole_in_pieces);
  }
  CheckRoundTrip(std::move(once.taken));
  return 0;
}
