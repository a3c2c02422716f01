#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "base/big_endian.h"
#include "base/clock.h"
#include "base/hex.h"
#include "support/json_msgpack.h"
#include "support/process.h"
#include "wire/capture_file.h"

namespace kvr::support {
namespace {

constexpr std::string_view kGolden =
    "93cb3ff80000000000009197ab426c6f636b53746f726564920102c098010203040506070804c0a347505500";
constexpr std::string_view kGoldenRest =
    R"("ok":true,"ts":1.5,"dp_rank":0,"events":[{"index":0,"type":"stored","tier":"device",)"
    R"("medium":"GPU","block_hashes":[1,2],"parent":null,"block_size":4,"tokens":8,"eagle":false,)"
    R"("lora":null,"lora_id":null,"salt":null,"salt_inherited":false,"objects":[],"unmapped_keys":[],"group":null,"kind":null,)"
    R"("window":null,"locality":null,"ownership":null,"session_id":null,)"
    R"("eligible":true,"local_hashes":[14643705804678351452,16777012769546811212],)"
    R"("left_out":0,)"
    R"("placed":[{"type":"stored","tier":"device","block_hashes":[1,2],"by_name_only":false}]}],)"
    R"("dropped":[],"facts":[]})"
    "\n";

TEST(DecodeCommand, HexLines) {
  const auto done = RunKvroute({"decode"}, kGolden);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.err, "");
  EXPECT_EQ(done.out, "{" + std::string(kGoldenRest));
}

TEST(DecodeCommand, JsonLinesKeepTheirName) {
  const auto done = RunKvroute({"decode", "--block-size", "4", "--engine", "vllm"},
                               "\n  "
                               R"({"hex":")" +
                                   std::string(kGolden) +
                                   R"(","name":"a \"b\""})"
                                   "\r\n\n");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, R"({"name":"a \"b\"",)" + std::string(kGoldenRest));
}

TEST(DecodeCommand, GarbageIsAnsweredLineByLine) {
  const auto done = RunKvroute(
      {"decode"}, "zz\n9\nc1\n{\"name\":\"x\"}\n{\"hex\":7}\n{bad\n" + std::string(kGolden) + "\n");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 7);
  EXPECT_TRUE(done.out.starts_with(
      "{\"ok\":false,\"error\":\"no hex digit at position 0\"}\n"
      "{\"ok\":false,\"error\":\"hex text has an odd number of digits (1)\"}\n"
      "{\"ok\":false,\"error\":\"no event batch: not_msgpack at byte 0 of 1\"}\n"
      "{\"name\":\"x\",\"ok\":false,"))
      << done.out;
  EXPECT_TRUE(done.out.ends_with("{" + std::string(kGoldenRest)));
}

TEST(DecodeCommand, NothingButGarbageFails) {
  const auto done = RunKvroute({"decode"}, "zz\nc1\n");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 2);
  EXPECT_NE(done.err.find("none of the 2 lines"), std::string::npos) << done.err;
}

TEST(DecodeCommand, NothingAtAllFails) {
  for (const std::string_view text : {"", "\n \n"}) {
    const auto done = RunKvroute({"decode"}, text);
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_EQ(done.out, "");
    EXPECT_NE(done.err.find("no frame in standard input"), std::string::npos) << done.err;
  }
}

TEST(DecodeCommand, DroppedEventsAreListedAndNamed) {
  // [1.5, [["BlockRemoved",[11]], ["BlockRemoved",[11],"FS"], ["AllBlocksCleared"], ["New"]], nil]
  const auto done = RunKvroute(
      {"decode"},
      "93cb3ff80000000000009492ac426c6f636b52656d6f766564910b93ac426c6f636b52656d6f766564910ba24653"
      "91b0416c6c426c6f636b73436c656172656491a34e6577c0");
  EXPECT_EQ(
      done.out,
      R"({"ok":true,"ts":1.5,"dp_rank":null,"events":[)"
      R"({"index":0,"type":"removed","tier":"device","medium":null,"block_hashes":[11],"group":null,)"
      R"("left_out":0,"placed":[{"type":"removed","tier":"device","block_hashes":[11]}]},)"
      R"({"index":1,"type":"removed","tier":null,"medium":"FS","block_hashes":[11],"group":null,"left_out":0,"placed":[]},)"
      R"({"index":2,"type":"cleared","placed":[{"type":"cleared"}]}],)"
      R"("dropped":[{"index":1,"reason":"unknown_medium","detail":"medium `FS`"},)"
      R"({"index":3,"reason":"unknown_event","detail":"type `New`","offset":64}],)"
      R"("facts":[{"name":"unmatched_removals","text":"1 removal(s) of a block that no store before )"
      R"(put there, as far as this stream was decoded: passed on, to an index that may know it"}]})"
      "\n");
}

