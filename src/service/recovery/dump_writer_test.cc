#include "service/recovery/dump_writer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/placement_event.h"
#include "service/recovery/dump_reader.h"
#include "support/alloc_counter.h"

namespace kvr::service {
namespace {

std::string Text(DumpWriter& writer, std::size_t bytes) {
  std::string all;
  for (std::string piece; writer.Next(bytes, piece);)
    all += piece;
  return all;
}

std::string Text(const index::IndexSet& indexes, DumpWriter::Form form, std::size_t bytes = 1) {
  const fleet::Catalog catalog;
  DumpWriter writer(form, indexes.List(), catalog.snapshot());
  return Text(writer, bytes);
}

void Store(index::PartitionIndex& partition, Rank rank, std::uint64_t first, std::size_t count) {
  std::vector<PlacedBlock> blocks;
  for (std::size_t i = 0; i < count; ++i)
    blocks.push_back({static_cast<EngineHash>(first + i), static_cast<BlockHash>(first + i + 1)});
  PlacementEvent event;
  event.rank = rank;
  event.blocks = blocks;
  partition.index->Apply(*partition.index->AddRank(rank), event);
}

TEST(DumpWriter, D2KeysOfPartitionsDiffer) {
  const auto key = [](std::string model, std::string group) {
    index::IndexSet indexes(index::IndexOptions{});
    EXPECT_TRUE(indexes.GetOrCreate({std::move(model), std::move(group)}, 4));
    const std::string out = Text(indexes, DumpWriter::Form::kObject);
    return out.substr(1, out.find(":{") - 1);
  };
  EXPECT_EQ(key("org/model-1.5", "default"), R"("org/model-1.5:default")");
  EXPECT_EQ(key("a:b", "g:h"), R"("a%3Ab:g:h")");
  EXPECT_EQ(key("a", "b:g:h"), R"("a:b:g:h")");
  EXPECT_EQ(key("a%3Ab", "g"), R"("a%253Ab:g")");
  EXPECT_EQ(key("\"", "\n"), R"("\":\n")");
}

TEST(DumpWriter, BothFormsInPiecesOfAnySize) {
  index::IndexSet indexes(index::IndexOptions{});
  EXPECT_EQ(Text(indexes, DumpWriter::Form::kObject), "{}");
  EXPECT_EQ(Text(indexes, DumpWriter::Form::kLines), "");
  Store(**indexes.GetOrCreate({"a", "g"}, 4), {WorkerId{1}, 2}, 10, 1);
  ASSERT_TRUE(indexes.GetOrCreate({"b", "g"}, 8));
  const std::string event =
      R"({"worker_id":1,"storage_tier":"device","event":{"event_id":0,"dp_rank":2,"data":)"
      R"({"stored":{"parent_hash":null,"blocks":[{"block_hash":10,"tokens_hash":11}]}}}})";
  const auto head = [](const std::string& model, const std::string& size) {
    return R"("model_name":")" + model + R"(","routing_group":"g","version":1,"block_size":)" +
           size + R"(,"watermarks":{},"states":{})";
  };
  for (const std::size_t bytes : {1u, 100u, 100'000u}) {
    EXPECT_EQ(Text(indexes, DumpWriter::Form::kObject, bytes),
              R"({"a:g":{)" + head("a", "4") + R"(,"events":[)" + event + R"(]},"b:g":{)" +
                  head("b", "8") + R"(,"events":[]}})");
    EXPECT_EQ(Text(indexes, DumpWriter::Form::kLines, bytes),
              R"({"partition":{)" + head("a", "4") + "}}\n" + event + "\n" + R"({"partition":{)" +
                  head("b", "8") + "}}\n");
  }
}

// Builds an index from what is handed over.
class Rebuild final : public DumpReader::Sink {
 public:
  void Take(RecoveredPartition partition) override {
    const auto index = *indexes.GetOrCreate(partition.partition, partition.block_size);
    for (const auto& [rank, recovered] : partition.ranks)
      ApplyRecovered(recovered, rank, *index, *index->index->AddRank(rank));
  }
  void Reject(std::string_view name, DumpReject /*reason*/, std::string_view detail) override {
    ADD_FAILURE() << name << ": " << detail;
  }
  void PassOver(std::string_view name, std::size_t events) override {
    ADD_FAILURE() << name << ": " << events;
  }

  index::IndexSet indexes{index::IndexOptions{}};
};

// Row 36: names are opaque texts.
TEST(DumpWriter, NamesWithAnyCharacterAreReadBackEqual) {
  std::string all_ascii;
  for (char c = 1; c > 0; ++c)
    all_ascii += c;
  const std::string names[] = {"llama3:8b",
                               "a:b:c",
                               ":",
                               "::",
                               "%3A",
                               "%",
                               R"("quoted" \ \")",
                               "new\nline",
                               "{}",
                               "[",
                               all_ascii,
                               "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80",
                               std::string("nul\0byte", 8),
                               std::string(512, 'x')};
  index::IndexSet indexes(index::IndexOptions{});
  std::uint64_t next = 1;
  for (const std::string& model : names) {
    for (const std::string& group : {std::string("default"), std::string("g:\"h"), model}) {
      Store(**indexes.GetOrCreate({model, group}, 4), {WorkerId{next}, 0}, next * 100, 3);
      ++next;
    }
  }
  for (const auto form : {DumpWriter::Form::kObject, DumpWriter::Form::kLines}) {
    const std::string text = Text(indexes, form, 10'000);
    Rebuild rebuilt;
    DumpReader reader(
        {}, form == DumpWriter::Form::kLines ? DumpReader::Form::kLines : DumpReader::Form::kObject,
        rebuilt);
    for (const char byte : text)
      ASSERT_TRUE(reader.Put(std::string_view(&byte, 1)));
    ASSERT_TRUE(reader.Finish());
    const auto before = indexes.List();
    const auto after = rebuilt.indexes.List();
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(after[i]->partition, before[i]->partition);
    EXPECT_EQ(Text(rebuilt.indexes, form, 10'000), text);
  }
}

// Whoever reads slowly keeps one rank in memory, not all that the ranks share.
TEST(DumpWriter, HoldsOneRankAtATime) {
  constexpr std::size_t kRanks = 16;
  constexpr std::size_t kBlocks = 20'000;
  index::IndexSet indexes(index::IndexOptions{});
  const auto partition = *indexes.GetOrCreate({"a", "g"}, 4);
  for (std::uint64_t rank = 0; rank < kRanks; ++rank)
    Store(*partition, {WorkerId{rank}, 0}, 10, kBlocks);
  for (const auto form : {DumpWriter::Form::kObject, DumpWriter::Form::kLines}) {
    const fleet::Catalog catalog;
    DumpWriter writer(form, indexes.List(), catalog.snapshot());
    std::size_t events = 0;
    std::int64_t most = 0;
    std::string piece;
    const std::int64_t before = test::HeapOfThisThread();
    while (writer.Next(1, piece)) {
      ++events;
      most = std::max(most, test::HeapOfThisThread() - before);
    }
    EXPECT_GE(events, kRanks * (kBlocks / DumpWriter::kEventBlocks));
    // One event in text, and one rank.
    EXPECT_LT(most, static_cast<std::int64_t>(2 * kBlocks * sizeof(PlacedBlock) + 800'000));
  }
}

TEST(DumpWriter, LongChainsAreCutAndReadBackEqual) {
  index::IndexSet indexes(index::IndexOptions{});
  constexpr std::size_t kBlocks = 2 * DumpWriter::kEventBlocks + 3;
  const auto partition = *indexes.GetOrCreate({"a:b", "g"}, 4);
  Store(*partition, {WorkerId{1}, 0}, 10, kBlocks);
  Store(*partition, {WorkerId{2}, 0}, 10, 5);
  for (const auto form : {DumpWriter::Form::kObject, DumpWriter::Form::kLines}) {
    const std::string text = Text(indexes, form, 10'000);
    Rebuild rebuilt;
    DumpReader reader(
        {}, form == DumpWriter::Form::kLines ? DumpReader::Form::kLines : DumpReader::Form::kObject,
        rebuilt);
    ASSERT_TRUE(reader.Put(text));
    ASSERT_TRUE(reader.Finish());
    EXPECT_EQ(Text(rebuilt.indexes, form, 10'000), text);
    EXPECT_EQ((*rebuilt.indexes.List()[0]).index->Stats().memberships, kBlocks + 5);
  }
}

}  // namespace
}  // namespace kvr::service
