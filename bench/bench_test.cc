#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include "bench/growth.h"
#include "bench/index_feed.h"
#include "bench/measure.h"
#include "bench/op_file.h"
#include "bench/op_generator.h"
#include "bench/replay_report.h"

namespace kvr::bench {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

OpTrace SmallTrace() {
  OpTrace trace{.seed = 7, .ranks = 3, .block_tokens = 16};
  trace.Add({.time_ns = 0, .rank = 1, .blocks = 2, .kind = OpKind::kQuery},
            std::vector<std::uint64_t>{11, 12});
  trace.Add({.time_ns = 5, .rank = 1, .blocks = 2, .kind = OpKind::kStored},
            std::vector<std::uint64_t>{101, 11, 102, 12});
  trace.Add({.time_ns = 5,
             .parent = 102,
             .rank = 1,
             .blocks = 1,
             .kind = OpKind::kStored,
             .has_parent = true},
            std::vector<std::uint64_t>{103, 13});
  trace.Add({.time_ns = 9, .rank = 1, .blocks = 1, .kind = OpKind::kRemoved},
            std::vector<std::uint64_t>{103});
  trace.Add({.time_ns = 9, .rank = 2, .blocks = 0, .kind = OpKind::kCleared}, {});
  return trace;
}

// A trace of conversations: each row is a prefix of 512-token ids, rows of one hand continue.
sim::Trace Conversations() {
  sim::Trace trace;
  for (std::uint64_t row = 0; row < 60; ++row) {
    sim::TraceRequest request;
    request.timestamp_ms = static_cast<double>(row) * 400;
    for (std::uint64_t i = 0; i < 3 + row % 7; ++i)
      request.blocks.push_back(i == 0 ? 0 : 10 * (row % 9) + i);
    request.input_tokens = static_cast<std::uint32_t>(request.blocks.size() * 512 - 100);
    request.output_tokens = 300;
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

GeneratorOptions SmallOptions() {
  GeneratorOptions options;
  options.copies = 3;
  options.ranks = 4;
  options.engine_blocks = 96;
  return options;
}

// ---- The format.

TEST(OpFileTest, RoundTripsEveryKind) {
  const OpTrace trace = SmallTrace();
  const auto parsed = ParseOps(BytesOf(SerializeOps(trace)));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, trace);
}

TEST(OpFileTest, LaysOutAsDocumented) {
  const std::string bytes = SerializeOps(SmallTrace());
  ASSERT_EQ(bytes.size(), 64u + 5 * 32 + 9 * 8);
  const auto u32 = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  const auto u64 = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), std::string_view("KVROPS\x1a\n", 8));
  EXPECT_EQ(u32(8), 1u);
  EXPECT_EQ(u32(12), 3u);   // ranks
  EXPECT_EQ(u64(16), 7u);   // seed
  EXPECT_EQ(u32(24), 16u);  // tokens a block
  EXPECT_EQ(u64(32), 5u);   // operations
  EXPECT_EQ(u64(40), 9u);   // words
  EXPECT_EQ(u64(48), XXH3_64bits(bytes.data() + 64, bytes.size() - 64));
  EXPECT_EQ(u64(56), XXH3_64bits(bytes.data(), 56));
  const std::size_t third = 64 + 2 * 32;
  EXPECT_EQ(u64(third), 5u);        // time
  EXPECT_EQ(u64(third + 8), 102u);  // parent
  EXPECT_EQ(u32(third + 16), 1u);   // rank
  EXPECT_EQ(u32(third + 20), 1u);   // blocks
  EXPECT_EQ(bytes[third + 24], 1);  // stored
  EXPECT_EQ(bytes[third + 25], 1);  // has a parent
  const std::size_t words = 64 + 5 * 32;
  EXPECT_EQ(u64(words + 2 * 8), 101u);  // the first stored block: name, then content
  EXPECT_EQ(u64(words + 3 * 8), 11u);
}