TEST(DecodeCommand, FramesStandAloneUnlessTheyAreOneStream) {
  // Two stores of block 1, then its removal: in a stream the other copy holds it.
  const std::string store =
      "93cb3ff80000000000009195ab426c6f636b53746f7265649101c0940102030404c0\n";
  const std::string salted =
      "93cb3ff80000000000009198ab426c6f636b53746f7265649101c0940102030404c0a347505581aa63616368655f"
      "73616c74a161c0\n";
  const std::string child =
      "93cb3ff80000000000009195ab426c6f636b53746f726564910201940506070804c0\n";
  const auto alone = RunKvroute({"decode"}, salted + child);
  const auto stream = RunKvroute({"decode", "--stream"}, salted + child);
  EXPECT_NE(alone.out.find("16777012769546811212"), std::string::npos) << alone.out;
  EXPECT_EQ(stream.out.find("16777012769546811212"), std::string::npos) << stream.out;
  EXPECT_NE(RunKvroute({"decode", "--stream"}, salted + store + child)
                .out.find("ambiguous_cache_namespace"),
            std::string::npos);
}

TEST(DecodeCommand, FromAFile) {
  const auto path = std::filesystem::temp_directory_path() / "kvroute_decode_test.hex";
  std::ofstream(path) << kGolden << "\n";
  const auto done = RunKvroute({"decode", "--file", path.string()});
  std::filesystem::remove(path);
  EXPECT_EQ(done.out, "{" + std::string(kGoldenRest));
  EXPECT_EQ(RunKvroute({"decode", "--file", path.string()}).exit_code, 1);
}

// What becomes of each sample, in order: the types of its events, "!" and why where one goes no
// further, "?" for an event that has no type.
constexpr std::string_view kSampleRows[] = {
    "vllm-0.9.0-stored-int-norank: stored",
    "vllm-0.9.0-stored-lora-id: stored",
    "vllm-0.9.0-cleared: cleared",
    "vllm-0.9.1-stored-rank0: stored",
    "vllm-0.9.1-multi-event-rank3: removed removed stored cleared",
    "vllm-0.10.2-stored-u64-gpu: stored",
    "vllm-0.10.2-removed-gpu: removed",
    "vllm-0.11-gpu-int-plus-cpu-offload-bytes: stored stored",
    "vllm-0.14-stored-lora-name: stored",
    "vllm-0.17-extra-keys-all-null: stored",
    "vllm-0.17-cache-salt-first-block-only: stored",
    "vllm-0.17-mm-flat-strings: stored",
    "vllm-0.17-prompt-embeds: stored",
    "vllm-0.19-mm-id-offset-pairs: stored",
    "vllm-0.20-stored-group0: stored",
    "vllm-0.20-removed-group1: removed!unlearned_group",
    "vllm-0.22-stored-full-attention: stored",
    "vllm-0.22-sliding-window-masked-blocks: stored!non_main_group",
    "vllm-0.24-map-stored: stored",
    "vllm-0.24-map-stored-minimal: stored",
    "vllm-0.24-map-lora-mm-salt: stored",
    "vllm-0.24-map-removed: removed",
    "vllm-0.24-map-cpu-placeholder: stored",
    "vllm-0.24-map-cpu-self-describing-chunk2: stored",
    "vllm-0.24-map-all-masked-empty-hashes: stored!non_main_group",
    "vllm-0.24-map-mamba-align-sparse: stored!non_main_group",
    "vllm-mooncake-store-connector-cpu-lowercase: stored!unknown_medium stored!unknown_medium",
    "vllm-lmcache-cpu-partial-chunk-bytes: stored!unknown_medium",
    "vllm-0.26-map-fs-locality-local: stored!unknown_medium",
    "vllm-0.26-map-obj-no-locality: stored!unknown_medium",
    "vllm-0.29-map-ownership: stored!unsupported_ownership removed!unsupported_ownership",
    "vllm-main-202609-map-session-id: stored",
    "vllm-branch-full-map-batch: stored",
    "vllm-future-unknown-event-and-field: ?!unknown_event stored removed",
    "sglang-2025-stored-no-medium-no-rank: stored",
    "sglang-2025-page1-stored: stored stored",
    "sglang-2026-stored-gpu: stored stored",
    "sglang-2026-hicache-backup-demote: stored removed",
    "sglang-2026-medium-nil: removed",
    "sglang-2026-eagle-bigram: stored",
    "sglang-branch-array-component-types-index7: stored",
    "atom-array-token-offset-index12: stored",
    "sglang-202609-map-salt-session: stored",
    "sglang-202609-map-removed-cleared-rank-nil: removed cleared",
    "trtllm-native-zmq-map-removed: removed",
    "dynamo-trtllm-relay-stored-mm: stored",
    "trtllm-json-created: ignored!ignored_event",
    "trtllm-json-stored-with-partial-tail: stored",
    "trtllm-json-updated-demoted: removed",
    "trtllm-json-v2-sha256-hexhash-mm: stored",
    "mooncake-master-stored-object-key-only: stored!unsupported_ownership",
    "mooncake-master-removed: removed!unsupported_ownership",
};

