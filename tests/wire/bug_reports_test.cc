// Faults reported in public of other consumers of these streams, as far as decoding and
// normalising go; the numbers are those of our collection of such reports.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "hashing/block_hash.h"
#include "support/json_msgpack.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

std::uint64_t Dropped(Stream& stream, placement::DropReason reason) {
  return stream.translator().stats().dropped[static_cast<std::size_t>(reason)];
}

std::string Count(int first, int count) {
  std::string all = std::to_string(first);
  for (int i = 1; i < count; ++i)
    all += "," + std::to_string(first + i);
  return all;
}

TEST(BugReports, R1MapsAndArraysMeanTheSame) {
  auto options = StreamOptions();
  options.block_size = 16;
  Stream maps(options);
  Stream arrays(options);
  const std::string tokens = Count(1, 16);
  maps.Feed(Batch({R"({"type":"BlockStored","block_hashes":[15760518052499183552],)"
                   R"("parent_block_hash":null,"token_ids":[)" +
                   tokens +
                   R"(],"block_size":16,"lora_id":null,"medium":"GPU","lora_name":null,)"
                   R"("extra_keys":[null],"group_idx":0,"kv_cache_spec_kind":"full_attention"})"}));
  arrays.Feed(Batch({R"(["BlockStored",[15760518052499183552],null,[)" + tokens +
                     R"(],16,null,"GPU",null,[null]])"}));
  ASSERT_EQ(maps.batch().events.size(), 1u);
  ASSERT_EQ(arrays.batch().events.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(maps.batch().events[0].blocks, arrays.batch().events[0].blocks));
  EXPECT_EQ(maps.Feed(Batch({R"({"type":"BlockRemoved","block_hashes":[15760518052499183552],)"
                             R"("medium":"GPU","group_idx":0})"})),
            "removed device 15760518052499183552");
}

TEST(BugReports, R2FormsMixWithinABatch) {
  const std::vector<std::string> events = {
      R"(["BlockStored",[11],null,[1,2,3,4],4])", St("12", "11", kB),
      R"(["BlockStored",[13],12,[9,10,11,12],4,null,null,null,null])"};
  const std::string expected = "stored device 11=A; stored device <11 12=B; stored device <12 13=C";
  Stream one;
  EXPECT_EQ(one.Feed(Batch(events)), expected);
  EXPECT_EQ(one.Feed(Batch({R"(["BlockRemoved",[13]])", Rm("12")})),
            "removed device 13; removed device 12");
  Stream two;
  EXPECT_EQ(
      two.Feed(R"({"ts":1.0,"events":[)" + events[0] + "," + events[1] + "," + events[2] + "]}"),
      expected);
}

TEST(BugReports, R4TokensWithoutHashes) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("", "null", "1,2,3,4,5,6,7,8"), St("11", "null", kA)})),
            "stored device 11=A; drop 0 empty_store");
  EXPECT_EQ(stream.Feed(Batch({St("", "null", "")})), "drop 0 empty_store");
  EXPECT_EQ(stream.Feed(Batch({St("11,12", "null", "")})), "named device 11 12");
}

TEST(BugReports, R5ABlockThatIsItsOwnParent) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA), St("12", "12", kB),
                               St("13,13", "11", "5,6,7,8,9,10,11,12"), St("11", "11", kB),
                               St("14", "11", kB)})),
            "stored device 11=A; stored device <11 14=B; drop 1 self_referencing; "
            "drop 2 self_referencing; drop 3 self_referencing");
}

TEST(BugReports, R7DigestsAndIntegersAreOneName) {
  Stream stream;
  const std::string digest =
      R"({"$bytes":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0102030405060708"})";
  EXPECT_EQ(stream.Feed(Batch({St(digest, "null", kA), St("12", "72623859790382856", kB),
                               Rm("72623859790382856")})),
            "stored device 72623859790382856=A; stored device <72623859790382856 12=B; "
            "removed device 72623859790382856");
  EXPECT_EQ(stream.Feed(Batch({St(R"({"$bytes":"0000000b"})", "null", kA),
                               St(R"({"$bytes":""})", "null", kB), St(R"("11")", "null", kB)})),
            "stored device 11=A; drop 1 decode_error; drop 2 decode_error");
}

TEST(BugReports, R8OneTokenOutOfRange) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA), St("12", "11", "5,6,7,4294967296"),
                               St("13", "null", "-1,2,3,4"), St("14", "null", kX)})),
            "stored device 11=A; stored device 14=X; drop 1 decode_error; drop 2 decode_error");
  std::vector<std::string> events(1000, St("13", "null", "-1,2,3,4"));
  events.insert(events.begin(), St("21", "null", kA));
  events.push_back(St("22", "21", kB));
  stream.Feed(Batch(events));
  EXPECT_EQ(stream.batch().events.size(), 2u);
  EXPECT_EQ(Dropped(stream, placement::DropReason::kDecodeError), 1002u);
}