struct BadFile {
  std::string_view name;
  std::function<std::string()> bytes;
  std::string_view error;
};

std::string Changed(const std::function<void(OpTrace&)>& change) {
  OpTrace trace = SmallTrace();
  change(trace);
  return SerializeOps(trace);
}

// A change of the bytes, with checksums that match again.
std::string Patched(std::size_t at, std::string_view with) {
  std::string bytes = SerializeOps(SmallTrace());
  bytes.replace(at, with.size(), with);
  const std::uint64_t body = XXH3_64bits(bytes.data() + 64, bytes.size() - 64);
  std::memcpy(bytes.data() + 48, &body, sizeof(body));
  const std::uint64_t header = XXH3_64bits(bytes.data(), 56);
  std::memcpy(bytes.data() + 56, &header, sizeof(header));
  return bytes;
}

std::string Flipped(std::size_t at) {
  std::string bytes = SerializeOps(SmallTrace());
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  return bytes;
}

TEST(OpFileTest, SaysWhatIsWrongAndWhere) {
  const std::string good = SerializeOps(SmallTrace());
  const std::vector<BadFile> cases = {
      {"empty", [] { return std::string(); }, "0 bytes, but the header alone has 64"},
      {"cut in the header", [&] { return good.substr(0, 63); }, "63 bytes"},
      {"cut in the body", [&] { return good.substr(0, good.size() - 8); },
       "5 operations and 9 words do not fill the 224 bytes"},
      {"cut within a word", [&] { return good.substr(0, good.size() - 1); }, "do not fill"},
      {"more behind the end", [&] { return good + "12345678"; }, "do not fill"},
      {"another file", [] { return Flipped(0); }, "byte 0"},
      {"another version", [] { return Patched(8, "\2"); },
       "version 2; this program reads version 1"},
      {"damaged header", [] { return Flipped(17); }, "byte 56: the header"},
      {"damaged operation", [] { return Flipped(64); }, "byte 64: the 232 bytes"},
      {"damaged word", [&] { return Flipped(good.size() - 1); }, "do not match their checksum"},
      {"no ranks", [] { return Changed([](OpTrace& t) { t.ranks = 0; }); }, "byte 12: no ranks"},
      {"reserved header bytes", [] { return Patched(28, "\1"); }, "byte 28: reserved"},
      {"more operations than bytes", [] { return Patched(32, "\xff\xff\xff\xff\xff\xff\xff\xff"); },
       "do not fill"},
      {"more words than bytes", [] { return Patched(40, "\xff\xff\xff\xff\xff\xff\xff\x1f"); },
       "do not fill"},
      {"rank too large", [] { return Changed([](OpTrace& t) { t.ops[1].rank = 3; }); },
       "byte 96: operation 1: rank 3 of 3"},
      {"unknown kind", [] { return Patched(64 + 24, "\4"); }, "operation 0: unknown kind 4"},
      {"unknown flag", [] { return Patched(96 + 25, "\2"); }, "operation 1: flags 2"},
      {"query with a parent", [] { return Patched(64 + 25, "\1"); }, "operation 0: flags 1"},
      {"parent without flag", [] { return Patched(96 + 8, "\1"); }, "operation 1: a parent"},
      {"reserved operation bytes", [] { return Patched(96 + 31, "\1"); }, "operation 1: reserved"},
      {"clear with blocks", [] { return Changed([](OpTrace& t) { t.ops[4].blocks = 1; }); },
       "byte 192: operation 4: a clear with blocks"},
      {"back in time", [] { return Changed([](OpTrace& t) { t.ops[3].time_ns = 4; }); },
       "operation 3: earlier than the one before"},
      {"blocks beyond the words", [] { return Changed([](OpTrace& t) { t.ops[3].blocks = 2; }); },
       "operation 3: 2 blocks, but only 1 words are left"},
      {"words left over", [] { return Changed([](OpTrace& t) { t.ops[3].blocks = 0; }); },
       "byte 40: 9 words, but operations have 8"},
  };
  for (const BadFile& bad : cases) {
    const auto parsed = ParseOps(BytesOf(bad.bytes()));
    ASSERT_FALSE(parsed) << bad.name;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt) << bad.name;
    EXPECT_THAT(parsed.error().message, HasSubstr(std::string(bad.error))) << bad.name;
  }
}

