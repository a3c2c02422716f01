#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hex.h"
#include "service/recovery/binary_dump_reader.h"
#include "service/recovery/binary_dump_writer.h"
#include "service/recovery/dump_records.h"

namespace kvr::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Rank kOne{WorkerId{1}, 0};
constexpr Rank kTwo{WorkerId{2}, 3};
const Partition kPartition{"org/a:b", "g"};

// Partitions with their workers, and what they hold.
struct Fleet {
  fleet::Catalog catalog;
  index::IndexSet indexes{index::IndexOptions{}};

  void Add(const Partition& partition, Rank rank) {
    fleet::WorkerSpec spec;
    spec.id = rank.worker;
    spec.partition = partition;
    spec.block_size = 4;
    spec.dp_ranks = {rank.dp_rank};
    EXPECT_TRUE(catalog.AddRank(spec));
    EXPECT_TRUE(IndexOf(partition).index->AddRank(rank));
  }
  void Exact(Rank rank, std::uint64_t watermark, std::optional<std::uint64_t> digest = {}) {
    fleet::RankHealth& health = *catalog.snapshot()->Find(rank)->health;
    health.SetPosition(StreamPosition{watermark, digest});
  }
  index::PartitionIndex& IndexOf(const Partition& partition) {
    return **indexes.GetOrCreate(partition, 4);
  }
  void Store(const Partition& partition, const PlacementEvent& event) {
    index::PrefixIndex& index = *IndexOf(partition).index;
    index.Apply(*index.AddRank(event.rank), event);
  }

  std::string Dump(std::size_t bytes = 1'000, Nanos now = Nanos{0}) const {
    BinaryDumpWriter writer(indexes.List(), catalog.snapshot(), now);
    std::string all;
    for (std::string piece; writer.Next(bytes, piece);)
      all += piece;
    return all;
  }
};

std::vector<PlacedBlock> Chain(std::uint64_t first, std::size_t count, std::uint64_t name = 1'000) {
  std::vector<PlacedBlock> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back(
        {static_cast<EngineHash>(name + first + i), static_cast<BlockHash>(first + i)});
  }
  return blocks;
}

