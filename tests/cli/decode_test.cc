#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

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