TEST(OpFileTest, FilesRoundTripAndErrorsNameThePath) {
  const std::string path = testing::TempDir() + "bench_test_" + std::to_string(::getpid()) + ".ops";
  ASSERT_TRUE(WriteOpFile(SmallTrace(), path));
  const auto read = ReadOpFile(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, SmallTrace());

  std::ofstream(path, std::ios::trunc) << "short";
  const auto broken = ReadOpFile(path);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr(path + ": operation file: 5 bytes"));
  std::ofstream(path, std::ios::trunc).close();
  const auto empty = ReadOpFile(path);
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr(path + ": the file is empty"));
  ::unlink(path.c_str());

  const auto missing = ReadOpFile(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_THAT(missing.error().message, HasSubstr(path + ": cannot be opened: No such file"));
  EXPECT_FALSE(WriteOpFile(SmallTrace(), path + "/no/such/folder"));
}

// ---- The generator.

TEST(OpGeneratorTest, SameSeedSameBytes) {
  const auto first = GenerateOps(Conversations(), SmallOptions());
  const auto second = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(SerializeOps(*first), SerializeOps(*second));

  GeneratorOptions other = SmallOptions();
  other.seed = 43;
  const auto third = GenerateOps(Conversations(), other);
  ASSERT_TRUE(third);
  EXPECT_NE(SerializeOps(*first), SerializeOps(*third));
  EXPECT_TRUE(ParseOps(BytesOf(SerializeOps(*first))));
}

// The bytes are the same on every machine and in every release, or figures could not be compared.
TEST(OpGeneratorTest, MakesTheBytesItAlwaysMade) {
  const auto ops = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(ops);
  const std::string bytes = SerializeOps(*ops);
  EXPECT_EQ(XXH3_64bits(bytes.data(), bytes.size()), 6109547131551480580u);
}

// Replays what the events say and checks it against what engines can do.
TEST(OpGeneratorTest, EnginesStayWithinTheirCache) {
  const GeneratorOptions options = SmallOptions();
  const auto ops = GenerateOps(Conversations(), options);
  ASSERT_TRUE(ops);
  std::vector<std::set<std::uint64_t>> held(options.ranks);
  std::map<std::uint64_t, std::uint64_t> local_of;
  std::size_t most = 0;
  for (const Op& op : ops->ops) {
    const auto words = ops->WordsOf(op);
    auto& mine = held[op.rank];
    if (op.kind == OpKind::kStored) {
      if (op.has_parent) {
        EXPECT_TRUE(mine.contains(op.parent));
      }
      for (std::size_t i = 0; i < words.size(); i += 2) {
        EXPECT_TRUE(mine.insert(words[i]).second) << "stored twice";
        const auto [entry, fresh] = local_of.try_emplace(words[i], words[i + 1]);
        EXPECT_EQ(entry->second, words[i + 1]) << "one name, two contents";
      }
    } else if (op.kind == OpKind::kRemoved) {
      for (const std::uint64_t name : words)
        EXPECT_EQ(mine.erase(name), 1u) << "removed what is not held";
    }
    most = std::max(most, mine.size());
  }
  const OpCounts counts = CountOps(*ops);
  EXPECT_EQ(counts.queries, 60u * options.copies);
  EXPECT_GT(counts.removals, 0u);
  EXPECT_LE(most, options.engine_blocks);
  EXPECT_GT(most, options.engine_blocks / 2);
}

