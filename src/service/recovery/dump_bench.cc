// A partition into a dump and back, in memory and through a snapshot file in $TMPDIR. Argument:
// blocks, of 64 ranks that share a quarter of them; each is held by one rank or by all, and counts
// once for each. Prints blocks, bytes and seconds.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/rng.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "service/recovery/binary_dump_reader.h"
#include "service/recovery/binary_dump_writer.h"
#include "service/recovery/dump_writer.h"
#include "service/recovery/snapshot_file.h"

namespace kvr::service {
namespace {

constexpr std::uint32_t kRanks = 64;
constexpr std::size_t kChainBlocks = 250;
constexpr std::size_t kPieceBytes = 256u << 10;
const Partition kPartition{"model", "default"};

struct Filled {
  fleet::Catalog catalog;
  index::IndexSet indexes{index::IndexOptions{}};
  std::uint64_t blocks = 0;

  explicit Filled(std::uint64_t wanted) {
    index::PrefixIndex& index = *(*indexes.GetOrCreate(kPartition, 16))->index;
    const std::uint64_t chains = wanted / kRanks / kChainBlocks;
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      const Rank rank{WorkerId{i}, 0};
      fleet::WorkerSpec spec;
      spec.id = rank.worker;
      spec.partition = kPartition;
      spec.block_size = 16;
      spec.dp_ranks = {0};
      KVR_CHECK(catalog.AddRank(spec));
      const RankSlot slot = *index.AddRank(rank);
      for (std::uint64_t chain = 0; chain < chains; ++chain)
        Store(index, slot, rank, chain % 4 == 0 ? chain : chain * kRanks + i);
    }
    blocks = index.Stats().memberships;
  }

  static void Store(index::PrefixIndex& index, RankSlot slot, Rank rank, std::uint64_t chain) {
    Rng rng(chain + 1);
    std::vector<PlacedBlock> blocks;
    for (std::size_t i = 0; i < kChainBlocks; ++i)
      blocks.push_back({static_cast<EngineHash>(rng()), static_cast<BlockHash>(rng())});
    PlacementEvent event;
    event.rank = rank;
    event.blocks = blocks;
    index.Apply(slot, event);
  }

  [[nodiscard]] std::string Dump() const {
    BinaryDumpWriter writer(indexes.List(), catalog.snapshot(), Nanos{0});
    std::string all;
    for (std::string piece; writer.Next(kPieceBytes, piece);)
      all += piece;
    return all;
  }
};

struct Restore final : DumpReader::Sink {
  void Take(RecoveredPartition partition) override {
    index::PartitionIndex& index = **indexes.GetOrCreate(partition.partition, partition.block_size);
    for (auto& [rank, recovered] : partition.ranks) {
      ApplyRecovered(recovered, rank, index, *index.index->AddRank(rank));
      recovered = {};
    }
    blocks += index.index->Stats().memberships;
  }
  void Reject(std::string_view /*name*/, DumpReject /*why*/, std::string_view /*how*/) override {
    KVR_CHECK(false && "a partition is rejected");
  }
  void PassOver(std::string_view /*name*/, std::size_t /*events*/) override {}

  index::IndexSet indexes{index::IndexOptions{}};
  std::uint64_t blocks = 0;
};

void Report(benchmark::State& state, std::uint64_t blocks, std::uint64_t bytes) {
  state.counters["blocks"] = static_cast<double>(blocks);
  state.counters["bytes"] = static_cast<double>(bytes);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blocks));
}

// Pieces are dropped as they come.
template <typename Write>
void WriteAll(benchmark::State& state, const Write& make) {
  const Filled filled(static_cast<std::uint64_t>(state.range(0)));
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    const std::unique_ptr<DumpSource> source = make(filled);
    bytes = 0;
    for (std::string piece; source->Next(kPieceBytes, piece);)
      bytes += piece.size();
  }
  Report(state, filled.blocks, bytes);
}

