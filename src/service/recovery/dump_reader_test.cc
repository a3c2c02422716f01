#include "service/recovery/dump_reader.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::service {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Form = DumpReader::Form;

// Writes down what comes as one line a partition.
class Recorder final : public DumpReader::Sink {
 public:
  void Take(RecoveredPartition partition) override {
    std::string text = fmt::format("{}|{} {}", partition.partition.model_name,
                                   partition.partition.routing_group, partition.block_size);
    for (const auto& [rank, recovered] : partition.ranks) {
      text += fmt::format(" {}.{}", Raw(rank.worker), rank.dp_rank);
      if (recovered.watermark) text += fmt::format("@{}", *recovered.watermark);
      for (const index::RankCopy::Run& run : recovered.held.runs) {
        text +=
            fmt::format(" {}:", kTierNames[static_cast<std::size_t>(std::countr_zero(run.tiers))]);
        if (run.parent) text += fmt::format("{}>", Raw(*run.parent));
        for (std::size_t i = run.begin; i < run.end; ++i) {
          text += fmt::format("{}/{},", Raw(recovered.held.blocks[i].engine),
                              Raw(recovered.held.blocks[i].local));
        }
      }
    }
    lines.push_back(std::move(text));
  }
  void Reject(std::string_view name, DumpReject reason, std::string_view /*detail*/) override {
    lines.push_back(fmt::format("{} rejected: {}", name, DumpRejectName(reason)));
  }

  void PassOver(std::string_view name, std::size_t events) override {
    lines.push_back(fmt::format("{}: {} events passed over", name, events));
  }

  std::vector<std::string> lines;
};

struct Read {
  std::vector<std::string> lines;
  std::string error;  // empty when the dump was read to its end
};

Read ReadDump(std::string_view text, Form form, std::size_t piece = std::string_view::npos,
              const DumpReader::Options& options = {}) {
  Recorder recorder;
  DumpReader reader(options, form, recorder);
  Result<void> result;
  for (std::size_t at = 0; result && at < text.size(); at += std::min(piece, text.size() - at))
    result = reader.Put(text.substr(at, piece));
  if (result) result = reader.Finish();
  return {recorder.lines, result ? std::string() : result.error().message};
}

std::string Event(std::string_view worker, std::string_view blocks,
                  std::string_view more = R"("storage_tier":"device",)",
                  std::string_view parent = "null") {
  return fmt::format(R"({{"worker_id":{},{}"event":{{"event_id":0,"dp_rank":1,"data":{{"stored":)"
                     R"({{"parent_hash":{},"blocks":[{}]}}}}}}}})",
                     worker, more, parent, blocks);
}

constexpr std::string_view kBlock = R"({"block_hash":11,"tokens_hash":22})";