std::string RowOf(simdjson::dom::element line) {
  std::map<std::uint64_t, std::string> events;
  for (const simdjson::dom::element event : line["events"].get_array())
    events[event["index"].get_uint64()] = std::string(std::string_view(event["type"]));
  for (const simdjson::dom::element dropped : line["dropped"].get_array()) {
    std::string& text = events[dropped["index"].get_uint64()];
    if (text.empty()) text = "?";
    text += "!" + std::string(std::string_view(dropped["reason"]));
  }
  std::string row = std::string(std::string_view(line["name"])) + ":";
  for (const auto& [index, text] : events)
    row += " " + text;
  return row;
}

TEST(DecodeCommand, EverySampleOfTheEngines) {
  const std::string samples = std::string(KVR_SOURCE_DIR) + "/tests/vectors/engine_samples.jsonl";
  const auto done = RunKvroute({"decode", "--file", samples});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  simdjson::dom::parser parser;
  simdjson::dom::document_stream lines;
  ASSERT_FALSE(parser.parse_many(done.out).get(lines));
  std::size_t next = 0;
  for (auto line : lines) {
    ASSERT_LT(next, std::size(kSampleRows));
    EXPECT_TRUE(bool(line["ok"])) << kSampleRows[next];
    EXPECT_EQ(RowOf(line.value()), kSampleRows[next++]);
  }
  EXPECT_EQ(next, std::size(kSampleRows));
}

// One line a frame of events, as hex.
std::string Lines(std::initializer_list<std::string_view> batches) {
  std::string lines;
  for (const std::string_view batch : batches)
    lines += ToHex(test::MsgpackFromJson(batch)) + "\n";
  return lines;
}

std::string Explain(std::string_view input, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"decode", "--stream", "--explain", "--block-size", "4"};
  words.insert(words.end(), more.begin(), more.end());
  const auto done = RunKvroute(words, input);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  return done.out;
}

constexpr std::string_view kStoreA =
    R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4}],0])";