void BM_Dump(benchmark::State& state) {
  WriteAll(state, [](const Filled& filled) {
    return std::make_unique<BinaryDumpWriter>(filled.indexes.List(), filled.catalog.snapshot(),
                                              Nanos{0});
  });
}

void BM_DumpLines(benchmark::State& state) {
  WriteAll(state, [](const Filled& filled) {
    return std::make_unique<DumpWriter>(DumpWriter::Form::kLines, filled.indexes.List(),
                                        filled.catalog.snapshot());
  });
}

// From bytes to an index that answers.
void BM_Restore(benchmark::State& state) {
  std::string dump;
  std::uint64_t blocks = 0;
  {
    const Filled filled(static_cast<std::uint64_t>(state.range(0)));
    dump = filled.Dump();
    blocks = filled.blocks;
  }
  for (auto _ : state) {
    auto restore = std::make_unique<Restore>();
    BinaryDumpReader reader({}, *restore);
    const std::string_view all(dump);
    for (std::size_t at = 0; at < all.size(); at += kPieceBytes)
      KVR_CHECK(reader.Put(all.substr(at, kPieceBytes)));
    KVR_CHECK(reader.Finish());
    KVR_CHECK(restore->blocks == blocks);
    state.PauseTiming();
    restore.reset();
    state.ResumeTiming();
  }
  Report(state, blocks, dump.size());
}

// A folder of its own, which goes with it.
struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / "kvr_dump_bench_XXXXXX") {
    std::string pattern = path;
    KVR_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
};

std::uint64_t WriteSnapshot(const Filled& filled, const std::string& path) {
  auto file = SnapshotFile::Begin(path);
  KVR_CHECK(file);
  BinaryDumpWriter writer(filled.indexes.List(), filled.catalog.snapshot(), Nanos{0});
  for (std::string piece; writer.Next(kPieceBytes, piece);)
    KVR_CHECK(file->Append(piece));
  KVR_CHECK(file->Commit());
  return file->bytes();
}

// As SnapshotWriter, synced to the disk.
void BM_SnapshotWrite(benchmark::State& state) {
  const Filled filled(static_cast<std::uint64_t>(state.range(0)));
  const Folder folder;
  std::uint64_t bytes = 0;
  for (auto _ : state)
    bytes = WriteSnapshot(filled, folder.path / "snapshot");
  Report(state, filled.blocks, bytes);
}

// As WarmStart: from the file to an index that answers. The file is in the page cache.
void BM_SnapshotRead(benchmark::State& state) {
  const Folder folder;
  const std::string path = folder.path / "snapshot";
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  {
    const Filled filled(static_cast<std::uint64_t>(state.range(0)));
    bytes = WriteSnapshot(filled, path);
    blocks = filled.blocks;
  }
  for (auto _ : state) {
    auto restore = std::make_unique<Restore>();
    BinaryDumpReader reader({}, *restore);
    KVR_CHECK(ReadSnapshotFile(path, [&](std::string_view piece) { return reader.Put(piece); }));
    KVR_CHECK(reader.Finish());
    KVR_CHECK(restore->blocks == blocks);
    state.PauseTiming();
    restore.reset();
    state.ResumeTiming();
  }
  Report(state, blocks, bytes);
}

BENCHMARK(BM_SnapshotWrite)->Arg(100'000)->Arg(10'000'000)->Unit(benchmark::kSecond)->UseRealTime();
BENCHMARK(BM_SnapshotRead)->Arg(100'000)->Arg(10'000'000)->Unit(benchmark::kSecond)->UseRealTime();
BENCHMARK(BM_Dump)->Arg(100'000)->Arg(10'000'000)->Unit(benchmark::kSecond);
BENCHMARK(BM_Restore)->Arg(100'000)->Arg(10'000'000)->Unit(benchmark::kSecond);
BENCHMARK(BM_DumpLines)->Arg(100'000)->Arg(10'000'000)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace kvr::service

BENCHMARK_MAIN();