// One worker with all a rank can have, one with names of its own, one without anything.
std::unique_ptr<Fleet> Sample() {
  auto fleet = std::make_unique<Fleet>();
  fleet->Add(kPartition, kOne);
  fleet->Add(kPartition, kTwo);
  fleet->Add({"z", "default"}, {WorkerId{3}, 0});
  fleet->Exact(kOne, 17, 0xABC);
  const auto blocks = Chain(1, 6);
  PlacementEvent event;
  event.rank = kOne;
  event.blocks = std::span(blocks).first(4);
  event.eligible = true;
  fleet->Store(kPartition, event);
  event.blocks = std::span(blocks).first(2);
  event.tier = Tier::kHostPinned;
  fleet->Store(kPartition, event);
  event.eligible = false;
  event.parent = blocks[3].engine;
  event.blocks = std::span(blocks).subspan(4);
  event.tier = Tier::kDisk;
  fleet->Store(kPartition, event);
  const auto own = Chain(1, 3, 5'000);
  event = {};
  event.rank = kTwo;
  event.blocks = own;
  fleet->Store(kPartition, event);
  index::PartitionIndex& partition = fleet->IndexOf(kPartition);
  const auto sides = partition.hybrid->FindOrAdd(kTwo, *partition.index, 4);
  sides->Declare({2, SideRule::kWindow, 4, 8});
  const SideCopy copy{own[2].engine};
  for (int twice = 0; twice < 2; ++twice)
    sides->Store(2, Tier::kDevice, std::span(&copy, 1));
  sides->Store(2, Tier::kHostPinned, std::span(&copy, 1));
  return fleet;
}

std::string Describe(const RecoveredRank& rank) {
  std::string text = rank.watermark ? fmt::format("@{}", *rank.watermark) : "";
  if (rank.digest) text += fmt::format("={:x}", *rank.digest);
  for (const auto& run : rank.held.runs) {
    text += fmt::format(" tiers {:x}{}:", run.tiers, run.eligible ? " eligible" : "");
    if (run.parent) text += fmt::format("{}>", Raw(*run.parent));
    for (std::size_t i = run.begin; i < run.end; ++i)
      text +=
          fmt::format("{}/{},", Raw(rank.held.blocks[i].engine), Raw(rank.held.blocks[i].local));
  }
  for (const auto& group : rank.sides) {
    text +=
        fmt::format(" group {} rule {} size {} window {}:", group.about.group,
                    static_cast<int>(group.about.rule), group.about.block_size, group.about.window);
    for (const auto& block : group.blocks)
      text += fmt::format("{}@{},", Raw(block.name), block.tiers);
  }
  return text;
}

struct Recorder final : DumpReader::Sink {
  void Take(RecoveredPartition partition) override {
    lines.push_back(fmt::format("{}|{} {}", partition.partition.model_name,
                                partition.partition.routing_group, partition.block_size));
    for (const auto& [rank, recovered] : partition.ranks)
      lines.push_back(fmt::format("{}.{}{}", Raw(rank.worker), rank.dp_rank, Describe(recovered)));
    taken.push_back(std::move(partition));
  }
  void Reject(std::string_view name, DumpReject reason, std::string_view detail) override {
    lines.push_back(fmt::format("{} rejected: {}", name, DumpRejectName(reason)));
    EXPECT_NE(detail, "");
  }
  void PassOver(std::string_view name, std::size_t /*events*/) override { ADD_FAILURE() << name; }

  std::vector<std::string> lines;
  std::vector<RecoveredPartition> taken;
  Error error;  // empty when the dump was read to its end
};

Recorder Read(std::string_view dump, std::size_t piece = std::string_view::npos,
              const DumpReader::Options& options = {}) {
  Recorder recorder;
  BinaryDumpReader reader(options, recorder);
  Result<void> result;
  for (std::size_t at = 0; result && at < dump.size(); at += std::min(piece, dump.size() - at))
    result = reader.Put(dump.substr(at, piece));
  if (result) result = reader.Finish();
  if (!result) recorder.error = result.error();
  return recorder;
}

const char* const kSampleLines[] = {
    "org/a:b|g 4",
    ("1.0@17=abc tiers 3 eligible:1001/1,1002/2, tiers 1 eligible:1002>1003/3,1004/4,"
     " tiers 4:1004>1005/5,1006/6,"),
    "2.3 tiers 1:5001/1,5002/2,5003/3, group 2 rule 1 size 4 window 8:5003@3,",
    "z|default 4",
};

TEST(BinaryDump, CarriesAllThatARankHolds) {
  const auto fleet = Sample();
  const std::string dump = fleet->Dump();
  for (const std::size_t bytes : {1u, 100u, 1'000'000u})
    EXPECT_EQ(fleet->Dump(bytes), dump);
  for (const std::size_t piece : {1u, 2u, 7u, 64u, 1'000'000u}) {
    const Recorder read = Read(dump, piece);
    EXPECT_EQ(read.error.message, "");
    EXPECT_THAT(read.lines, testing::ElementsAreArray(kSampleLines)) << piece;
  }
  EXPECT_THAT(Read(Fleet().Dump()).lines, IsEmpty());
}

TEST(BinaryDump, ACopyDumpsTheSame) {
  const auto fleet = Sample();
  Recorder read = Read(fleet->Dump());
  Fleet copy;
  for (const RecoveredPartition& partition : read.taken) {
    index::PartitionIndex& index = copy.IndexOf(partition.partition);
    for (const auto& [rank, recovered] : partition.ranks) {
      copy.Add(partition.partition, rank);
      ApplyRecovered(recovered, rank, index, *index.index->AddRank(rank));
    }
  }
  copy.Exact(kOne, 17, 0xABC);
  EXPECT_EQ(copy.Dump(), fleet->Dump());
}

// Blocks of side groups are counted no more: the engine's next removal is that of the last copy.
TEST(BinaryDump, RecoveredSideGroupsNeverPromiseTooMuch) {
  const auto fleet = Sample();
  const Recorder read = Read(fleet->Dump());
  index::IndexSet indexes{index::IndexOptions{}};
  index::PartitionIndex& index = **indexes.GetOrCreate(kPartition, 4);
  const RankSlot slot = *index.index->AddRank(kTwo);
  ApplyRecovered(read.taken[0].ranks.at(kTwo), kTwo, index, slot);
  OverlapScores scores;
  index.index->Match(std::vector{BlockHash{1}, BlockHash{2}, BlockHash{3}}, {}, scores);
  ASSERT_EQ(scores.at(slot).depth(), 3u);
  const auto sides = index.hybrid->Find(kTwo);
  ASSERT_NE(sides, nullptr);
  const SideCopy copy{EngineHash{5'003}};
  sides->Store(2, Tier::kDevice, std::span(&copy, 1));  // repeated by a replay
  sides->Remove(2, Tier::kHostPinned, std::span(&copy, 1));
  EXPECT_EQ(sides->stats().blocks, 1u);
  sides->Remove(2, Tier::kDevice, std::span(&copy, 1));
  EXPECT_EQ(sides->stats().blocks, 0u);
}

TEST(BinaryDump, LongChainsAndGroupsAreCutIntoChunks) {
  Fleet fleet;
  fleet.Add(kPartition, kOne);
  const auto blocks = Chain(1, 50'000);
  PlacementEvent event;
  event.rank = kOne;
  event.blocks = blocks;
  fleet.Store(kPartition, event);
  index::PartitionIndex& partition = fleet.IndexOf(kPartition);
  const auto sides = partition.hybrid->FindOrAdd(kOne, *partition.index, 4);
  sides->Declare({1, SideRule::kEvery, 4, 0});
  std::vector<SideCopy> copies;
  for (const PlacedBlock& block : blocks)
    copies.push_back({block.engine});
  sides->Store(1, Tier::kDevice, copies);
  const std::string dump = fleet.Dump();
  const Recorder read = Read(dump, 10'000);
  ASSERT_EQ(read.error.message, "");
  const RecoveredRank& rank = read.taken.at(0).ranks.at(kOne);
  EXPECT_EQ(rank.held.blocks, blocks);
  EXPECT_GT(rank.held.runs.size(), 1u);
  ASSERT_EQ(rank.sides.size(), 1u);
  EXPECT_EQ(rank.sides[0].blocks.size(), blocks.size());
  EXPECT_EQ(read.taken[0].blocks, 2 * blocks.size());
}

// Of a damaged dump nothing is taken that was not written.
TEST(BinaryDump, EveryFlippedBitIsNoticed) {
  const std::string dump = Sample()->Dump();
  for (std::size_t at = 0; at < dump.size(); ++at) {
    std::string damaged = dump;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Recorder read = Read(damaged);
    const bool unused = at >= 12 && at < 16;  // of the head
    EXPECT_EQ(read.error.message.empty(), unused) << at;
    EXPECT_LE(read.lines.size(), std::size(kSampleLines));
    for (std::size_t i = 0; i < read.lines.size(); ++i)
      EXPECT_EQ(read.lines[i], kSampleLines[i]) << at;
  }
}

TEST(BinaryDump, EveryTornDumpIsRefused) {
  const std::string dump = Sample()->Dump();
  for (std::size_t size = 0; size < dump.size(); ++size) {
    const Recorder read = Read(std::string_view(dump).substr(0, size));
    EXPECT_EQ(read.error.code, ErrorCode::kCorrupt);
    EXPECT_EQ(read.error.message, fmt::format("the dump ends early, after {} bytes", size));
  }
  EXPECT_EQ(Read(dump + "x").error.message, "the dump goes on behind its end");
}

// A dump made by hand.
class Made {
 public:
  Made() { DumpChunkWriter::Head(text_); }

  Made& Chunk(std::uint32_t kind, std::string_view payload) {
    chunks_.Begin(static_cast<DumpChunk>(kind), text_);
    text_ += payload;
    chunks_.End(text_);
    return *this;
  }
  Made& Chunk(DumpChunk kind, std::string_view payload) {
    return Chunk(static_cast<std::uint32_t>(kind), payload);
  }
  Made& Partition(std::string_view model, std::uint32_t block_size = 4) {
    std::string head;
    AppendNumber(head, block_size);
    AppendNumber(head, static_cast<std::uint32_t>(model.size()));
    head += model;
    AppendNumber(head, std::uint32_t{0});
    return Chunk(DumpChunk::kPartition, head);
  }
  Made& Rank(std::uint64_t worker, std::uint32_t flags = 0) {
    std::string head;
    AppendNumber(head, worker);
    AppendNumber(head, std::uint32_t{0});
    AppendNumber(head, flags);
    AppendNumber(head, std::uint64_t{5});
    return Chunk(DumpChunk::kRank, head);
  }
  Made& Run(std::uint32_t count, unsigned tiers = 1, unsigned flags = 0, std::size_t cut = 0) {
    std::string run;
    AppendNumber(run, count);
    AppendNumber(run, static_cast<std::uint16_t>(tiers));
    AppendNumber(run, static_cast<std::uint16_t>(flags));
    AppendNumber(run, std::uint64_t{0});
    AppendBlocks(run, Chain(1, count));
    run.resize(run.size() - cut);
    return Chunk(DumpChunk::kRuns, run);
  }
  Made& End(std::uint64_t ranks, std::uint64_t blocks) {
    std::string end;
    AppendNumber(end, ranks);
    AppendNumber(end, blocks);
    return Chunk(DumpChunk::kPartitionEnd, end);
  }
  std::string Done(std::uint64_t partitions) {
    std::string end;
    AppendNumber(end, partitions);
    Chunk(DumpChunk::kEnd, end);
    return text_;
  }

 private:
  std::string text_;
  DumpChunkWriter chunks_;
};

TEST(BinaryDump, ForeignBytesAreRefused) {
  const std::string later = "\x89KVRDUMP\x02" + std::string(7, '\0');
  const struct {
    std::string dump;
    ErrorCode code;
    const char* reason;
  } rows[] = {
      {"{\"m:default\":{}}", ErrorCode::kCorrupt, "no dump: it begins otherwise"},
      {"\x89PNG\r\n", ErrorCode::kCorrupt, "no dump: it begins otherwise"},
      {later, ErrorCode::kUnprocessable, "version 2, this program reads version 1"},
      {Made().Chunk(99, "").Done(0), ErrorCode::kUnprocessable, "chunks of kind 99"},
      {Made().Rank(1).Done(0), ErrorCode::kCorrupt, "where none can be"},
      {Made().Partition("a").Partition("b").Done(2), ErrorCode::kCorrupt, "where none can be"},
      {Made().Partition("a").Done(1), ErrorCode::kCorrupt, "where none can be"},
      {Made().Chunk(DumpChunk::kPartition, "abc").Done(1), ErrorCode::kCorrupt, "wrong length"},
      {Made().Partition("a").End(0, 0).Done(2), ErrorCode::kCorrupt, "end mark says otherwise"},
      {"\x89KVRDUMP\x01" + std::string(7, '\0') + "\x03" + std::string(3, '\0') +
           "\xFF\xFF\xFF\xFF",
       ErrorCode::kCorrupt, "damaged at byte 16: chunk 0 says it has 4294967295 bytes"},
  };
  for (const auto& row : rows) {
    const Recorder read = Read(row.dump);
    EXPECT_EQ(read.error.code, row.code) << row.reason;
    EXPECT_THAT(read.error.message, HasSubstr(row.reason));
  }
  EXPECT_EQ(Read(Made().Chunk(kOptionalChunk | 7, "later").Done(0)).error.message, "");
}

TEST(BinaryDump, SaysWhenItWasBegun) {
  struct Dated final : DumpReader::Sink {
    Result<void> Begin(Nanos when) override {
      written = when;
      if (!refuse) return {};
      return Fail(ErrorCode::kUnprocessable, "too old");
    }
    void Take(RecoveredPartition /*partition*/) override { ++taken; }
    void Reject(std::string_view /*name*/, DumpReject /*reason*/,
                std::string_view detail) override {
      ADD_FAILURE() << detail;
    }
    void PassOver(std::string_view /*name*/, std::size_t /*events*/) override {}

    Nanos written{0};
    std::size_t taken = 0;
    bool refuse = false;
  };
  const auto fleet = Sample();
  BinaryDumpWriter writer(fleet->indexes.List(), fleet->catalog.snapshot(),
                          std::chrono::microseconds(1'790'000'000'123'999));
  std::string dump;
  writer.Next(1u << 20, dump);
  Dated used;
  BinaryDumpReader reader({}, used);
  EXPECT_TRUE(reader.Put(dump));
  EXPECT_EQ(used.written, Millis{1'790'000'000'123});
  EXPECT_EQ(used.taken, 2u);
  Dated refused;
  refused.refuse = true;
  BinaryDumpReader other({}, refused);
  EXPECT_EQ(other.Put(dump).error().message, "too old");
  EXPECT_EQ(refused.taken, 0u);
  // A time that no clock can count.
  EXPECT_THAT(Read(Made().Chunk(kAboutChunk, std::string(8, '\xFF')).Done(0)).error.message,
              HasSubstr("does not say when it was written"));
  EXPECT_THAT(Read(Made().Chunk(kAboutChunk, "short").Done(0)).error.message,
              HasSubstr("does not say when it was written"));
  // Later versions may say more.
  EXPECT_EQ(Read(Made().Chunk(kAboutChunk, std::string(20, '\0')).Done(0)).error.message, "");
}

TEST(BinaryDump, ARankThatWasClearedMeanwhileHasNoWatermark) {
  const auto fleet = Sample();
  fleet->catalog.snapshot()->Find(kOne)->health->SetPosition(std::nullopt);
  EXPECT_THAT(Read(fleet->Dump()).lines[1], testing::StartsWith("1.0 tiers"));
}

std::string EmptySideGroup(std::uint32_t group) {
  std::string head;
  AppendNumber(head, group);
  for (int i = 0; i < 3; ++i)
    AppendNumber(head, std::uint32_t{0});
  return head;
}

// Groups without blocks pass no limit of blocks.
Made ManySideGroups(std::uint32_t groups) {
  Made made;
  made.Partition("bad").Rank(1);
  for (std::uint32_t group = 0; group < groups; ++group)
    made.Chunk(DumpChunk::kSides, EmptySideGroup(group));
  return made.End(1, 0);
}

TEST(BinaryDump, APartitionThatIsWrongIsRejectedAlone) {
  const std::string side(15, '\0');  // a head without its last byte
  const std::vector<Made> bad = {
      Made().Partition("").End(0, 0),
      Made().Partition("bad", 0).End(0, 0),
      Made().Partition("bad").Run(1).End(0, 1),
      Made().Partition("bad").Rank(1).Rank(1).End(1, 0),
      Made().Partition("bad").Rank(1, 2).End(1, 0),
      Made().Partition("bad").Rank(1).Run(0).End(1, 0),
      Made().Partition("bad").Rank(1).Run(1, 0).End(1, 1),
      Made().Partition("bad").Rank(1).Run(1, 16).End(1, 1),
      Made().Partition("bad").Rank(1).Run(1, 1, 4).End(1, 1),
      Made().Partition("bad").Rank(1).Run(2, 1, 0, 1).End(1, 2),
      Made().Partition("bad").Rank(1).Run(2).End(1, 3),
      Made().Partition("bad").Rank(1).Run(2).End(2, 2),
      Made().Partition("bad").Rank(1).Chunk(DumpChunk::kSides, side).End(1, 0),
      Made().Partition("bad").Rank(1).Chunk(DumpChunk::kRank, side).End(1, 0),
      Made().Partition("bad").Chunk(DumpChunk::kPartitionEnd, side),
      Made().Partition("bad").Rank(1).Chunk(kDigestChunk, std::string(8, 'd')).End(1, 0),
      Made().Partition("bad").Rank(1, 1).Chunk(kDigestChunk, "short").End(1, 0),
      Made().Partition("bad").Chunk(kDigestChunk, std::string(8, 'd')).End(0, 0),
      Made()
          .Partition("bad")
          .Rank(1, 1)
          .Chunk(kDigestChunk, std::string(8, 'd'))
          .Chunk(kDigestChunk, std::string(8, 'd'))
          .End(1, 0),
      ManySideGroups(257),
      Made()
          .Partition("bad")
          .Rank(1)
          .Chunk(DumpChunk::kSides, EmptySideGroup(1))
          .Chunk(DumpChunk::kSides, EmptySideGroup(2))
          .Chunk(DumpChunk::kSides, EmptySideGroup(1))
          .End(1, 0),
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    Made dump = bad[i];
    const Recorder read = Read(dump.Partition("good").Rank(1, 1).Run(2, 15, 2).End(1, 2).Done(2));
    EXPECT_EQ(read.error.message, "") << i;
    EXPECT_THAT(read.lines, ElementsAre(HasSubstr("rejected: malformed"), "good| 4",
                                        "1.0@5 tiers f eligible:1001/1,1002/2,"))
        << i;
  }
}

TEST(BinaryDump, Limits) {
  Made made;
  const std::string dump = made.Partition("big")
                               .Rank(1)
                               .Run(3)
                               .Rank(2)
                               .Run(3)
                               .End(2, 6)
                               .Partition("small")
                               .Rank(3)
                               .Run(2)
                               .End(1, 2)
                               .Done(2);
  DumpReader::Options options;
  options.partition_blocks_max = 5;
  EXPECT_THAT(Read(dump, 10, options).lines,
              ElementsAre("big: rejected: too_large", "small| 4", HasSubstr("3.0")));
  options = {};
  options.partition_ranks_max = 1;
  EXPECT_THAT(Read(dump, 10, options).lines,
              ElementsAre("big: rejected: too_large", "small| 4", HasSubstr("3.0")));
  options = {};
  options.partitions_max = 1;
  EXPECT_EQ(Read(dump, 10, options).error.message, "the dump has more than 1 partitions");
  options = {};
  options.dump_bytes_max = 100;
  EXPECT_EQ(Read(dump, 10, options).error.message, "the dump is longer than 100 bytes");
}

// The bytes themselves: other versions have to read them. Made by another program.
TEST(BinaryDump, GoldenBytes) {
  Fleet fleet;
  fleet.Add({"m", "g"}, {WorkerId{0x0102030405060708}, 9});
  fleet.Exact({WorkerId{0x0102030405060708}, 9}, 0x11, 0xFEDC'BA98'7654'3210);
  const PlacedBlock block{EngineHash{0xA1}, BlockHash{0xB2}};
  PlacementEvent event;
  event.rank = {WorkerId{0x0102030405060708}, 9};
  event.blocks = std::span(&block, 1);
  event.eligible = true;
  fleet.Store({"m", "g"}, event);
  const std::string dump = fleet.Dump(1'000, Millis{0x123456789});
  EXPECT_EQ(ToHex(std::as_bytes(std::span(dump))),
            // head: version 1
            "894b565244554d500100000000000000"
            // begun 0x0123456789 ms after the epoch
            "0100008008000000896745230100000070e4992a33b813b5"
            // partition: block size 4, "m", "g"
            "010000000e00000004000000010000006d0100000067ec17d3b5c9ae85e0"
            // rank 9 of the worker, watermark 0x11
            "02000000180000000807060504030201090000000100000011000000000000001f66f0b06db65416"
            // digest of message 0x11
            "02000080080000001032547698badcfee9b09575c36e1677"
            // one eligible block on the device, from the root
            "030000002000000001000000010002000000000000000000a100000000000000b200000000000000"
            "f3047c0765079bb7"
            // one rank, one block
            "05000000100000000100000000000000010000000000000050180049a9f84078"
            // one partition
            "0600000008000000010000000000000000740ad05d383f04");
}

}  // namespace
}  // namespace kvr::service