// An event may do more than one thing to an index: all of it is told, in words and in JSON.
TEST(DecodeCommand, AllThatAnEventDoesIsTold) {
  const auto group = [](int number, int hash) {
    return fmt::format(
        R"([1.5,[{{"type":"BlockStored","block_hashes":[{}],"token_ids":[1,2,3,4],)"
        R"("block_size":4,"group_idx":{},"kv_cache_spec_kind":"full_attention"}}],0])",
        hash, number);
  };
  const std::string change = Lines({group(3, 1), group(1, 21)});
  const std::string words = Explain(change);
  EXPECT_NE(words.find("event 0 kept: 1 block stored on device, at the root, cache group 1; "
                       "1 block taken back from device"),
            std::string::npos)
      << words;
  EXPECT_NE(words.find("batch main_changes: 1 "), std::string::npos) << words;
  const auto json = RunKvroute({"decode", "--stream", "--block-size", "4"}, change).out;
  EXPECT_NE(
      json.find(R"("eligible":true,"local_hashes":[14643705804678351452],"left_out":0,)"
                R"("placed":[{"type":"removed","tier":"device","block_hashes":[1]},)"
                R"({"type":"stored","tier":"device","block_hashes":[21],"by_name_only":false}]}])"),
      std::string::npos)
      << json;

  const std::string moved = Explain(Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4,"medium":"CPU"}],0])",
       R"([1.5,[{"type":"BlockStored","block_hashes":[1],"parent_block_hash":5,"token_ids":[1,2,3,4],"block_size":4}],0])"}));
  EXPECT_NE(moved.find("kept: 1 block stored on device, under block 5; "
                       "1 block taken back from host_pinned"),
            std::string::npos)
      << moved;
}

// A rank is cleared before its event when another rank told of a larger window: no word of what the
// event itself did may be about that.
TEST(DecodeCommand, AClearBeforeAnEventIsToldApartFromIt) {
  const auto stored = [](int rank, int hash, int window) {
    return fmt::format(
        R"([{{"attention_dp_rank":{},"window_size":{},"data":{{"type":"stored","blocks":[{{)"
        R"("block_hash":{},"tokens":[{{"token_id":1}},{{"token_id":2}},{{"token_id":3}},{{"token_id":4}}]}}]}}}}])",
        rank, window, hash);
  };
  const std::string removed =
      R"([{"attention_dp_rank":1,"window_size":8,"data":{"type":"removed","block_hashes":[11]}}])";
  std::string frames;
  for (const std::string& list :
       {stored(0, 11, 8), stored(1, 11, 8), stored(0, 12, 4096), removed}) {
    frames += ToHex(std::as_bytes(std::span(list))) + "\n";
  }
  const std::string words = Explain(frames);
  const std::string last = words.substr(words.find("frame 4"));
  EXPECT_NE(last.find("event 0 dropped, non_main_group"), std::string::npos) << last;
  EXPECT_NE(last.find("event 0 all the same: all blocks of the rank cleared"), std::string::npos)
      << last;
  EXPECT_EQ(last.find(" stay"), std::string::npos) << last;
}

TEST(DecodeCommand, WhyAnItemOfAListIsNoEventIsTold) {
  const std::string list =
      R"([{"attention_dp_rank":0,"data":{"type":"removed","block_hashes":[11]}},)"
      R"({"attention_dp_rank":1,"data":{"type":"removed","block_hashes":[12]}},)"
      R"({"attention_dp_rank":0,"data":{"type":"removed","block_hashes":[NaN]}},)"
      R"({"attention_dp_rank":0,"data":{"type":"removed","block_hashes":["a"]}}])";
  const std::string words = Explain(ToHex(std::as_bytes(std::span(list))) + "\n");
  for (const std::string_view text :
       {"event 1 dropped, decode_error (second_rank, field `attention_dp_rank`) at byte 71: it is "
        "of "
        "another attention rank",
        "event 2 dropped, decode_error (bad_json) at byte 141: it is no JSON",
        "event 3 dropped, decode_error (wrong_type, field `block_hashes`) at byte 212: its bytes "
        "do not fit"}) {
    EXPECT_NE(words.find(text), std::string::npos) << words;
  }
}

TEST(DecodeCommand, TheJsonSaysWhatTheWordsSay) {
  const std::string list =
      R"([{"data":{"type":"removed","block_hashes":["a"]}},{"data":{"type":"moved"}}])";
  const auto done = RunKvroute({"decode"}, ToHex(std::as_bytes(std::span(list))) + "\n");
  for (const std::string_view text :
       {R"({"index":0,"reason":"decode_error","detail":"wrong_type, field `block_hashes`",)"
        R"("offset":1})",
        R"({"index":1,"reason":"unknown_event","detail":"type `moved`","offset":50})"}) {
    EXPECT_NE(done.out.find(text), std::string::npos) << done.out;
  }
}

