#include <gtest/gtest.h>

#include "support/process.h"

namespace kvr::support {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kTwelve =
    "{\"block_size\":4,"
    "\"block_hashes\":[14643705804678351452,16777012769546811212,483935686894639516],"
    "\"sequence_hashes\":[14643705804678351452,4945711292740353085,12583592247330656132]}\n";

Words Hash(Words more) {
  Words words = {"hash", "--block-size", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void ExpectOutput(const ProcessOutput& done, std::string_view out) {
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, out);
  EXPECT_EQ(done.err, "");
}

std::string OneBlock(const std::string& hash) {
  return "{\"block_size\":4,\"block_hashes\":[" + hash + "],\"sequence_hashes\":[" + hash + "]}\n";
}

TEST(HashCommand, TokensAsArguments) {
  ExpectOutput(
      RunKvroute(Hash({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"})),
      kTwelve);
  ExpectOutput(RunKvroute(Hash({"1,2,3,4", "5 6 7 8", "9,10", "11", "12"})), kTwelve);
}

TEST(HashCommand, TokensFromStandardInput) {
  for (const std::string_view input :
       {"1 2 3 4 5 6 7 8 9 10 11 12", "1,2,3,4,5,6,7,8,9,10,11,12\n",
        "\n1, 2\t3\r\n4,5,,6 7 8 9 10 11 12 13", "1 2 3 4 5 6 7 8 9 10 11 12"}) {
    SCOPED_TRACE(input);
    ExpectOutput(RunKvroute(Hash({}), input), kTwelve);
  }
}

TEST(HashCommand, ALongInputComesThroughWhole) {
  std::string input;
  for (int i = 0; i < 200'000; ++i)
    input += "7 ";
  const auto done = RunKvroute({"hash", "--block-size", "100000"}, input);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const auto comma = done.out.find(',', done.out.find('['));
  const auto first = done.out.find('[') + 1;
  const std::string block = done.out.substr(first, comma - first);
  EXPECT_NE(done.out.find("[" + block + "," + block + "]"), std::string::npos) << done.out;
}

TEST(HashCommand, Identity) {
  const Words tokens = {"1", "2", "3", "4"};
  struct Row {
    Words flags;
    std::string hash;
  };
  for (const Row& row : {
           Row{{}, "14643705804678351452"},
           Row{{"--lora", ""}, "14643705804678351452"},
           Row{{"--lora", "sql"}, "14015314787876343978"},
           Row{{"--salt", "tenant-a"}, "5738685477468498325"},
           Row{{"--lora=sql", "--salt=tenant-a"}, "2292810287918939514"},
           Row{{"--mm", "0:7"}, "5863904876152881626"},
           Row{{"--mm", "0:42"}, "14000361058806882387"},
           Row{{"--mm", "0:42", "--mm", "0:7"}, "6295130183325757331"},
           Row{{"--mm", "0:0x0123456789abcdef"}, "2142804768136187117"},
           Row{{"--mm", "0:0123456789abcdef00112233445566778899aabbccddeeff0011223344556677"},
               "2142804768136187117"},
       }) {
    Words words = row.flags;
    words.insert(words.end(), tokens.begin(), tokens.end());
    SCOPED_TRACE(testing::PrintToString(words));
    ExpectOutput(RunKvroute(Hash(words)), OneBlock(row.hash));
    ExpectOutput(RunKvroute(Hash(row.flags), "1 2 3 4"), OneBlock(row.hash));
  }
}

TEST(HashCommand, MultimodalObjectsInAnyOrderOfBlocks) {
  ExpectOutput(RunKvroute(Hash({"--mm", "1:42", "--mm", "0:7", "1,2,3,4,1,2,3,4"})),
               "{\"block_size\":4,\"block_hashes\":[5863904876152881626,14000361058806882387],"
               "\"sequence_hashes\":[5863904876152881626,4856908356092111356]}\n");
}

TEST(HashCommand, Eagle) {
  ExpectOutput(RunKvroute(Hash({"--eagle"}), "1 2 3 4 5 6 7 8 9"),
               "{\"block_size\":4,\"block_hashes\":[1914873892905420881,1929047464662796003],"
               "\"sequence_hashes\":[1914873892905420881,13136491855314414045]}\n");
  ExpectOutput(RunKvroute(Hash({"--eagle"}), "1 2 3 4"),
               "{\"block_size\":4,\"block_hashes\":[],\"sequence_hashes\":[]}\n");
}

TEST(HashCommand, NoTokensIsNoBlocks) {
  for (const std::string_view input : {"", " \n", "1 2 3"}) {
    ExpectOutput(RunKvroute(Hash({}), input),
                 "{\"block_size\":4,\"block_hashes\":[],\"sequence_hashes\":[]}\n");
  }
}

TEST(HashCommand, UsageErrorsSayHowToMend) {
  struct Row {
    Words words;
    std::string input;
    std::string says;
  };
  for (const Row& row : {
           Row{{"hash"}, "", "--block-size is required"},
           Row{{"hash", "--block-size", "0"}, "", "`0` is no positive number; give the engine's"},
           Row{{"hash", "--block-size", "-4"}, "", "--block-size"},
           Row{{"hash", "--block-size", "4x"}, "", "`4x` is no positive number"},
           Row{{"hash", "--block-size", "4294967296"}, "", "is no positive number"},
           Row{{"hash", "--block-size"}, "", "--block-size"},
           Row{Hash({"1", "x"}), "", "`x` is no token id; write numbers of 0 to 4294967295"},
           Row{Hash({}), "1 2 4294967296", "`4294967296` is no token id"},
           Row{Hash({}), "[1,2]", "`[1` is no token id"},
           Row{Hash({}), "-1", "`-1` is no token id"},
           Row{Hash({}), "1.5", "`1.5` is no token id"},
           Row{Hash({"--frob", "1"}), "", "--frob"},
           Row{Hash({"--mm", "7", "1,2,3,4"}), "", "--mm `7` is not BLOCK:HASH; write the block's"},
           Row{Hash({"--mm", "0:", "1,2,3,4"}), "", "is not BLOCK:HASH"},
           Row{Hash({"--mm", ":1", "1,2,3,4"}), "", "is not BLOCK:HASH"},
           Row{Hash({"--mm", "0:0x", "1,2,3,4"}), "", "is not BLOCK:HASH"},
           Row{Hash({"--mm", "0:18446744073709551616", "1,2,3,4"}), "", "is not BLOCK:HASH"},
           Row{Hash({"--mm", "1:7", "1,2,3,4"}), "",
               "names block 1, but the 4 tokens have 1 complete blocks"},
       }) {
    SCOPED_TRACE(testing::PrintToString(row.words));
    const auto done = RunKvroute(row.words, row.input);
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_EQ(done.out, "");
    EXPECT_TRUE(done.err.starts_with("kvroute hash: ")) << done.err;
    EXPECT_NE(done.err.find(row.says), std::string::npos) << done.err;
    EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
  }
}

TEST(HashCommand, HelpNamesEveryFlag) {
  const auto done = RunKvroute({"hash", "--help"});
  EXPECT_EQ(done.exit_code, 0);
  for (const std::string_view flag :
       {"--block-size", "--lora", "--salt", "--mm", "--eagle", "tokens"})
    EXPECT_NE(done.out.find(flag), std::string::npos) << flag;
}

}  // namespace
}  // namespace kvr::support
