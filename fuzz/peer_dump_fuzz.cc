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

#include "base/check.h"
#include "dump_recorder.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/dump_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::Result;
using kvr::index::IndexSet;
using kvr::service::DumpReader;
using kvr::service::DumpRecorder;
using kvr::service::DumpWriter;
using kvr::service::RecoveredPartition;

// Reads `text` in pieces of 1 to `longest` bytes.
DumpRecorder Read(std::string_view text, DumpReader::Form form, const DumpReader::Options& options,
                  std::size_t longest) {
  DumpRecorder recorder;
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
  DumpRecorder again =
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
  DumpRecorder whole = Read(text, form, options, std::max<std::size_t>(text.size(), 1));
  const DumpRecorder pieces = Read(text, form, options, std::size_t{data[1]} + 1);
  // A dump that is too long ends with a piece.
  if (size <= options.dump_bytes_max) KVR_CHECK(whole.lines == pieces.lines);
  CheckRoundTrip(std::move(whole.taken), lines);
  return 0;
}