TEST(DecodeCommand, RemovalsTellEveryTier) {
  const std::string tokens = R"([{"token_id":1},{"token_id":2},{"token_id":3},{"token_id":4}])";
  const auto stored = [&](std::string_view hash, std::string_view parent) {
    return fmt::format(R"({{"data":{{"type":"stored","parent_hash":{},"blocks":[)"
                       R"({{"block_hash":{},"tokens":{},"cache_level":0}}]}}}})",
                       parent, hash, tokens);
  };
  const std::string list = "[" + stored("1", "null") + "," + stored("2", "1") +
                           R"(,{"data":{"type":"updated","block_hash":2,)"
                           R"("cache_level":{"new_value":1,"old_value":0}}},)"
                           R"({"data":{"type":"removed","block_hashes":[1,2]}}])";
  const std::string words = Explain(ToHex(std::as_bytes(std::span(list))) + "\n");
  EXPECT_NE(words.find("2 blocks removed: 1 from device, 1 from host_pinned\n"), std::string::npos)
      << words;

  const std::string held = Explain(
      Lines({kStoreA, kStoreA, R"([1.5,[{"type":"BlockRemoved","block_hashes":[1,7]}],0])"}));
  EXPECT_NE(held.find("2 blocks removed from device; 1 stay, for the engine holds another copy"),
            std::string::npos)
      << held;
}

TEST(DecodeCommand, TheSaltThatABlockInheritsIsTold) {
  const std::string chain = Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4,"cache_salt":"a"}],0])",
       R"([1.5,[{"type":"BlockStored","block_hashes":[2],"parent_block_hash":1,"token_ids":[5,6,7,8],"block_size":4}],0])"});
  const std::string words = Explain(chain);
  EXPECT_NE(words.find("at the root, cache salt #1"), std::string::npos) << words;
  EXPECT_NE(words.find("under block 1, inherited cache salt #1"), std::string::npos) << words;
  const auto json = RunKvroute({"decode", "--stream"}, chain).out;
  EXPECT_NE(json.find(R"("salt":"#1","salt_inherited":false)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("salt":"#1","salt_inherited":true)"), std::string::npos) << json;
}

TEST(DecodeCommand, AnAdapterWithoutANameIsTold) {
  const std::string store = Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4,"lora_id":7}],0])"});
  EXPECT_NE(Explain(store).find("LoRA number 7 without a name, which no prompt matches"),
            std::string::npos);
  EXPECT_NE(Explain(store, {"--unmapped-keys=ignore"}).find("LoRA number 7; "), std::string::npos);
  EXPECT_NE(RunKvroute({"decode"}, store).out.find(R"("lora":null,"lora_id":7,)"),
            std::string::npos);
}