TEST(OpGeneratorTest, ExpandsPromptsToFullBlocks) {
  sim::Trace trace;
  sim::TraceRequest request;
  request.blocks = {5, 6};
  request.input_tokens = 2 * 512 - 1;  // 7 full blocks of 128
  request.output_tokens = 129;         // fills the 8th with its first token, and the 9th
  trace.requests = {request};
  GeneratorOptions options = SmallOptions();
  options.copies = 2;
  options.ranks = 1;
  const auto ops = GenerateOps(trace, options);
  ASSERT_TRUE(ops);
  const OpCounts counts = CountOps(*ops);
  EXPECT_EQ(counts.query_blocks, 2 * 7u);
  EXPECT_EQ(counts.stored_blocks, 2 * 9u);
  EXPECT_EQ(counts.stores, 2 * 3u);  // the prefill, and each block decoding filled
  // Copies share nothing, and no block of a prompt repeats.
  std::set<std::uint64_t> contents;
  for (const Op& op : ops->ops) {
    if (op.kind != OpKind::kQuery) continue;
    for (const std::uint64_t word : ops->WordsOf(op))
      EXPECT_TRUE(contents.insert(word).second);
  }

  options.length_factor = 2;
  const auto longer = GenerateOps(trace, options);
  ASSERT_TRUE(longer);
  EXPECT_EQ(CountOps(*longer).query_blocks, 2 * 15u);  // 2046 tokens
}