TEST(BugReports, R10AnAdapterIsNoImage) {
  const std::string both =
      "stored device 11=" + Local('A', "adapter-116") + " 12=" + Local('B', "adapter-116");
  const std::string more = R"("lora_id":117,"lora_name":"adapter-116")";
  const std::string keys = R"(,"extra_keys":[["adapter-116"],["adapter-116"]])";
  for (const std::string& fields : {more, more + keys}) {
    Stream stream;
    EXPECT_EQ(stream.Feed(Batch({St("11,12", "null", "1,2,3,4,5,6,7,8", fields)})), both);
  }
  Stream salted;
  EXPECT_EQ(salted.Feed(Batch({St("11,12", "null", "1,2,3,4,5,6,7,8",
                                  more + R"(,"extra_keys":[["adapter-116","dynamo-cache-salt:t1"],)"
                                         R"(["adapter-116"]])")})),
            "stored device 11=" + Local('A', "adapter-116", "t1") +
                " 12=" + Local('B', "adapter-116", "t1"));
}

TEST(BugReports, R11OneHashUnderTwoSalts) {
  Stream stream;
  stream.Feed(Batch(
      {St("11", "null", kA, R"("cache_salt":"a")"), St("11", "null", kA, R"("cache_salt":"b")")}));
  EXPECT_EQ(stream.Feed(Batch({St("12", "11", kB)})), "drop 0 ambiguous_cache_namespace");
  // An index holds both contents; a removal that is held back would leave one for ever.
  EXPECT_EQ(stream.Feed(Batch({Rm("11")})), "removed device 11");
  EXPECT_EQ(stream.Feed(Batch({Rm("11")})), "removed device 11");
}

// What a request hashes for a block of four placeholders that shows these objects.
std::string Placeholders(std::vector<hashing::MmHash> objects) {
  const std::vector<TokenId> window(4, 9);
  return std::to_string(Raw(hashing::HashBlock(window, hashing::Seed(), objects)));
}

std::string Image(std::string_view last_digits) {
  return "00000000000000" + std::string(last_digits) + std::string(48, '0');
}

TEST(BugReports, R13ImagesDifferAndOnlyTheirOwnBlocks) {
  const auto keys = [](const std::string& block) { return R"("extra_keys":[)" + block + "]"; };
  const auto key = [](std::string_view digits, int offset) {
    return R"([")" + Image(digits) + "\"," + std::to_string(offset) + "]";
  };
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11,12,13", "null", "1,2,3,4,9,9,9,9,5,6,7,8",
                                  keys("null,[" + key("aa", 0) + "],null"))})),
            "stored device 11=A 12=" + Placeholders({0xaa}) + " 13=B !eligible");
  EXPECT_NE(Placeholders({0xaa}), Placeholders({0xbb}));
  EXPECT_NE(Placeholders({0xaa}), Placeholders({}));

  const std::pair<std::string, std::vector<hashing::MmHash>> rows[] = {
      {key("aa", 0) + "," + key("bb", 2), {0xaa, 0xbb}},
      {key("bb", 0) + "," + key("aa", 2), {0xaa, 0xbb}},
      {key("aa", 0) + "," + key("aa", 2), {0xaa, 0xaa}},
      {key("bb", 0), {0xbb}},
  };
  for (const auto& [block, objects] : rows) {
    Stream fresh;
    EXPECT_EQ(fresh.Feed(Batch({St("21", "null", "9,9,9,9", keys("[" + block + "]"))})),
              "stored device 21=" + Placeholders(objects) + " !eligible");
  }
  EXPECT_EQ(Placeholders({0xaa, 0xbb}), Placeholders({0xbb, 0xaa}));
  EXPECT_NE(Placeholders({0xaa, 0xaa}), Placeholders({0xaa}));
}

TEST(BugReports, R14MeaningfulDigitsOfImageHashes) {
  const std::string digits = "1111111111111111";
  const std::string zeros(48, '0');
  const std::pair<std::string, std::uint64_t> rows[] = {
      {digits + zeros, 0x1111111111111111},
      {"2222222222222222" + zeros, 0x2222222222222222},
      {zeros + digits, 0}};
  for (const auto& [name, hash] : rows) {
    Stream stream;
    EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA, R"("extra_keys":[[")" + name + R"("]])")})),
              "stored device 11=" + Local('A', "", "", {hash}) + " !eligible");
  }
}