// Pieces of blocks, which no index has, are neither removed nor held.
TEST(DecodeCommand, WhatIsLeftOutOfAnEventIsTold) {
  const std::string pieces = Lines(
      {kStoreA,
       R"([1.5,[{"type":"BlockStored","block_hashes":[12],"parent_block_hash":9,"token_ids":[1,2],"block_size":2},{"type":"BlockRemoved","block_hashes":[1,12]}],0])"});
  const std::string words = Explain(pieces);
  EXPECT_NE(words.find("1 block removed from device; 1 were never in an index"), std::string::npos)
      << words;
  EXPECT_EQ(words.find(" stay"), std::string::npos) << words;
  EXPECT_NE(RunKvroute({"decode", "--stream", "--block-size", "4"}, pieces)
                .out.find(R"("block_hashes":[1,12],"group":null,"left_out":1)"),
            std::string::npos);

  const auto block = [](int name, std::string_view tokens) {
    return fmt::format(R"({{"block_hash":{},"tokens":[{}]}})", name, tokens);
  };
  constexpr std::string_view kTwo = R"({"token_id":1},{"token_id":2})";
  constexpr std::string_view kFour =
      R"({"token_id":1},{"token_id":2},{"token_id":3},{"token_id":4})";
  const std::string list = fmt::format(R"([{{"data":{{"type":"stored","blocks":[{},{},{}]}}}},)"
                                       R"({{"data":{{"type":"removed","block_hashes":[12]}}}},)"
                                       R"({{"data":{{"type":"removed","block_hashes":[11,13]}}}}])",
                                       block(11, kFour), block(12, kTwo), block(13, kFour));
  const std::string told = Explain(ToHex(std::as_bytes(std::span(list))) + "\n");
  EXPECT_NE(told.find("event 0 kept: 1 block stored on device, at the root; 2 more lack tokens"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("event 1 dropped, partial_block (1 blocks): it is of a piece of a block"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("event 2 kept: 1 block removed from device; 1 were never in an index"),
            std::string::npos)
      << told;
  EXPECT_EQ(told.find("unmatched"), std::string::npos) << told;
}

TEST(DecodeCommand, WhatIsTrueOfABatchIsTold) {
  const struct {
    std::string_view fact;
    std::string input;
  } rows[] = {
      {"batch wrong_block_size: stores have block_size 8, registered is 4",
       Lines(
           {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4,5,6,7,8],"block_size":8}],0])"})},
      {"batch unclear_group: of cache group 2",
       Lines(
           {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4,"group_idx":2}],0])"})},
      {"batch unmatched_removals: 1 ",
       Lines({kStoreA, R"([1.5,[["BlockRemoved",[1]],["BlockRemoved",[7]]],0])"})},
      {"batch lost_removals: ", Lines({R"([1.5,[["BlockRemoved",["x"]]],0])"})},
      {"batch skipped_session_ids: 1 ",
       Lines({R"([1.5,[{"type":"BlockRemoved","block_hashes":[1],"session_id":5}],0])"})},
      {"batch forget: ",
       Lines(
           {R"([1.5,[["BlockStored",[{"$bytes":"0102030405060708090a0b0c0d0e0f10"}],null,[1,2,3,4],4]],0])",
            R"([1.5,[["BlockStored",[72623859790382856],null,[1,2,3,4],4]],0])"})},
  };
  for (const auto& row : rows) {
    const std::string words = Explain(row.input);
    EXPECT_NE(words.find(row.fact), std::string::npos) << words;
  }
  const std::string quiet = Explain(Lines({kStoreA}));
  EXPECT_EQ(quiet.find("batch "), std::string::npos) << quiet;
}

TEST(DecodeCommand, ChunksThatExpireAreToldOfTheBatch) {
  const std::string chunk =
      R"({"type":"BlockStored","block_hashes":[70],"token_ids":[1,2,3,4,5,6,7,8],"block_size":8,"medium":"cpu"})";
  const std::string blocks =
      R"({"type":"BlockStored","block_hashes":[1,2],"token_ids":[1,2,3,4,5,6,7,8],"block_size":4})";
  const std::string words = Explain(Lines({"[1.5,[" + blocks + "],0]", "[1.5,[" + chunk + "],0]",
                                           R"([9000.0,[["BlockRemoved",[9]]],0])"}),
                                    {"--lenient-media"});
  EXPECT_NE(words.find("event 0 kept: 2 blocks stored on host_pinned"), std::string::npos) << words;
  EXPECT_NE(
      words.find("event 0 kept: 1 block removed from device\n  batch expired: 2 blocks removed "
                 "from host_pinned"),
      std::string::npos)
      << words;
}

TEST(DecodeCommand, LenientMediaCountForWhatIsShown) {
  const std::string removal =
      Lines({R"([1.5,[{"type":"BlockRemoved","block_hashes":[1],"medium":"cpu"}],0])"});
  const auto strict = RunKvroute({"decode"}, removal).out;
  const auto lenient = RunKvroute({"decode", "--lenient-media"}, removal).out;
  EXPECT_NE(strict.find(R"("tier":null,"medium":"cpu")"), std::string::npos) << strict;
  EXPECT_NE(lenient.find(R"("tier":"host_pinned","medium":"cpu")"), std::string::npos) << lenient;
}

