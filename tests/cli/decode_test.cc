#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <simdjson.h>

#include "support/process.h"

namespace kvr::support {
namespace {

constexpr std::string_view kGolden =
    "93cb3ff80000000000009197ab426c6f636b53746f726564920102c098010203040506070804c0a347505500";
constexpr std::string_view kGoldenRest =
    R"("ok":true,"ts":1.5,"dp_rank":0,"events":[{"index":0,"type":"stored","tier":"device",)"
    R"("medium":"GPU","block_hashes":[1,2],"parent":null,"block_size":4,"tokens":8,"eagle":false,)"
    R"("lora":null,"salt":null,"group":null,"kind":null,"locality":null,"ownership":null,)"
    R"("eligible":true,"local_hashes":[14643705804678351452,16777012769546811212]}],"dropped":[]})"
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
  EXPECT_EQ(RunKvroute({"decode"}, "").exit_code, 0);
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
      R"({"index":0,"type":"removed","tier":"device","medium":null,"block_hashes":[11],"group":null},)"
      R"({"index":1,"type":"removed","tier":null,"medium":"FS","block_hashes":[11],"group":null},)"
      R"({"index":2,"type":"cleared"}],)"
      R"("dropped":[{"index":1,"reason":"unknown_medium"},{"index":3,"reason":"unknown_event"}]})"
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

TEST(DecodeCommand, UsageErrors) {
  for (const std::string word : {"0", "-1", "x", "4x", "99999999999"}) {
    const auto done = RunKvroute({"decode", "--block-size", word});
    EXPECT_EQ(done.exit_code, 2) << word;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
  }
  EXPECT_EQ(RunKvroute({"decode", "--nonsense"}).exit_code, 2);
}

}  // namespace
}  // namespace kvr::support