TEST(BugReports, R16AChildOfAMissedParentKeepsItsUnknownPlace) {
  Stream late;  // block 11, which had a salt, came before
  EXPECT_EQ(late.Feed(Batch({St("12", "11", kB)})), "stored device <11 12=B")
      << "under a parent that no index knows, so that no prompt reaches it";

  Stream whole;
  EXPECT_EQ(whole.Feed(Batch({St("11", "null", kA, R"("cache_salt":"a")"), St("12", "11", kB),
                              St("13", "12", kC)})),
            "stored device 11=" + Local('A', "", "a") + "; stored device <11 12=" +
                Local('B', "", "a") + "; stored device <12 13=" + Local('C', "", "a"));
  EXPECT_EQ(whole.Feed(Batch({std::string(kClr), St("12", "11", kB)})),
            "cleared; stored device <11 12=B");
}

TEST(BugReports, R17AnAdapterReachesEveryHash) {
  const auto adapter = [](std::string_view name) {
    return R"("lora_name":")" + std::string(name) + R"(")";
  };
  std::vector<SequenceHash> ends;
  for (const std::string_view name : {"ad1", "ad2", ""}) {
    Stream stream;
    EXPECT_EQ(stream.Feed(Batch({St("11,12", "null", "1,2,3,4,5,6,7,8", adapter(name))})),
              name.empty() ? "stored device 11=A 12=B"
                           : "stored device 11=" + Local('A', name) + " 12=" + Local('B', name));
    // The request's side, by which loads are told apart as well.
    std::vector<BlockHash> blocks;
    hashing::HashBlocks(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8},
                        {.block_size = 4, .seed = hashing::Seed(name, {})}, blocks);
    const auto stored = stream.batch().events.at(0).blocks;
    EXPECT_TRUE(std::equal(
        stored.begin(), stored.end(), blocks.begin(), blocks.end(),
        [](const PlacedBlock& placed, BlockHash asked) { return placed.local == asked; }));
    std::vector<SequenceHash> chain;
    hashing::ChainHashes(blocks, chain);
    for (const SequenceHash hash : chain) {
      EXPECT_EQ(std::count(ends.begin(), ends.end(), hash), 0);
      ends.push_back(hash);
    }
  }
}

TEST(BugReports, R19SparseGroupsAreNoPrefix) {
  auto options = StreamOptions();
  options.block_size = 16;
  Stream stream(options);
  const std::string t = Count(1, 64);
  const auto store = [&](std::string_view hashes, int size, std::string_view group) {
    return St(hashes, "null", t,
              R"("block_size":)" + std::to_string(size) + "," + std::string(group));
  };
  const std::string mla = R"("group_idx":0,"kv_cache_spec_kind":"mla_attention")";
  stream.Feed(
      Batch({store("11,12,13,14", 16, mla),
             store("91", 16, R"("group_idx":1,"kv_cache_spec_kind":"sliding_window_mla")"),
             store("11,12", 4, R"("group_idx":3,"kv_cache_spec_kind":"sliding_window_mla")")}));
  ASSERT_EQ(stream.batch().events.size(), 1u);
  EXPECT_EQ(stream.batch().events[0].blocks.size(), 4u);
  EXPECT_EQ(stream.Feed(Batch({Rm("11,12", R"("group_idx":3)"), Rm("91", R"("group_idx":1)"),
                               Rm("14", R"("group_idx":0)")})),
            "removed device 14; drop 0 non_main_group; drop 1 non_main_group");
  EXPECT_EQ(Dropped(stream, placement::DropReason::kNonMainGroup), 4u);
  // A dense count is required of a main group too.
  EXPECT_EQ(stream.Feed(Batch({store("95", 16, mla)})), "drop 0 sparse_store");
}

TEST(BugReports, R20TheMainGroupMayHaveAnyNumber) {
  auto options = StreamOptions();
  options.block_size = 768;
  const std::string t = Count(1, 3840);
  const auto mamba = [&](int group) {
    return St(
        "55", "null", t,
        R"("block_size":768,"kv_cache_spec_kind":"mamba","group_idx":)" + std::to_string(group));
  };
  std::vector<std::string> events = {
      mamba(0), mamba(1), mamba(2),
      St("51,52,53,54,55", "null", t,
         R"("block_size":768,"kv_cache_spec_kind":"mla_attention","group_idx":3)")};
  std::sort(events.begin(), events.end());
  do {
    Stream stream(options);
    stream.Feed(Batch(events));
    ASSERT_EQ(stream.batch().events.size(), 1u);
    EXPECT_EQ(stream.batch().events[0].blocks.size(), 5u);
    EXPECT_EQ(stream.Feed(Batch({Rm("55", R"("group_idx":0,"kv_cache_spec_kind":"mamba")"),
                                 Rm("55", R"("group_idx":3)")})),
              "removed device 55; drop 0 non_main_group");
  } while (std::next_permutation(events.begin(), events.end()));
}