TEST(OpGeneratorTest, RefusesWhatCannotBe) {
  const auto error = [](const std::function<void(GeneratorOptions&)>& change) {
    GeneratorOptions options = SmallOptions();
    change(options);
    const auto ops = GenerateOps(Conversations(), options);
    return ops ? std::string() : ops.error().message;
  };
  EXPECT_THAT(error([](GeneratorOptions& o) { o.block_tokens = 100; }), HasSubstr("divide"));
  EXPECT_THAT(error([](GeneratorOptions& o) { o.ranks = 0; }), HasSubstr("at least 1"));
  EXPECT_THAT(error([](GeneratorOptions& o) { o.engine_blocks = 20; }),
              HasSubstr("blocks, an engine has 20"));
  EXPECT_THAT(error([](GeneratorOptions& o) { o.prefill_tokens_per_ms = 0; }),
              HasSubstr("above 0"));
  EXPECT_FALSE(GeneratorPreset("tiny"));
  EXPECT_EQ(GeneratorPreset("huge")->engine_blocks, 65'536u);
  EXPECT_FALSE(GenerateShape({.ranks = 2, .holders = 3}));
}

TEST(OpGeneratorTest, ShapesAreWhatTheySay) {
  const auto ops =
      GenerateShape({.ranks = 6, .depth = 5, .holders = 4, .chains = 3, .queries_each = 2});
  ASSERT_TRUE(ops);
  const IndexFeed feed(*ops);
  FedIndex index(feed);
  index.ApplyAll();
  EXPECT_EQ(index.failed(), 0u);
  EXPECT_EQ(index.index().Stats().memberships, 3u * 4 * 5);
  EXPECT_EQ(index.index().Stats().nodes, 3u * 5);
  const Checksum sum = ChecksumOf(feed, index);
  EXPECT_EQ(sum.depths, 6u * 4 * 5);
  EXPECT_EQ(sum.scored, 6u * 4);
}

// ---- Replays.

// Sum of depths by sets of chains, for traces whose holders hold whole prefixes or less.
Checksum NaiveChecksum(const OpTrace& trace) {
  std::vector<std::map<std::uint64_t, std::vector<std::uint64_t>>> chain_of(trace.ranks);
  std::vector<std::map<std::vector<std::uint64_t>, int>> held(trace.ranks);
  for (const Op& op : trace.ops) {
    const auto words = trace.WordsOf(op);
    auto& chains = chain_of[op.rank];
    if (op.kind == OpKind::kStored) {
      std::vector<std::uint64_t> chain;
      if (op.has_parent) chain = chains.at(op.parent);
      for (std::size_t i = 0; i < words.size(); i += 2) {
        chain.push_back(words[i + 1]);
        chains[words[i]] = chain;
        held[op.rank][chain] = 1;
      }
    } else if (op.kind == OpKind::kRemoved) {
      for (const std::uint64_t name : words)
        held[op.rank].erase(chains.at(name));
    }
  }
  Checksum sum;
  for (const Op& op : trace.ops) {
    if (op.kind != OpKind::kQuery) continue;
    for (std::uint32_t rank = 0; rank < trace.ranks; ++rank) {
      std::vector<std::uint64_t> prefix;
      std::uint64_t depth = 0;
      for (const std::uint64_t word : trace.WordsOf(op)) {
        prefix.push_back(word);
        if (!held[rank].contains(prefix)) break;
        ++depth;
      }
      sum.depths += depth;
      sum.scored += depth > 0;
      if (depth > 0) sum.read += rank + depth;
    }
  }
  return sum;
}

TEST(ReplayTest, ChecksumIsThatOfPlainSets) {
  const auto ops = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(ops);
  const IndexFeed feed(*ops);
  FedIndex index(feed);
  index.ApplyAll();
  EXPECT_EQ(index.failed(), 0u);
  const Checksum sum = ChecksumOf(feed, index);
  EXPECT_GT(sum.depths, sum.scored);
  EXPECT_EQ(sum, NaiveChecksum(*ops));
}

TEST(ReplayTest, MeasuresEverything) {
  const auto ops = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(ops);
  const IndexFeed feed(*ops);
  const ReplayResult result = Replay(feed, {.loop_s = 0.001, .readers_max = 2, .window_s = 0.02});
  const OpCounts counts = CountOps(*ops);
  EXPECT_EQ(result.fill.failed_updates, 0u);
  EXPECT_EQ(result.fill.write.blocks, counts.update_blocks());
  EXPECT_EQ(result.write.blocks, counts.update_blocks());
  EXPECT_EQ(result.fill.memory.held_blocks, counts.stored_blocks - counts.removed_blocks);
  EXPECT_GT(result.fill.memory.reported_bytes, 0u);
  EXPECT_EQ(std::accumulate(result.fill.memory.bytes_of.begin(), result.fill.memory.bytes_of.end(),
                            std::uint64_t{0}),
            result.fill.memory.reported_bytes);
  EXPECT_EQ(result.alone.count, counts.queries);
  EXPECT_EQ(result.readers.size(), 2u);
  ASSERT_EQ(result.open_loop.size(), 2u);
  for (const OpenLoopResult& open : result.open_loop) {
    EXPECT_EQ(open.block_ops, counts.block_ops());
    EXPECT_EQ(open.query.count, counts.queries);
    EXPECT_GT(open.total_s, 0);
    EXPECT_EQ(open.failed_updates, 0u);
    EXPECT_LE(open.issue_span_s, open.total_s);
  }
  EXPECT_TRUE(result.open_loop[0].generator_valid());
  EXPECT_FALSE(result.open_loop[0].kept_up());   // there is no window to keep up with
  EXPECT_GE(result.open_loop[1].total_s, 0.02);  // nothing is issued before its time
  EXPECT_THAT(ReplayJson(result), HasSubstr("\"query_beside_writer\":{"));
  EXPECT_THAT(ReplayText(result), HasSubstr("checksum"));
}

TEST(ReplayTest, QueuedUpdatesAreThoseOfTheArray) {
  const auto ops = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(ops);
  const IndexFeed feed(*ops);
  std::vector<OwnedUpdate> owned = feed.OwnedUpdates(0, feed.updates().size());
  const std::vector<OwnedUpdate> moved(std::make_move_iterator(owned.begin()),
                                       std::make_move_iterator(owned.end()));
  FedIndex index(feed);
  for (const OwnedUpdate& update : moved) {
    EXPECT_EQ(update.event.blocks.data(), update.blocks.data());
    index.Apply(update.event);
  }
  EXPECT_EQ(index.failed(), 0u);
  EXPECT_EQ(ChecksumOf(feed, index), NaiveChecksum(*ops));
}

// Here a removal of what is not held.
TEST(ReplayTest, AFailedUpdateVoidsTheOpenLoop) {
  OpTrace trace = SmallTrace();
  trace.Add({.time_ns = 9, .rank = 2, .blocks = 1, .kind = OpKind::kRemoved},
            std::vector<std::uint64_t>{999});
  const IndexFeed feed(trace);
  for (const double window_s : {0.0, 0.02}) {
    const OpenLoopResult result = MeasureOpenLoop(feed, window_s);
    EXPECT_EQ(result.failed_updates, 1u);
    EXPECT_FALSE(result.generator_valid());
    EXPECT_FALSE(result.kept_up());
  }
}

TEST(MeasureTest, AnOpenLoopIsValidWhenItsLoadWasIssuedInTime) {
  OpenLoopResult result{.window_s = 1, .total_s = 1.1, .issue_span_s = 1.01};
  EXPECT_TRUE(result.generator_valid());
  EXPECT_TRUE(result.kept_up());
  result.total_s = 1.11;
  EXPECT_TRUE(result.generator_valid());
  EXPECT_FALSE(result.kept_up());
  result.issue_span_s = 1.02;
  EXPECT_FALSE(result.generator_valid());
  result.total_s = 1.05;
  EXPECT_FALSE(result.kept_up());
}

TEST(ReplayTest, ProvenanceComparesTheSameFills) {
  const auto ops = GenerateOps(Conversations(), SmallOptions());
  ASSERT_TRUE(ops);
  const IndexFeed plain(*ops);
  const IndexFeed eligible(*ops, true);
  EXPECT_FALSE(plain.updates().front().eligible);
  EXPECT_TRUE(eligible.updates().front().eligible);
  const ProvenanceResult result = MeasureProvenance(plain, eligible, 3);
  EXPECT_EQ(result.rounds, 3u);
  // A sanitizer's malloc gives no account of the heap: 0 by 0.
  EXPECT_TRUE(result.heap_ratio > 0.9 || std::isnan(result.heap_ratio)) << result.heap_ratio;
  EXPECT_GT(result.apply_ratio, 0.0);
}

TEST(MeasureTest, PercentilesAreNearestRank) {
  std::vector<std::uint32_t> samples;
  for (std::uint32_t i = 1'000; i > 0; --i)
    samples.push_back(i);
  const Percentiles p = PercentilesOf(samples);
  EXPECT_EQ(p.p50_ns, 500u);
  EXPECT_EQ(p.p99_ns, 990u);
  EXPECT_EQ(p.p999_ns, 999u);
  EXPECT_EQ(p.max_ns, 1'000u);
  EXPECT_DOUBLE_EQ(p.mean_ns, 500.5);
  std::vector<std::uint32_t> one = {7};
  EXPECT_EQ(PercentilesOf(one).p50_ns, 7u);
  EXPECT_EQ(PercentilesOf({}).count, 0u);
}

TEST(GrowthTest, SweepsRanksDepthAndHolders) {
  const auto sweeps = MeasureGrowth(256, 2);
  ASSERT_TRUE(sweeps);
  ASSERT_EQ(sweeps->size(), 3u);
  for (const GrowthSweep& sweep : *sweeps) {
    ASSERT_EQ(sweep.points.size(), 2u);
    for (const GrowthPoint& point : sweep.points)
      EXPECT_GT(point.query_ns, 0);
  }
  EXPECT_THAT(GrowthSvg(*sweeps), HasSubstr("bytes a held block by holders"));
  EXPECT_THAT(GrowthJson(*sweeps), HasSubstr("\"holders\":["));
  EXPECT_THAT(GrowthText(*sweeps), HasSubstr("growth with depth"));
}

}  // namespace
}  // namespace kvr::bench