// Without --stream nothing carries over: not which keys were shown, nor which window is the main
// one.
TEST(DecodeCommand, LinesAreDecodedOnTheirOwn) {
  const std::string salted = Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4,"cache_salt":"a"}],0])"});
  const std::string copy = Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[2],"token_ids":[5,6,7,8],"block_size":4,"medium":"CPU"}],0])"});
  const auto last_line = [](std::string text) {
    text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  };
  EXPECT_EQ(last_line(RunKvroute({"decode"}, salted + copy).out),
            last_line(RunKvroute({"decode"}, copy).out));
  EXPECT_NE(last_line(RunKvroute({"decode", "--stream"}, salted + copy).out),
            last_line(RunKvroute({"decode"}, copy).out));
}

TEST(DecodeCommand, LimitsOfMessagesAreThoseThatAreConfigured) {
  const std::string removals = Lines({R"([1.5,[["BlockRemoved",[1,2]],["BlockRemoved",[3]]],0])"});
  EXPECT_NE(Explain(removals).find("event 1 kept"), std::string::npos);
  const std::string events =
      RunKvroute({"decode", "--explain", "--message-events-max=1"}, removals).out;
  EXPECT_NE(events.find("dropped whole: no event batch: over_limit"), std::string::npos) << events;
  const std::string blocks = Explain(removals, {"--message-blocks-max=1"});
  EXPECT_NE(blocks.find("event 0 dropped"), std::string::npos) << blocks;
  EXPECT_NE(blocks.find("event 1 kept"), std::string::npos) << blocks;
  const std::string store = Lines(
      {R"([1.5,[["BlockStored",[1,2],null,[1,2,3,4,5,6,7,8],4],["BlockStored",[3],null,[1,2,3,4],4]],0])"});
  const std::string tokens = Explain(store, {"--message-tokens-max=7"});
  EXPECT_NE(tokens.find("event 0 dropped"), std::string::npos) << tokens;
  EXPECT_NE(tokens.find("event 1 kept"), std::string::npos) << tokens;
}

TEST(DecodeCommand, WhatSetsBlocksApartIsShownWithoutSecrets) {
  const std::string store = Lines(
      {R"([1.5,[{"type":"BlockStored","block_hashes":[1,2],"token_ids":[1,2,3,4,5,6,7,8],"block_size":4,)"
       R"("extra_keys":[[["picture-1",0]],[5,"hidden"]],"session_id":"s-1","group_idx":0,)"
       R"("kv_cache_spec_sliding_window":64}],0])"});
  const auto json = RunKvroute({"decode"}, store).out;
  EXPECT_NE(json.find(R"("objects":[{"block":0,"mm_hashes":[)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("unmapped_keys":[{"block":1,"seed":)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("window":64,)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("session_id":"s-1")"), std::string::npos) << json;
  const std::string words = Explain(store);
  EXPECT_NE(words.find("objects in 1 block (mm hashes of block 0: "), std::string::npos) << words;
  EXPECT_NE(words.find("keys without a name in 1 block"), std::string::npos) << words;
  EXPECT_NE(words.find("window 64, session `s-1`"), std::string::npos) << words;
  EXPECT_EQ((json + words).find("hidden"), std::string::npos);
}

// What `decode` prints of a capture of messages with these numbers, each with a removal of the
// second number.
std::string CaptureOf(const std::filesystem::path& path,
                      std::initializer_list<std::pair<std::uint64_t, int>> messages,
                      const std::function<ProcessOutput(const std::string&)>& decode) {
  std::filesystem::remove(path);
  auto writer = wire::CaptureWriter::Create(path.string());
  EXPECT_TRUE(writer);
  const auto source = writer->AddSource("tcp://127.0.0.1:1", "");
  EXPECT_TRUE(source);
  for (const auto& [number, hash] : messages) {
    const auto sequence = BigEndian(number);
    const auto payload = test::MsgpackFromJson(
        fmt::format(R"([1.5,[{{"type":"BlockRemoved","block_hashes":[{}]}}],0])", hash));
    const std::array<std::span<const std::byte>, 3> frames = {std::span<const std::byte>(),
                                                              sequence, payload};
    EXPECT_TRUE(writer->AddMessage(*source, Nanos{0}, frames));
  }
  EXPECT_TRUE(writer->Flush());
  const auto done = decode(path.string());
  std::filesystem::remove(path);
  return done.out;
}