TEST(BugReports, R22AnotherBlockSizeOfTheMainGroup) {
  auto options = StreamOptions();
  options.block_size = 16;
  Stream stream(options);
  for (int i = 0; i < 10; ++i) {
    stream.Feed(Batch({St(std::to_string(100 + i), "null", Count(1, 1056),
                          R"("block_size":1056,"group_idx":2,)"
                          R"("kv_cache_spec_kind":"full_attention")"),
                       St("1", "null", Count(1, 1056),
                          R"("block_size":1056,"group_idx":0,"kv_cache_spec_kind":"mamba")")}));
  }
  EXPECT_EQ(Dropped(stream, placement::DropReason::kBlockSizeMismatch), 10u);
  EXPECT_EQ(Dropped(stream, placement::DropReason::kNonMainGroup), 10u);
  EXPECT_EQ(stream.translator().stats().mismatched_block_size, 1056u);
}

TEST(BugReports, R23RemovalsOfAnotherWindow) {
  Stream stream;
  const std::string abc = "1,2,3,4,5,6,7,8,9,10,11,12";
  const std::string window = R"("group_idx":1,"kv_cache_spec_kind":"sliding_window",)"
                             R"("kv_cache_spec_sliding_window":8)";
  stream.Feed(
      Batch({St("11,12,13", "null", abc, R"("group_idx":0,"kv_cache_spec_kind":"full_attention")"),
             St("11,12,13", "null", abc, window)}));
  for (const std::string& removal :
       {Rm("11", window), Rm("12", R"("group_idx":1)"),
        std::string(R"(["BlockRemoved",[11],"GPU",1])"),
        std::string(R"(["BlockRemoved",[11],"GPU",1,"sliding_window",8])"),
        std::string(R"(["BlockRemoved",[11],"GPU",1,"sliding_window",8,null,null])")}) {
    EXPECT_EQ(stream.Feed(Batch({removal})), "drop 0 non_main_group") << removal;
  }
  EXPECT_EQ(stream.Feed(Batch({Rm("13")})), "removed device 13");
}

TEST(BugReports, R25AParentThatWasNeverAnnounced) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA), St("13", "12", kC), St("14", "13", kD)})),
            "stored device 11=A; stored device <12 13=C; stored device <13 14=D")
      << "never from the root";
  EXPECT_EQ(stream.Feed(Batch({St("12", "11", kB), Rm("13")})),
            "stored device <11 12=B; removed device 13");
  // The piece of a block, with the place before it as its parent, has no place of its own.
  EXPECT_EQ(stream.Feed(Batch({St("15", "99", "17,18", R"("block_size":2)")})),
            "drop 0 partial_block");
}

TEST(BugReports, R28UnknownMediaAreNotTheDevice) {
  Stream stream;
  EXPECT_EQ(
      stream.Feed(Batch(
          {St("11", "null", kA, R"("medium":"FS")"),
           St("12", "null", kB, R"("medium":"OBJ","cache_salt":"a")"),
           St("13", "null", kC, R"("medium":"gpu")"), St("14", "null", kD, R"("medium":"")"),
           St("15", "null", kX, R"("medium":"GPU")"), St("16", "null", kX, R"("medium":7)")})),
      "stored device 14=D; stored device 15=X; drop 0 unknown_medium; drop 1 unknown_medium; "
      "drop 2 unknown_medium; drop 5 decode_error");
  EXPECT_EQ(stream.Feed(Batch({Rm("15", R"("medium":"FS")")})), "drop 0 unknown_medium");
  EXPECT_EQ(stream.Feed(Batch({St("17", "12", kA)})), "stored device <12 17=A");
  EXPECT_EQ(Dropped(stream, placement::DropReason::kUnknownMedium), 4u);
}

TEST(BugReports, R29StorageAndLocality) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("12", "11", kB, R"("medium":"STORAGE","locality":"LOCAL")"),
                               St("14", "13", kD, R"("medium":"STORAGE","locality":"REMOTE")"),
                               St("21", "null", kX, R"("locality":"Local")"),
                               Rm("12", R"("medium":"STORAGE","locality":"REMOTE")"),
                               R"(["BlockStored",[15],11,[5,6,7,8],4,null,"STORAGE",null,null,0,)"
                               R"("full_attention",null,"REMOTE"])"})),
            "stored disk <11 12=B; drop 1 remote_locality; drop 2 unknown_locality; "
            "drop 3 remote_locality; drop 4 remote_locality");
}

TEST(BugReports, R101BadPayloadsAreOnlyCounted) {
  Stream stream;
  for (int i = 0; i < 1000; ++i) {
    for (const std::string_view hex : {"c1", "", "a178"})
      EXPECT_TRUE(stream.FeedBytes(*FromHex(hex)).starts_with("error"));
  }
  EXPECT_EQ(stream.translator().stats().bad_batches, 3000u);
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA)})), "stored device 11=A");
}

}  // namespace
}  // namespace kvr::test