TEST(DumpReader, ReadsTheReferencesObjectInPiecesOfAnySize) {
  const std::string text = fmt::format(
      " {{ \"a:b\" : {{\"block_size\" : 16, \"events\":[ {} , {}]}} ,\n"
      "\"m:default\":{{\"events\":[],\"block_size\":4}}}} \n",
      Event("1", kBlock), Event("2", kBlock, R"("storage_tier":"disk",)", "7"));
  for (const std::size_t piece : {1u, 2u, 7u, 64u, 100'000u}) {
    const Read read = ReadDump(text, Form::kObject, piece);
    EXPECT_THAT(read.lines,
                ElementsAre("a|b 16 1.1 device:11/22, 2.1 disk:7>11/22,", "m|default 4"))
        << piece;
    EXPECT_EQ(read.error, "");
  }
  EXPECT_THAT(ReadDump("{}", Form::kObject).lines, IsEmpty());
}

TEST(DumpReader, ReadsLinesWithWatermarksOfExactRanks) {
  const std::string text = fmt::format(
      R"({{"partition":{{"model_name":"a:b","routing_group":"g","block_size":16,)"
      R"("watermarks":{{"1":{{"1":5,"2":6}},"3":{{"0":7}}}},)"
      R"("states":{{"1":{{"1":"exact","2":"degraded"}},"3":{{"0":"exact"}}}}}}}})"
      "\n{}\n{}\n",
      Event("1", kBlock), Event("1", R"({"block_hash":12,"tokens_hash":23})", "", "11"));
  for (const std::size_t piece : {1u, 9u, 100'000u}) {
    const Read read = ReadDump(text, Form::kLines, piece);
    EXPECT_THAT(read.lines, ElementsAre("a:b|g 16 1.1@5 device:11/22, device:11>12/23, 3.0@7"));
    EXPECT_EQ(read.error, "");
  }
  EXPECT_THAT(ReadDump("", Form::kLines).lines, IsEmpty());
}

TEST(DumpReader, D2Keys) {
  const struct {
    const char* key;
    const char* fields;
    const char* partition;
  } rows[] = {
      {"org/m:default", "", "org/m|default"},
      {"llama3:8b:default", "", "llama3:8b|default"},
      {"m", "", "m|default"},
      {"a%3Ab:g:h", R"("model_name":"a:b","routing_group":"g:h",)", "a:b|g:h"},
      {R"(\"{:g])", "", "\"{|g]"},
  };
  for (const auto& row : rows) {
    const std::string text =
        fmt::format(R"({{"{}":{{{}"block_size":4,"events":[]}}}})", row.key, row.fields);
    EXPECT_THAT(ReadDump(text, Form::kObject).lines,
                ElementsAre(fmt::format("{} 4", row.partition)));
  }
}

TEST(DumpReader, HashesOfBothSigns) {
  const std::string text = fmt::format(
      R"({{"m:g":{{"block_size":4,"events":[{}]}}}})",
      Event("18446744073709551615",
            R"({"block_hash":-1,"tokens_hash":18446744073709551615,"mm_extra_info":null})"));
  EXPECT_THAT(ReadDump(text, Form::kObject).lines,
              ElementsAre("m|g 4 18446744073709551615.1 "
                          "device:18446744073709551615/18446744073709551615,"));
}

TEST(DumpReader, CachesWithoutARankAreLeftOut) {
  const std::string text =
      fmt::format(R"({{"m:g":{{"block_size":4,"events":[{},{}]}}}})", Event("1", kBlock),
                  Event("2", kBlock, R"("residency_domain":"cache_owner",)"));
  EXPECT_THAT(ReadDump(text, Form::kObject).lines, ElementsAre("m|g 4 1.1 device:11/22,"));
}

TEST(DumpReader, RanksWithSideGroupsAreLeftOut) {
  const std::string text = fmt::format(
      R"({{"m:g":{{"block_size":4,"watermarks":{{"1":{{"1":5}}}},"hybrid":{{"1":{{"1":true}}}},)"
      R"("events":[{},{}]}}}})",
      Event("1", kBlock), Event("2", kBlock));
  EXPECT_THAT(ReadDump(text, Form::kObject).lines, ElementsAre("m|g 4 2.1 device:11/22,"));
}

TEST(DumpReader, D19ABadPartitionIsRejectedAlone) {
  const std::string good = Event("1", kBlock);
  const struct {
    std::string value;
    const char* reason;
  } rows[] = {
      {R"({"error":"no"})", "peer_error"},
      {R"({"error":{"deep":[1]}})", "peer_error"},
      {"7", "malformed"},
      {"null", "malformed"},
      {"\"text\"", "malformed"},
      {"[]", "malformed"},
      {"{}", "malformed"},
      {R"({"block_size":0,"events":[]})", "malformed"},
      {R"({"block_size":-4,"events":[]})", "malformed"},
      {R"({"block_size":4294967296,"events":[]})", "malformed"},
      {R"({"block_size":4,"events":[7]})", "malformed"},
      {R"({"block_size":4,"events":[{}]})", "malformed"},
      {R"({"block_size":4,"events":[{"worker_id":}]})", "malformed"},
      {R"({"block_size":4,"watermarks":{"x":{"0":1}},"events":[]})", "malformed"},
      {R"({"block_size":4,"watermarks":{"1":{"0":-1}},"events":[]})", "malformed"},
      {R"({"block_size":4,"watermarks":{"1":7},"events":[]})", "malformed"},
      {fmt::format(R"({{"block_size":4,"events":[{}]}})", Event("-1", kBlock)), "malformed"},
      {fmt::format(R"({{"block_size":4,"events":[{},{}]}})", good, Event("1", "{}")), "malformed"},
      {fmt::format(R"({{"block_size":4,"events":[{}]}})",
                   Event("1", kBlock, R"("storage_tier":"moon",)")),
       "malformed"},
      {R"({"block_size":4,"events":[{"worker_id":1,"event":{"dp_rank":0,"data":"cleared"}}]})",
       "malformed"},
      {fmt::format(R"({{"block_size":4,"events":[{}]}})",
                   std::string(200, '[') + std::string(200, ']')),
       "malformed"},
  };
  for (const auto& row : rows) {
    const std::string text =
        fmt::format(R"({{"bad:x":{},"good:g":{{"block_size":4,"events":[{}]}}}})", row.value, good);
    const Read read = ReadDump(text, Form::kObject);
    EXPECT_THAT(read.lines, ElementsAre(fmt::format("bad:x rejected: {}", row.reason),
                                        "good|g 4 1.1 device:11/22,"))
        << row.value;
    EXPECT_EQ(read.error, "");
  }
}

TEST(DumpReader, D19ABadLineRejectsItsPartition) {
  const std::string head = R"({"partition":{"model_name":"%","block_size":4}})";
  const auto named = [&head](char name) {
    std::string text = head;
    text[text.find('%')] = name;
    return text + "\n";
  };
  const std::string good = Event("1", kBlock) + "\n";
  for (const std::string bad : {"{", "7", "{}", "\xff"}) {
    const Read read =
        ReadDump(named('a') + good + bad + "\n" + good + named('b') + good, Form::kLines);
    EXPECT_THAT(read.lines,
                ElementsAre("a:default rejected: malformed", "b|default 4 1.1 device:11/22,"))
        << bad;
  }
}

TEST(DumpReader, TextThatIsNoDumpFails) {
  for (const std::string_view text :
       {"", "[]", "7", "<html>", "{", "{]", "{\"a\"}", "{\"a\":}", "{\"a\":{}", "{\"a\":{}},",
        "{\"a\":{\"events\":[1,]}}", "{\"a\":{\"events\":[", "{\"a\":{},}", "{\"a\" {}}",
        "{a:1}"}) {
    EXPECT_NE(ReadDump(text, Form::kObject).error, "") << text;
  }
  for (const std::string_view text : {"{}\n", "x", "{\"partition\":{\"model_name\":\"m\""})
    EXPECT_NE(ReadDump(text, Form::kLines).error, "") << text;
}

TEST(DumpReader, APartitionThatIsCutShortIsNotTaken) {
  const std::string text =
      fmt::format(R"({{"m:g":{{"block_size":4,"events":[{},)", Event("1", kBlock));
  const Read read = ReadDump(text, Form::kObject);
  EXPECT_THAT(read.lines, IsEmpty());
  EXPECT_EQ(read.error, "the dump ends early");
}

TEST(DumpReader, Limits) {
  DumpReader::Options options;
  options.partition_blocks_max = 2;
  const std::string events =
      fmt::format("{},{},{}", Event("1", kBlock), Event("2", kBlock), Event("3", kBlock));
  const std::string text = fmt::format(
      R"({{"a:g":{{"block_size":4,"events":[{}]}},"b:g":{{"block_size":4,"events":[]}}}})", events);
  EXPECT_THAT(ReadDump(text, Form::kObject, 5, options).lines,
              ElementsAre("a:g rejected: too_large", "b|g 4"));

  options = {};
  options.partition_ranks_max = 2;
  EXPECT_THAT(ReadDump(text, Form::kObject, 5, options).lines,
              ElementsAre("a:g rejected: too_large", "b|g 4"));

  options = {};
  options.partitions_max = 1;
  EXPECT_EQ(ReadDump(text, Form::kObject, 5, options).error, "the dump has more than 1 partitions");

  options = {};
  options.dump_bytes_max = 100;
  EXPECT_EQ(ReadDump(text, Form::kObject, 5, options).error, "the dump is longer than 100 bytes");
}

TEST(DumpReader, ALongEventCostsTheWatermarksOnly) {
  DumpReader::Options options;
  options.piece_bytes_max = 200;
  const std::string head =
      R"("model_name":"m","block_size":4,"watermarks":{"1":{"1":5},"3":{"0":7}})";
  const std::string next = R"("model_name":"n","block_size":4,"watermarks":{"2":{"1":6}})";
  const std::string good = Event("1", kBlock);
  const std::string longer = Event("2", fmt::format("{0},{0},{0},{0}", kBlock));
  ASSERT_GT(longer.size(), options.piece_bytes_max);
  const std::string object =
      fmt::format(R"({{"m":{{{},"events":[{},{},{}]}},"n":{{{},"events":[{}]}}}})", head, longer,
                  good, longer, next, Event("2", kBlock));
  const std::string lines =
      fmt::format("{{\"partition\":{{{}}}}}\n{}\n{}\n{}\n{{\"partition\":{{{}}}}}\n{}\n", head,
                  longer, good, longer, next, Event("2", kBlock));
  for (const std::size_t piece : {1u, 7u, 199u, 200u, 201u, 100'000u}) {
    for (const bool form : {false, true}) {
      const Read read =
          ReadDump(form ? lines : object, form ? Form::kLines : Form::kObject, piece, options);
      // Rank 3.0 had nothing but its watermark.
      EXPECT_THAT(read.lines,
                  ElementsAre("m:default: 2 events passed over", "m|default 4 1.1 device:11/22,",
                              "n|default 4 2.1@6 device:11/22,"));
      EXPECT_EQ(read.error, "");
    }
  }
}

TEST(DumpReader, ALongHeadCostsItsPartitionOnly) {
  DumpReader::Options options;
  options.piece_bytes_max = 200;
  const std::string good = Event("1", kBlock);
  const std::string rest = R"("good:g":{"block_size":4,"events":[]}})";
  const std::string text(201, 'x');
  const struct {
    std::string partition;
    const char* name;
  } rows[] = {
      {fmt::format(R"("{}":{{"block_size":4,"events":[{}]}})", text, good), ""},
      {fmt::format(R"("a:b":{{"{}":4,"events":[{}]}})", text, good), "a:b"},
      {fmt::format(R"("a:b":{{"block_size":4,"x":"{}","events":[{},{}]}})", text, good, good),
       "a:b"},
      {fmt::format(R"("a:b":{{"block_size":4,"x":{},"y":"{}"}})", text, text), "a:b"},
      {fmt::format(R"("a:b":"{}")", text), "a:b"},
      {fmt::format(R"("a:b":[{}])", text), "a:b"},
      {fmt::format(R"("{0}":"{0}")", text), ""},
      // Each short, together long.
      {fmt::format(R"("a:b":{{"block_size":4,"x":"{0}","y":"{0}","z":"{0}"}})", text.substr(60)),
       "a:b"},
  };
  for (const auto& row : rows) {
    for (const std::size_t piece : {1u, 200u, 100'000u}) {
      const Read read = ReadDump('{' + row.partition + ',' + rest, Form::kObject, piece, options);
      EXPECT_THAT(read.lines,
                  ElementsAre(fmt::format("{} rejected: too_large", row.name), "good|g 4"))
          << row.partition;
      EXPECT_EQ(read.error, "");
    }
  }
  const std::string lines = fmt::format(
      "{{\"partition\":{{\"model_name\":\"{}\"}}}}\n{}\n"
      "{{\"partition\":{{\"model_name\":\"n\",\"block_size\":4}}}}\n",
      text, good);
  for (const std::size_t piece : {1u, 200u, 100'000u}) {
    EXPECT_THAT(ReadDump(lines, Form::kLines, piece, options).lines,
                ElementsAre(" rejected: too_large", "n|default 4"));
  }
}

TEST(DumpReader, ALongTextThatIsNoDumpFailsEarly) {
  DumpReader::Options options;
  options.piece_bytes_max = 64;
  Recorder recorder;
  DumpReader reader(options, Form::kLines, recorder);
  EXPECT_TRUE(reader.Put(std::string(64, 'x')));
  EXPECT_FALSE(reader.Put("x"));
}

}  // namespace
}  // namespace kvr::service