// D-16 and the rows beside it: the same that an indexer does.
TEST(DecodeCommand, ACaptureIsFollowedAsALiveStreamIs) {
  const auto path = std::filesystem::temp_directory_path() / "kvroute_decode_test.kvrcap";
  const struct {
    std::string_view id;
    std::initializer_list<std::pair<std::uint64_t, int>> messages;
    std::string_view told;
  } rows[] = {
      {"a duplicate",
       {{0, 1}, {1, 2}, {1, 2}, {2, 3}},
       "message 1, after 0.000 s: passed over: repeated"},
      {"a stray",
       {{0, 1}, {1, 2}, {2, 3}, {1, 9}, {3, 4}},
       "message 1, after 0.000 s: passed over: repeated"},
      {"a late one",
       {{0, 1}, {2, 3}, {1, 2}, {3, 4}},
       "message 1, after 0.000 s: passed over: late"},
      {"a gap", {{0, 1}, {3, 2}}, "gap: messages 1 to 2 are missing\nsource 0, message 3"},
      {"a restart",
       {{0, 1}, {1, 2}, {0, 9}},
       "restart: number 0 after 1; what came before is forgotten\n"},
      {"the stray's next", {{0, 1}, {1, 2}, {2, 3}, {1, 9}, {2, 8}}, "restart: number 2 after 2"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    const std::string words = CaptureOf(path, row.messages, [](const std::string& written) {
      return RunKvroute({"decode", "--explain", "--file", written});
    });
    EXPECT_NE(words.find(row.told), std::string::npos) << words;
    const bool restarts = row.told.starts_with("restart");
    EXPECT_EQ(words.find("restart:") != std::string::npos, restarts) << words;
  }
}

// A pipe gives its first bytes once.
TEST(DecodeCommand, APipeIsAFileToo) {
  const std::string file = "/dev/stdin";
  EXPECT_EQ(RunKvroute({"decode", "--file", file}, kGolden).out, "{" + std::string(kGoldenRest));
  const auto path = std::filesystem::temp_directory_path() / "kvroute_decode_pipe.kvrcap";
  const std::string words = CaptureOf(path, {{0, 1}, {1, 2}}, [&](const std::string& written) {
    std::ifstream in(written, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    return RunKvroute({"decode", "--explain", "--file", file}, bytes);
  });
  EXPECT_NE(words.find("source 0, message 1, after"), std::string::npos) << words;
  EXPECT_EQ(RunKvroute({"decode", "--file", file}).exit_code, 1);
  EXPECT_NE(RunKvroute({"decode", "--file", file}, "\x89KVR").err.find("is no capture"),
            std::string::npos);
}

// A recording that was cut off is good for what it holds, if it holds anything.
TEST(DecodeCommand, ATornCaptureWithoutAMessageIsAFailure) {
  const auto path = std::filesystem::temp_directory_path() / "kvroute_decode_torn.kvrcap";
  CaptureOf(path, {{0, 1}, {1, 2}}, [&](const std::string& written) {
    const auto kept = [&](std::uintmax_t bytes) {
      std::filesystem::resize_file(written, bytes);
      return RunKvroute({"decode", "--explain", "--file", written});
    };
    const auto whole = std::filesystem::file_size(written);
    const auto one = kept(whole - 1);
    EXPECT_EQ(one.exit_code, 0);
    EXPECT_NE(one.err.find("as when recording was cut off"), std::string::npos) << one.err;
    const auto none = kept((whole - 1) / 3);
    EXPECT_EQ(none.exit_code, 1);
    EXPECT_EQ(none.out.find("message 0"), std::string::npos) << none.out;
    EXPECT_NE(none.err.find("as when recording was cut off"), std::string::npos) << none.err;
    return none;
  });
}

TEST(DecodeCommand, UsageErrors) {
  for (const std::string word : {"0", "-1", "x", "4x", "99999999999"}) {
    const auto done = RunKvroute({"decode", "--block-size", word});
    EXPECT_EQ(done.exit_code, 2) << word;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
  }
  EXPECT_EQ(RunKvroute({"decode", "--nonsense"}).exit_code, 2);
  for (const std::string engine : {"", "tgi"})
    EXPECT_EQ(RunKvroute({"decode", "--engine", engine}).exit_code, 2) << engine;
}

}  // namespace
}  // namespace kvr::support
