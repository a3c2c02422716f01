// Block sizes other than the registered one, and physical copies. V and L rows are quirks of vLLM
// and LMCache, each with the releases it is known from.
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "wire/event_encoder.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

struct Step {
  std::string event;
  std::string expected;
  std::uint32_t wrong_block_size = 0;  // after it
};

std::string Size(int size, std::string_view more = {}) {
  return R"("block_size":)" + std::to_string(size) + std::string(more);
}

constexpr std::string_view kAb = "1,2,3,4,5,6,7,8";
constexpr std::string_view kAbcd = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16";
constexpr std::string_view kCpu = R"(,"medium":"CPU")";
constexpr std::string_view kMismatch = "drop 0 block_size_mismatch";

TEST(BlockSizes, Rows) {
  const struct {
    std::string_view id;
    std::vector<Step> steps;
  } rows[] = {
      {"a hybrid model's names and tokens keep to the hash block, its block_size does not",
       {{St("11,12", "null", kAb, Size(8)), "stored device 11=A 12=B"},
        {St("13,14", "12", kAb, Size(16)), "stored device <12 13=A 14=B"}}},
      {"V5: names for a part of the blocks only",
       {{St("12", "null", kAb, Size(4)), "drop 0 sparse_store"}}},
      {"a block that is really larger, as of context parallel ranks",
       {{St("11", "null", kAb, Size(8)), std::string(kMismatch), 8},
        {St("11", "null", kAbcd, Size(16)), std::string(kMismatch), 16},
        {St("11", "null", kA), "stored device 11=A", 0}}},
      {"a smaller block",
       {{St("11,12", "null", kA, Size(2)), std::string(kMismatch), 2},
        {St("11", "null", "1,2", Size(2)), std::string(kMismatch), 2}}},
      {"V6: pieces of a block, once the size is known",
       {{St("11", "null", kA), "stored device 11=A"},
        {St("20", "19", "5,6", Size(2)), "drop 0 partial_block"},
        {St("21", "20", "7", Size(1)), "drop 0 partial_block"},
        {St("22", "11", "5,6,7", Size(3)), std::string(kMismatch), 3}}},
      {"V6: pieces of the registered size do not hide that the blocks are larger",
       {{St("11", "null", kAb, Size(8)), std::string(kMismatch), 8},
        {St("20", "19", kC), "stored device <19 20=C", 8},
        {St("12", "null", kA), "stored device 12=A", 0}}},
      {"a store under a known parent tells as well",
       {{St("11", "null", kA), "stored device 11=A"},
        {St("30", "11", kAb, Size(8)), std::string(kMismatch), 8},
        {St("12", "11", kB), "stored device <11 12=B", 0}}},
      {"V14: host copies of another size are dropped and say nothing of the device",
       {{St("11", "null", kA, Size(2, kCpu)), std::string(kMismatch)},
        {St("11", "null", kA), "stored device 11=A"}}},
      {"V13: placeholders have no size",
       {{St("11", "null", "", Size(0, kCpu)), "named host_pinned 11"},
        {St("11", "null", "", Size(0)), "named device 11"}}},
      {"a chunk of the host tier in our blocks",
       {{St("11,12", "null", kAb, Size(8, kCpu)), "stored host_pinned 11=A 12=B"}}},
      {"L1: a chunk under one name",
       {{St("71", "null", kAbcd, Size(16, kCpu)), "drop 0 chunked_store"},
        {St("72", "71", kAb, Size(8, R"(,"medium":"DISK")")), "drop 0 chunked_store"}}},
      {"L1: ... of blocks that the engine stored, as far as they are known",
       {{St("71", "null", kAb, Size(8, kCpu)), "drop 0 chunked_store"},
        {St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {St("13", "12", kC), "stored device <12 13=C"},
        {St("71", "null", kAbcd, Size(16, kCpu)), "named host_pinned 11 12 13"},
        {Rm("12"), "removed device 12"},
        {St("21", "null", kC), "stored device 21=C"},
        {St("22", "21", kD), "stored device <21 22=D"},
        {St("73", "71", "17,18,19,20,21,22,23,24", Size(8, kCpu)), "drop 0 chunked_store"}}},
      {"L1: a chain of chunks with one token too many each, the last one short",
       {{St("71", "null", kAb, Size(8, kCpu)), "drop 0 chunked_store"},
        {St("11,12,13,14", "null", kAbcd), "stored device 11=A 12=B 13=C 14=D"},
        {St("71", "null", "1,2,3,4,5,6,7,8,9", Size(8, kCpu)), "named host_pinned 11 12"},
        {St("72", "71", "9,10,11,12,13,14", Size(6, kCpu)), "named host_pinned 13"},
        {St("73", "72", kD, Size(4, kCpu)), "stored host_pinned <72 73=D"},
        {St("74", "70", kAb, Size(8, kCpu)), "drop 0 chunked_store"}}},
      {"L1: the root by 0, a chunk of one block, and again",
       {{St("71", "0", kAb, Size(8, kCpu)), "drop 0 chunked_store"},
        {St("11", "null", kA), "stored device 11=A"},
        {St("71", "0", kA, Size(4, kCpu)), "named host_pinned 11"},
        {St("71", "0", kA, Size(4, kCpu)), ""}}},
      {"L1: tokens of two names are nobody's",
       {{St("71", "null", kAb, Size(8, kCpu)), "drop 0 chunked_store"},
        {St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {St("21", "null", kA, R"("cache_salt":"a")"), "stored device 21=" + Local('A', "", "a")},
        {St("71", "null", kAb, Size(8, kCpu)), "named host_pinned 12"}}},
      {"L1: a clear forgets chunks",
       {{St("71", "null", kAb, Size(8, kCpu)), "drop 0 chunked_store"},
        {St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {std::string(kClr), "cleared"},
        {St("71", "null", kAb, Size(8, kCpu)), "drop 0 chunked_store"}}},
      {"L1: the last chunk is as long as it is",
       {{St("71", "null", "1,2,3", Size(3, kCpu)), std::string(kMismatch)}}},
      {"L1: one token too many",
       {{St("11", "null", "1,2,3,4,5", Size(4, kCpu)), "stored host_pinned 11=A"}}},
      {"groups that are no main group have sizes of their own",
       {{St("11", "null", kAb, Size(8, R"(,"group_idx":1,"kv_cache_spec_kind":"mamba")")),
         "drop 0 non_main_group"}}},
      {"a bigram's block_size is ours or nothing",
       {{St("11,12", "null", "[1,2],[2,3],[3,4],[4,5],[5,6],[6,7],[7,8]", Size(8)),
         std::string(kMismatch), 8}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    for (const Step& step : row.steps) {
      SCOPED_TRACE(step.event);
      EXPECT_EQ(stream.Feed(Batch({step.event})), step.expected);
      EXPECT_EQ(stream.batch().wrong_block_size, step.wrong_block_size);
    }
  }
}

// V6: vLLM announces and removes pieces of blocks, which no index has.
TEST(BlockSizes, RemovalsOfPiecesOfBlocksAreNotUnmatched) {
  auto options = StreamOptions();
  options.memory.partial_blocks_max = 4;
  Stream stream(options);
  const auto unmatched = [&] { return stream.translator().stats().unmatched_removals; };
  stream.Feed(Batch({St("20", "null", "1,2", Size(2))}));  // before the size is known
  stream.Feed(Batch({St("11", "null", kA), St("21", "11", "5,6", Size(2))}));
  EXPECT_EQ(stream.Feed(Batch({Rm("20"), Rm("21,11")})), "removed device 11");
  EXPECT_EQ(unmatched(), 0u);
  EXPECT_EQ(stream.Feed(Batch({Rm("21")})), "removed device 21") << "it was removed once";
  EXPECT_EQ(unmatched(), 1u);
  stream.Feed(Batch({St("22", "11", "5,6", Size(2))}));
  EXPECT_EQ(stream.Feed(Batch({Rm("22", R"("medium":"CPU")")})), "removed host_pinned 22");
  EXPECT_EQ(unmatched(), 2u);
  // Beyond the limit the older half is forgotten.
  for (int name = 30; name < 36; ++name)
    stream.Feed(Batch({St(std::to_string(name), "11", "5,6", Size(2))}));
  EXPECT_LE(stream.translator().remembered(), 5u);
  EXPECT_GT(stream.translator().stats().forgotten_partials, 0u);
  EXPECT_EQ(stream.Feed(Batch({Rm("35,30")})), "removed device 30");
  stream.Feed(Batch({std::string(kClr)}));
  EXPECT_EQ(stream.translator().remembered(), 0u);
}

// Nobody says that a chunk is gone: it goes when the engine's clock says so, and lives longer when
// it is announced again.
TEST(Chunks, Expire) {
  auto options = StreamOptions();
  options.lenient_media = true;
  Stream stream(options);
  const auto at = [&](int seconds, const std::string& event) {
    return stream.Feed("[" + std::to_string(seconds) + ",[" + event + "],0]");
  };
  const std::string chunk = St("71", "null", kAb, R"("block_size":8,"medium":"cpu")");
  EXPECT_EQ(at(1000, St("11,12", "null", kAb)), "stored device 11=A 12=B");
  EXPECT_EQ(at(1000, chunk), "named host_pinned 11 12");
  EXPECT_EQ(at(1500, chunk), "");
  EXPECT_EQ(at(1600, Rm("11")), "removed device 11");
  EXPECT_EQ(at(2099, ""), "");
  EXPECT_EQ(at(2100, ""), "removed host_pinned 11 12");
  EXPECT_EQ(at(2200, chunk), "named host_pinned 12") << "11 has no copy left";
  EXPECT_EQ(at(9000, Rm("12")), "removed device 12; removed host_pinned 12");
  EXPECT_EQ(stream.translator().stats().unmatched_removals, 0u);
}

TEST(Chunks, LiveAsLongAsIsConfigured) {
  auto options = StreamOptions();
  options.lenient_media = true;
  options.memory.chunk_ttl = Millis{1'500};
  Stream stream(options);
  const std::string chunk = St("71", "null", kAb, R"("block_size":8,"medium":"cpu")");
  EXPECT_EQ(stream.Feed("[10,[" + St("11,12", "null", kAb) + "," + chunk + "],0]"),
            "stored device 11=A 12=B; named host_pinned 11 12");
  EXPECT_EQ(stream.Feed("[11.4,[],0]"), "");
  EXPECT_EQ(stream.Feed("[11.5,[],0]"), "removed host_pinned 11 12");
}

TEST(Chunks, AreToldBySoManyDeviceBlocks) {
  auto options = StreamOptions();
  options.lenient_media = true;
  options.memory.chunk_blocks_max = 1;
  Stream stream(options);
  EXPECT_EQ(stream.Feed(Batch({St("11,12", "null", kAb),
                               St("71", "null", kAb, R"("block_size":8,"medium":"cpu")")})),
            "stored device 11=A 12=B; named host_pinned 11");
  EXPECT_EQ(stream.translator().stats().unplaced_blocks, 1u);
}

// A batch whose time is none, in MessagePack: [ts, [chunk 71 + n], 0].
std::string AtTime(double ts, int n) {
  std::string bytes;
  wire::EventBatch batch;
  const std::array names = {EngineHash{static_cast<std::uint64_t>(71 + n)}};
  const std::array<TokenId, 8> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  batch.AddStored(names, std::nullopt, tokens, 8).medium = "cpu";
  batch.ts = ts;
  EncodeEventBatch(batch, *wire::DialectByName("maps"), bytes);
  return bytes;
}

// With whatever time of its batches: one that is no number compares with none, and would never
// pass.
TEST(Chunks, ABatchWithoutATimeKeepsTheirNumberBounded) {
  for (const double ts :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), 1e308, -1e308}) {
    SCOPED_TRACE(ts);
    auto options = StreamOptions();
    options.lenient_media = true;
    options.memory.chunks_max = 10;
    Stream stream(options);
    stream.Feed(Batch({St("11,12", "null", kAb)}));
    for (int i = 0; i < 100; ++i) {
      const std::string batch = AtTime(ts, i);
      stream.FeedBytes(std::as_bytes(std::span(batch)));
    }
    EXPECT_EQ(std::isfinite(ts) ? ts : 0, stream.batch().ts);
    EXPECT_LE(stream.translator().remembered(), 2u + 2 * 2 + 3 * 10);
  }
}

TEST(Chunks, WithRoomForSoMany) {
  auto options = StreamOptions();
  options.lenient_media = true;
  options.memory.chunks_max = 100;
  Stream stream(options);
  stream.Feed(Batch({St("11,12", "null", kAb)}));
  for (int i = 0; i < 100; ++i)
    stream.Feed(Batch(
        {St(std::to_string(1'000'000 + i), "null", kAb, R"("block_size":8,"medium":"cpu")")}));
  EXPECT_EQ(stream.translator().stats().removed_blocks, 0u);
  const std::uint64_t held = stream.translator().stats().held_removals;
  stream.Feed(Batch({St("7", "null", kAb, R"("block_size":8,"medium":"cpu")")}));
  EXPECT_EQ(stream.translator().stats().held_removals, held + 2) << "the oldest gave way";
  EXPECT_EQ(stream.translator().stats().crowded_chunks, 1u);
}

// Host copies of a group whose kind is not known yet.
TEST(HeldNames, AreBoundedAsConfigured) {
  const std::string group = R"("group_idx":5)";
  const std::string host = group + R"(,"medium":"CPU")";
  for (const std::size_t names_max : {0u, 1u, 2u}) {
    auto options = StreamOptions();
    options.memory.held_names_max = names_max;
    Stream stream(options);
    EXPECT_EQ(stream.Feed(Batch({St("21", "null", "", host), St("22", "21", "", host)})),
              "drop 0 unlearned_group; drop 1 unlearned_group");
    stream.Feed(Batch({St("11", "null", kA, group + R"(,"kv_cache_spec_kind":"full_attention")")}));
    std::size_t named = 0;
    for (const PlacementEvent& event : stream.batch().events)
      named += event.hash_only && event.tier == Tier::kHostPinned ? event.blocks.size() : 0;
    EXPECT_EQ(named, names_max);
    EXPECT_EQ(stream.batch().lost_copies, names_max < 2);
    EXPECT_EQ(stream.translator().stats().given_up_names, 2 - names_max);
  }
}

TEST(BlockSizes, AreOfOneRankAndForgottenWithTheEngine) {
  Stream stream;
  const std::string wrong = St("11", "null", kAb, Size(8));
  stream.Feed("[1.5,[" + wrong + "],0]");
  stream.Feed("[1.5,[" + St("11", "null", kA) + "],1]");
  EXPECT_EQ(stream.batch().wrong_block_size, 0u);
  stream.Feed("[1.5,[],0]");
  EXPECT_EQ(stream.batch().wrong_block_size, 8u);
  stream.translator().Reset();
  stream.Feed("[1.5,[],0]");
  EXPECT_EQ(stream.batch().wrong_block_size, 0u);
}

TEST(BlockSizes, WithoutARegisteredOneNoneIsWrong) {
  auto options = StreamOptions();
  options.block_size = 0;
  Stream stream(options);
  stream.Feed(Batch({St("11", "null", kA), St("12", "11", kAb, Size(8))}));
  EXPECT_EQ(stream.batch().events.size(), 2u);
  EXPECT_EQ(stream.batch().wrong_block_size, 0u);
}

std::string Left(std::string_view counts) {
  return R"("remaining_copy_counts":)" + std::string(counts);
}

TEST(PhysicalCopies, Rows) {
  const std::string a = "stored device 11=A";
  const struct {
    std::string_view id;
    std::vector<Step> steps;
  } rows[] = {
      {"the engine's number goes before ours",
       {{St("11", "null", kA), a},
        {Rm("11", Left("[1]")), ""},
        {Rm("11", Left("[0]")), "removed device 11"}}},
      {"... also when it is lower",
       {{St("11", "null", kA), a},
        {St("11", "null", kA), a},
        {Rm("11", Left("[0]")), "removed device 11"}}},
      {"... and counts on from there",
       {{St("11", "null", kA), a},
        {Rm("11", Left("[2]")), ""},
        {Rm("11"), ""},
        {Rm("11"), "removed device 11"}}},
      {"... for a block whose store was missed",
       {{Rm("11", Left("[1]")), ""}, {Rm("11"), "removed device 11"}}},
      {"one number a hash",
       {{St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {Rm("11,12,99", Left("[0,1,0]")), "removed device 11 99"}}},
      {"too few numbers: the rest is not known",
       {{St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {Rm("11,12", Left("[3]")), "removed device 12"}}},
      {"no number", {{St("11", "null", kA), a}, {Rm("11", Left("null")), "removed device 11"}}},
      {"a number that is none",
       {{St("11,12", "null", kAb), "stored device 11=A 12=B"},
        {Rm("11,12", Left(R"([-1,{"a":[1]}])")), "removed device 11 12"}}},
      {"no list", {{St("11", "null", kA), a}, {Rm("11", Left("7")), "removed device 11"}}},
      {"V3: two requests computed the same block",
       {{St("11", "null", kA), a},
        {St("11", "null", kA), a},
        {Rm("11"), ""},
        {Rm("11"), "removed device 11"}}},
      {"V12: evictions of the host pool that say GPU leave the host copies alone",
       {{St("11", "null", kA, R"("medium":"CPU")"), "stored host_pinned 11=A"},
        {Rm("11", R"("medium":"GPU")"), "removed device 11"},
        {Rm("11", R"("medium":"CPU")"), "removed host_pinned 11"}}},
      {"V13: chunks that overlap",
       {{St("11,12", "null", kAb, R"("medium":"CPU")"), "stored host_pinned 11=A 12=B"},
        {St("12,13", "11", "5,6,7,8,9,10,11,12", R"("medium":"CPU")"),
         "stored host_pinned <11 12=B 13=C"},
        {Rm("11,12", R"("medium":"CPU")"), "removed host_pinned 11"},
        {Rm("12,13", R"("medium":"CPU")"), "removed host_pinned 12 13"}}},
      {"V13: removals of what was never stored",
       {{Rm("77", R"("medium":"CPU")"), "removed host_pinned 77"}}},
      {"counts of tiers are apart",
       {{St("11", "null", kA), a},
        {St("11", "null", kA, R"("medium":"CPU")"), "stored host_pinned 11=A"},
        {Rm("11", R"("medium":"CPU",)" + Left("[5]")), ""},
        {Rm("11"), "removed device 11"}}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    for (const Step& step : row.steps) {
      SCOPED_TRACE(step.event);
      EXPECT_EQ(stream.Feed(Batch({step.event})), step.expected);
    }
  }
}

// What an undecodable event may have done to the copies of other blocks: a store nothing.
TEST(PhysicalCopies, OnlyALostRemovalMakesCountsDoubtful) {
  const struct {
    std::string_view id;
    std::string bad;
    std::string dropped;
    std::string then;  // what the removal of one of two copies does
  } rows[] = {
      {"a store", St("11", "null", kA, R"("extra_keys":{"x":1})"), "drop 0 decode_error", ""},
      {"a store of bad names", St(R"("no")", "null", kA), "drop 0 decode_error", ""},
      {"a positional store", R"(["BlockStored",["no"],null,[1,2,3,4],4])", "drop 0 decode_error",
       ""},
      {"a store whose tag comes last",
       R"({"block_hashes":["no"],"token_ids":[1,2,3,4],"block_size":4,"type":"BlockStored"})",
       "drop 0 decode_error", ""},
      {"an event without meaning here", R"({"type":"BlockMoved"})", "drop 0 unknown_event", ""},
      {"a removal", Rm(R"("no")"), "drop 0 decode_error", "removed device 11"},
      {"a positional removal", R"(["BlockRemoved",["no"]])", "drop 0 decode_error",
       "removed device 11"},
      {"of two tags the last counts", Rm(R"("no")", R"("type":"BlockStored","block_size":4)"),
       "drop 0 decode_error", ""},
      {"a clear", R"({"type":"AllBlocksCleared","ownership":5})", "drop 0 decode_error",
       "removed device 11"},
      {"no tag", R"({"block_hashes":[11]})", "drop 0 decode_error", "removed device 11"},
      {"a tag that is no text", R"([7,[11]])", "drop 0 decode_error", "removed device 11"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    stream.Feed(Batch({St("11", "null", kA), St("11", "null", kA)}));
    EXPECT_EQ(stream.Feed(Batch({row.bad})), row.dropped);
    EXPECT_EQ(stream.Feed(Batch({Rm("11")})), row.then);
  }
}

TEST(PhysicalCopies, ALostRemovalCountsWhereItWas) {
  const std::string bad = Rm(R"("no")");
  const std::string store = St("11", "null", kA);
  const std::string ab = "stored device 11=A; stored device 11=A; ";
  const struct {
    std::string_view id;
    std::vector<std::string> batch;
    std::string expected;
    std::string then;  // what another removal does
  } rows[] = {
      {"before the stores", {bad, store, store}, ab + "drop 0 decode_error", ""},
      {"between a store and a removal",
       {store, store, bad, Rm("11")},
       ab + "removed device 11; drop 2 decode_error",
       "removed device 11"},
      {"behind all", {store, store, bad}, ab + "drop 2 decode_error", "removed device 11"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    EXPECT_EQ(stream.Feed(Batch(row.batch)), row.expected);
    EXPECT_EQ(stream.Feed(Batch({Rm("11")})), row.then);
  }
}

TEST(PhysicalCopies, ALostRemovalIsOfItsRank) {
  const auto of = [](int rank, const std::string& event) {
    return "[1.5,[" + event + "]," + std::to_string(rank) + "]";
  };
  for (const auto& [bad, other] :
       {std::pair(Rm(R"("no")"), ""), std::pair(std::string("[7]"), "removed @1 device 11")}) {
    SCOPED_TRACE(bad);
    Stream stream;
    for (const int rank : {0, 0, 1, 1})
      stream.Feed(of(rank, St("11", "null", kA)));
    stream.Feed(of(0, bad));
    EXPECT_EQ(stream.Feed(of(0, Rm("11"))), "removed device 11");
    EXPECT_EQ(stream.Feed(of(1, Rm("11"))), other);
  }
}

TEST(PhysicalCopies, V12RemovalsThatNoStoreExplainsAreCounted) {
  Stream stream;
  stream.Feed(Batch({St("11", "null", kA), Rm("11,12"), Rm("11")}));
  EXPECT_EQ(stream.translator().stats().unmatched_removals, 2u);
  EXPECT_EQ(stream.translator().stats().removed_blocks, 3u) << "an index may know more";
}

TEST(PhysicalCopies, NumbersNeedNoTable) {
  auto options = StreamOptions();
  options.memory.counted_blocks_max = 1;
  Stream stream(options);
  stream.Feed(Batch({St("11", "null", kA), St("12", "11", kB)}));
  EXPECT_EQ(stream.Feed(Batch({Rm("12", Left("[1]"))})), "");
  EXPECT_EQ(stream.Feed(Batch({Rm("12", Left("[0]"))})), "removed device 12");
}

}  // namespace
}  // namespace kvr::test
