// Rows X1 to X19, N1 to N37 and C1 to C22: extra keys, the normaliser, conversion.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hashing/block_hash.h"
#include "hashing/mm_pads.h"
#include "hashing/xxh3.h"
#include "placement/drop_text.h"
#include "support/json_msgpack.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

// A stream, and what each batch of it gives.
struct Step {
  std::vector<std::string> events;
  std::string expected;
};

void Expect(std::string_view id, std::initializer_list<Step> steps) {
  SCOPED_TRACE(id);
  Stream stream;
  for (const Step& step : steps)
    EXPECT_EQ(stream.Feed(Batch(step.events)), step.expected);
}

const std::string kDigest = "0123456789abcdef" + std::string(48, '0');
constexpr std::uint64_t kDigestHash = 0x0123456789abcdef;

std::string Keys(const std::string& keys) {
  return R"("extra_keys":)" + keys;
}
std::string Quoted(const std::string& text) {
  return "\"" + text + "\"";
}

// Block A under extra keys, and perhaps a LoRA name.
std::string StA(const std::string& keys, const std::string& more = {}) {
  return St("11", "null", kA, Keys(keys) + (more.empty() ? "" : "," + more));
}

TEST(ExtraKeyRows, Salts) {
  const std::string lora = R"("lora_name":"adapter")";
  const std::string salt = Quoted("dynamo-cache-salt:t");
  Expect("X1", {{{StA("[[" + salt + "]]")}, "stored device 11=" + Local('A', "", "t")}});
  Expect("X2", {{{StA(R"([["adapter",)" + salt + "]]", lora)},
                 "stored device 11=" + Local('A', "adapter", "t")}});
  Expect("X3", {{{StA("[[" + salt + "]]", R"("lora_name":"dynamo-cache-salt:t")")},
                 "stored device 11=" + Local('A', "dynamo-cache-salt:t")}});
  Expect("X4", {{{StA(R"([["dynamo-cache-salt:"]])")}, "stored device 11=A"}});
  Expect("X8", {{{StA("[[" + Quoted("dynamo-cache-salt:" + kDigest) + "]]")},
                 "stored device 11=" + Local('A', "", kDigest)}});
  Expect("the field itself", {{{StA("[]", R"("cache_salt":"dynamo-cache-salt:t")")},
                               "stored device 11=" + Local('A', "", "t")}});
  Expect("adapter on every block",
         {{{St("11,12", "null", "1,2,3,4,5,6,7,8", Keys(R"([["adapter"],["adapter"]],)") + lora)},
           "stored device 11=" + Local('A', "adapter") + " 12=" + Local('B', "adapter")}});
}

TEST(ExtraKeyRows, MultimodalObjects) {
  const auto with = [](std::vector<std::uint64_t> mm) {
    return "stored device 11=" + Local('A', "", "", std::move(mm)) + " !eligible";
  };
  Expect("X7", {{{StA("[[" + Quoted(kDigest) + "]]")}, with({kDigestHash})}});
  Expect("X9", {{{StA("[[[" + Quoted(kDigest) + ",5]]]")}, with({kDigestHash})}});
  Expect("X9 negative offset", {{{StA("[[[" + Quoted(kDigest) + ",-3]]]")}, with({kDigestHash})}});
  Expect("X11", {{{StA(R"([[["img-1",0]]])")}, with({14770383865288705413u})}});
  Expect("X12 nil", {{{StA("[null]")}, "stored device 11=A"}});
  Expect("X12 empty", {{{StA("[[]]")}, "stored device 11=A"}});
  Expect("X12 no list", {{{StA("[]")}, "stored device 11=A"}});
  Expect("X13",
         {{{StA("[[" + Quoted(std::string(64, 'b')) + "," + Quoted(std::string(64, 'a')) + "]]")},
           with({0xaaaaaaaaaaaaaaaau, 0xbbbbbbbbbbbbbbbbu})}});
  const std::string ab = "1,2,3,4,5,6,7,8";
  Expect("X6", {{{St("11,12", "null", ab, Keys("[null,[" + Quoted(kDigest) + "]]"))},
                 "stored device 11=A 12=" + Local('B', "", "", {kDigestHash}) + " !eligible"}});
  Expect("X6 the other way round",
         {{{St("11,12", "null", ab, Keys("[[" + Quoted(kDigest) + "],null]"))},
           "stored device 11=" + Local('A', "", "", {kDigestHash}) + " 12=B !eligible"}});
  Expect("X18", {{{St("11,12", "null", ab, Keys("[null]"))}, "stored device 11=A 12=B"}});
  Expect("X19", {{{StA(R"([null,["x"],["y"]])")}, "stored device 11=A"}});
}

BlockHash LocalOf(Stream& stream, const std::string& event) {
  stream.Feed(Batch({event}));
  EXPECT_EQ(stream.batch().events.size(), 1u) << event;
  EXPECT_FALSE(stream.batch().events[0].eligible) << event;
  return stream.batch().events[0].blocks[0].local;
}

TEST(ExtraKeyRows, KeysWithoutANameSetTheirBlockApart) {
  const auto plain = hashing::HashBlock(std::array<TokenId, 4>{1, 2, 3, 4}, hashing::Seed());
  const std::string bytes = R"({"$bytes":"c9d58ba695280d69b243e1e0df813136"})";
  const std::pair<std::string_view, std::string> rows[] = {
      {"X10 two texts", R"([["tenant-a","img-1"]])"},
      {"X14 integer", "[[7]]"},
      {"X14 float", "[[0.5]]"},
      {"X14 bool", "[[true]]"},
      {"X15", "[[null]]"},
      {"X17", "[[" + bytes + "]]"},
      {"an object", R"([[{"type":"new"}]])"},
      {"a pair of bytes and number", "[[[" + bytes + ",1]]]"},
      {"a pair without a name", R"([[["",0]]])"},
  };
  std::vector<BlockHash> seen = {plain};
  for (const auto& [id, keys] : rows) {
    SCOPED_TRACE(id);
    Stream stream;
    const BlockHash local = LocalOf(stream, StA(keys));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), local), 0);
    seen.push_back(local);

    auto options = StreamOptions();
    options.unmapped_keys = placement::UnmappedKeys::kIgnore;
    Stream lenient(options);
    const bool binary = id == "X17";
    EXPECT_EQ(LocalOf(lenient, StA(keys)) == plain, !binary);
  }
}

TEST(ExtraKeyRows, OneTextInTheFirstBlockOfAChainIsTheSalt) {
  const auto with = [](std::string_view salt, std::string_view lora = {}) {
    return "stored device 11=" + Local('A', lora, salt);
  };
  const std::string hex63(63, 'a');
  Expect("X10 63 hex digits", {{{StA("[[" + Quoted(hex63) + "]]")}, with(hex63)}});
  Expect("X10 no hex", {{{StA(R"([["tenant-a"]])")}, with("tenant-a")}});
  Expect("X16", {{{StA(R"([[{"$bytes":"616263"}]])")}, with("abc")}});
  Expect("beside an adapter",
         {{{StA(R"([["x","tenant-a"]])", R"("lora_name":"x")")}, with("tenant-a", "x")}});
  Expect("beside an image",
         {{{StA("[[[" + Quoted(kDigest) + R"(,0],"tenant-a"]])")},
           "stored device 11=" + Local('A', "", "tenant-a", {kDigestHash}) + " !eligible"}});
  Expect("inherited",
         {{{StA(R"([["tenant-a"]])"), St("12", "11", kB)},
           with("tenant-a") + "; stored device <11 12=" + Local('B', "", "tenant-a")}});
}

TEST(ExtraKeyRows, ATextFurtherDownAChainIsNoSalt) {
  Stream stream;
  const BlockHash local = LocalOf(stream, St("12", "11", kB, Keys(R"([["tenant-a"]])")));
  EXPECT_NE(std::to_string(Raw(local)), Local('B'));
  EXPECT_NE(std::to_string(Raw(local)), Local('B', "", "tenant-a"));
}

TEST(ExtraKeyRows, AnAdapterThatIsOnlyANumberIsNotTheBaseModel) {
  Stream stream;
  const BlockHash first = LocalOf(stream, St("11", "null", kA, R"("lora_id":1)"));
  const BlockHash second = LocalOf(stream, St("12", "null", kA, R"("lora_id":2)"));
  EXPECT_NE(std::to_string(Raw(first)), Local('A'));
  EXPECT_NE(first, second);
  Expect("none", {{{St("11", "null", kA, R"("lora_id":0)")}, "stored device 11=A"}});
  Expect("its name tells", {{{St("11", "null", kA, R"("lora_id":1,"lora_name":"x")")},
                             "stored device 11=" + Local('A', "x")}});
}

TEST(ExtraKeyRows, X5ASaltIsOneOfTheFirstBlock) {
  Stream stream;
  stream.Feed(
      Batch({St("11,12", "null", "1,2,3,4,5,6,7,8", Keys(R"([null,["dynamo-cache-salt:t"]])"))}));
  ASSERT_EQ(stream.batch().events.size(), 1u);
  EXPECT_EQ(std::to_string(Raw(stream.batch().events[0].blocks[0].local)), Local('A'));
  const auto second = std::to_string(Raw(stream.batch().events[0].blocks[1].local));
  EXPECT_NE(second, Local('B'));
  EXPECT_NE(second, Local('B', "", "t"));
}

TEST(ExtraKeyRows, X16BytesThatAreTextReadAsText) {
  Expect("X16", {{{StA(R"([[{"$bytes":"64796e616d6f2d63616368652d73616c743a74"}]])")},
                  "stored device 11=" + Local('A', "", "t")}});
}

TEST(ExtraKeyRows, ABlockListOfAnotherTypeIsAnEventError) {
  Expect("text", {{{StA(R"(["x"])")}, "drop 0 decode_error"}});
  Expect("map", {{{StA(R"({"a":1})")}, "drop 0 decode_error"}});
}

TEST(NormaliserRows, Media) {
  for (const std::string_view medium : {"FS", "OBJ", "cpu", "gpu", "Gpu"}) {
    const std::string more = R"("medium":")" + std::string(medium) + R"(")";
    Expect("N1", {
                     {{St("11", "null", kA,
                          more + R"(,"cache_salt":"a","group_idx":3,)"
                                 R"("kv_cache_spec_kind":"full_attention")")},
                      "drop 0 unknown_medium"},
                     {{Rm("11", more)}, "drop 0 unknown_medium"},
                     {{St("12", "11", kB)}, "stored device <11 12=B"},  // no salt was learned
                     {{Rm("12", R"("group_idx":3)")}, "drop 0 unlearned_group"},
                 });
  }
  const struct {
    std::string_view id, medium, tier;
  } known[] = {{"the device by name", "GPU", "device"},
               {"the device by kind", "DEVICE", "device"},
               {"N2", "CPU", "host_pinned"},
               {"N2", "CPU_PINNED", "host_pinned"},
               {"N2", "CPU_TIER1", "host_pinned"},
               {"N3", "CPU_TIER2", "disk"},
               {"N3", "DISK", "disk"},
               {"N3", "NVME", "disk"},
               {"N3", "STORAGE", "disk"},
               {"N4", "EXTERNAL", "external"},
               {"N4", "NETWORK", "external"},
               {"N4", "REMOTE", "external"},
               {"N4", "SHARED", "external"}};
  for (const auto& row : known) {
    const std::string more = R"("medium":")" + std::string(row.medium) + R"(")";
    Expect(row.id, {{{St("11", "null", kA, more), Rm("11", more)},
                     "stored " + std::string(row.tier) + " 11=A; removed " + std::string(row.tier) +
                         " 11"}});
  }
}

TEST(NormaliserRows, LocalityAndOwnership) {
  for (const std::string_view medium : {"GPU", "CPU", "STORAGE", "EXTERNAL"}) {
    Expect(
        "N5",
        {{{St("11", "null", kA, R"("locality":"REMOTE","medium":")" + std::string(medium) + R"(")"),
           Rm("11", R"("locality":"REMOTE","medium":")" + std::string(medium) + R"(")")},
          "drop 0 remote_locality; drop 1 remote_locality"}});
  }
  Expect("N6", {{{St("11", "null", kA, R"("locality":"local")"), Rm("11", R"("locality":"")"),
                  Rm("11", R"("locality":7)")},
                 "drop 0 unknown_locality; drop 1 unknown_locality; drop 2 unknown_locality"}});
  Expect(
      "N7",
      {{{St("11", "null", kA, R"("locality":null)"), St("12", "11", kB, R"("locality":"LOCAL")")},
        "stored device 11=A; stored device <11 12=B"}});
  Expect("N8", {{{St("11", "null", kA, R"("ownership":"kvcr")"),
                  St("11", "null", kA, R"("source_kind":"kvcr")")},
                 "drop 0 unsupported_ownership; drop 1 unsupported_ownership"}});
  Expect("N9", {{{St("11", "null", kA, R"("ownership":"foo")"), St("12", "null", kB)},
                 "stored device 12=B; drop 0 unknown_ownership"}});
  Expect("N10", {{{St("11", "null", kA, R"("ownership":"foo","medium":"FS")")},
                  "drop 0 unknown_ownership"}});
  Expect("N11", {{{St("11", "null", kA, R"("locality":"REMOTE","medium":"FS")")},
                  "drop 0 remote_locality"}});
}

std::string Group(int group, std::string_view kind = {}) {
  std::string more = R"("group_idx":)" + std::to_string(group);
  if (!kind.empty()) more += R"(,"kv_cache_spec_kind":")" + std::string(kind) + R"(")";
  return more;
}

TEST(NormaliserRows, Groups) {
  const std::string full = "full_attention";
  Expect("N12", {{{St("11", "null", kA, Group(0, "mamba"))}, "drop 0 non_main_group"}});
  for (const std::string_view kind : {"full_attention", "mla_attention", "sink_full_attention"}) {
    Expect("N13", {{{St("11", "null", kA, Group(5, kind))}, "stored device 11=A"}});
  }
  for (const std::string_view kind :
       {"sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention",
        "encoder_only_attention", "cross_attention"}) {
    Expect("N12 each", {{{St("11", "null", kA, Group(5, kind))}, "drop 0 non_main_group"}});
  }
  Expect("N14", {{{St("11", "null", kA, Group(5))}, "drop 0 unlearned_group"}});
  Expect("N15", {{{St("11", "null", kA, Group(5, full)), St("12", "11", kB, Group(5))},
                  "stored device 11=A; stored device <11 12=B"}});
  Expect("N16", {{{St("11", "null", kA, Group(1, "mamba")), Rm("11", Group(1))},
                  "drop 0 non_main_group; drop 1 non_main_group"}});
  Expect("N17", {{{St("11", "null", kA, Group(0, "mamba")), St("11", "null", kA, Group(0))},
                  "drop 0 non_main_group; drop 1 non_main_group"}});
  Expect("N18", {{{St("11", "null", kA, Group(0))}, "stored device 11=A"}});
  Expect("N19", {{{St("11", "null", kA, Group(4, "new_kind")), St("11", "null", kA, Group(4))},
                  "drop 0 unknown_kind; drop 1 unknown_kind"}});
  Expect("N21", {{{Rm("11", Group(2, full)), Rm("11", Group(2))},
                  "removed device 11; drop 1 unlearned_group"}});
  Expect("N22", {{{St("11", "null", kA, Group(7) + R"(,"medium":"DISK")")}, "stored disk 11=A"},
                 {{St("11", "null", kA, Group(7, full) + R"(,"medium":"DISK")"),
                   St("12", "null", kB, Group(7))},
                  "stored disk 11=A; drop 1 unlearned_group"}});
  Expect(
      "learning outlives a clear",
      {{{St("11", "null", kA, Group(5, full)), std::string(kClr), St("12", "null", kB, Group(5))},
        "stored device 11=A; cleared; stored device 12=B"}});
}

TEST(NormaliserRows, N20GroupsAreOfOneRank) {
  Stream stream;
  const std::string store = St("11", "null", kA, Group(5, "full_attention"));
  const std::string next = St("12", "11", kB, Group(5));
  EXPECT_EQ(stream.Feed("[1.5,[" + store + "],0]"), "stored device 11=A");
  EXPECT_EQ(stream.Feed("[1.5,[" + next + "],1]"), "drop 0 unlearned_group");
  EXPECT_EQ(stream.Feed("[1.5,[" + next + "],0]"), "stored device <11 12=B");
}

constexpr std::string_view kSaltA = R"("cache_salt":"a")";
constexpr std::string_view kSaltB = R"("cache_salt":"b")";

TEST(NormaliserRows, Salts) {
  const std::string salted_a = Local('A', "", "a");
  const std::string first = "stored device 11=" + salted_a;
  const std::string cpu = R"("medium":"CPU")";
  const std::string disk = R"("medium":"STORAGE")";
  Expect("N23",
         {{{St("11", "null", kA, disk + R"(,"cache_salt":"a")")}, "stored disk 11=" + salted_a},
          {{St("12", "11", kB)}, "stored device <11 12=B"}});
  Expect("N24", {{{St("11", "null", kA, kSaltA), St("12", "11", kB), St("13", "12", kC)},
                  first + "; stored device <11 12=" + Local('B', "", "a") +
                      "; stored device <12 13=" + Local('C', "", "a")}});
  Expect("N24 with an adapter", {{{St("11", "null", kA, R"("lora_name":"x","cache_salt":"a")"),
                                   St("12", "11", kB, R"("lora_name":"x")")},
                                  "stored device 11=" + Local('A', "x", "a") +
                                      "; stored device <11 12=" + Local('B', "x", "a")}});
  Expect("N25", {{{St("11", "null", kA, kSaltA), St("12", "11", kB, cpu)},
                  first + "; stored host_pinned <11 12=" + Local('B', "", "a")}});
  Expect("N26", {{{St("11", "null", kA, kSaltA), St("12", "11", kB, disk)},
                  first + "; stored disk <11 12=B"}});
  Expect("N27", {{{St("12", "11", kB)}, "stored device <11 12=B"}});
  const Step ambiguous = {{St("11", "null", kA, kSaltA), St("11", "null", kA, kSaltB)},
                          first + "; stored device 11=" + Local('A', "", "b")};
  Expect("N28", {ambiguous, {{St("12", "11", kB)}, "drop 0 ambiguous_cache_namespace"}});
  Expect("N29", {ambiguous,
                 {{St("12", "11", kB, kSaltA)}, "stored device <11 12=" + Local('B', "", "a")}});
  Expect("N30", {{{St("11", "null", kA, kSaltA), St("11", "null", kA), St("12", "11", kB)},
                  first + "; stored device 11=A; drop 2 ambiguous_cache_namespace"}});
  Expect("salted over unsalted",
         {{{St("11", "null", kA), St("11", "null", kA, kSaltA), St("12", "11", kB)},
           "stored device 11=A; " + first + "; drop 2 ambiguous_cache_namespace"}});
  Expect("N31", {{{St("11", "null", kA, kSaltA), Rm("11"), St("12", "11", kB)},
                  first + "; removed device 11; stored device <11 12=B"}});
  Expect("N32", {ambiguous,
                 {{Rm("11"), Rm("11"), St("12", "11", kB)},
                  "removed device 11; removed device 11; drop 2 ambiguous_cache_namespace"}});
  Expect("N34", {{{St("11", "null", kA, R"("cache_salt":"")"), St("12", "11", kB)},
                  "stored device 11=A; stored device <11 12=B"}});
  Expect("N37", {{{St("11", "null", kA, kSaltA),
                   St("11", "null", kA, R"("medium":"CPU","cache_salt":"a")"), Rm("11", cpu),
                   St("12", "11", kB)},
                  first + "; stored host_pinned 11=" + salted_a + "; removed host_pinned 11" +
                      "; stored device <11 12=" + Local('B', "", "a")}});
  Expect(
      "the host copy alone keeps it",
      {{{St("11", "null", kA, kSaltA), St("11", "null", kA, R"("medium":"CPU","cache_salt":"a")"),
         Rm("11"), St("12", "11", kB)},
        first + "; stored host_pinned 11=" + salted_a + "; removed device 11" +
            "; stored device <11 12=" + Local('B', "", "a")}});
  Expect("a placeholder says nothing about salts",
         {{{St("11", "null", kA, kSaltA), St("11", "null", "", cpu), St("12", "11", kB)},
           first + "; named host_pinned 11; stored device <11 12=" + Local('B', "", "a")}});
  Expect("a host copy without keys is of the same content",
         {{{St("11", "null", kA, kSaltA), St("11", "null", kA, cpu)},
           first + "; stored host_pinned 11=" + salted_a}});
}

// Copies in host memory are announced without the keys of multimodal and other blocks.
TEST(NormaliserRows, ACopyWithoutTheKeysOfItsBlockIsPlacedByName) {
  const std::string cpu = R"("medium":"CPU")";
  const std::string image =
      St("11,12", "null", "1,2,3,4,5,6,7,8", Keys("[null,[[" + Quoted(kDigest) + ",0]]]"));
  const std::string stored =
      "stored device 11=A 12=" + Local('B', "", "", {kDigestHash}) + " !eligible";
  Expect("the image's block",
         {{{image, St("12", "11", kB, cpu)}, stored + "; named host_pinned <11 12"}});
  Expect("the text before it",
         {{{image, St("11", "null", kA, cpu)}, stored + "; stored host_pinned 11=A"}});
  Expect("an adapter's block",
         {{{St("11", "null", kA, Keys(R"([["x"]],"lora_name":"x")")),
            St("11", "null", kA, cpu + R"(,"lora_name":"x")")},
           "stored device 11=" + Local('A', "x") + "; stored host_pinned 11=" + Local('A', "x")}});
  Expect("with its keys",
         {{{image, St("12", "11", kB, cpu + "," + Keys("[[[" + Quoted(kDigest) + ",0]]]"))},
           stored + "; stored host_pinned <11 12=" + Local('B', "", "", {kDigestHash})}});
}

TEST(NormaliserRows, N33AClearIsOfOneRank) {
  Stream stream;
  const std::string store = St("11", "null", kA, kSaltA);
  const std::string child = St("12", "11", kB);
  stream.Feed("[1.5,[" + store + "],0]");
  stream.Feed("[1.5,[" + store + "],1]");
  EXPECT_EQ(stream.Feed("[1.5,[" + std::string(kClr) + "],0]"), "cleared");
  EXPECT_EQ(stream.Feed("[1.5,[" + child + "],0]"), "stored device <11 12=B");
  EXPECT_EQ(stream.Feed("[1.5,[" + child + "],1]"),
            "stored @1 device <11 12=" + Local('B', "", "a"));
}

TEST(NormaliserRows, N36PlaceholdersAreNamesOnly) {
  Expect("N36", {{{R"({"type":"BlockStored","block_hashes":[11],"parent_block_hash":null,)"
                   R"("token_ids":[],"block_size":0,"medium":"CPU"})"},
                  "named host_pinned 11"}});
}

TEST(NormaliserRows, N35AFilteredEventLeavesNoHole) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA), R"(["Ignored"])", St("12", "11", kB)})),
            "stored device 11=A; stored device <11 12=B; drop 1 ignored_event");
  EXPECT_EQ(stream.batch().event_index, (std::vector<std::uint32_t>{0, 2}))
      << "their places in the batch; what is numbered is the message";
}

TEST(ConversionRows, C9C10ParentsAndTiers) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA, R"("medium":"CPU")"),
                               St("12", "11", kB, R"("medium":"DISK")"), std::string(kClr)})),
            "stored host_pinned 11=A; stored disk <11 12=B; cleared");
  EXPECT_EQ(stream.batch().events[0].parent, std::nullopt);  // C9
  EXPECT_EQ(stream.batch().events[2].tier, Tier::kDevice);   // C10
}

TEST(ConversionRows, BlocksAreCutFromTheLeft) {
  const std::string ab = "1,2,3,4,5,6,7,8";
  Expect("C1", {{{St("11,12", "null", ab)}, "stored device 11=A 12=B"}});
  Expect("C3", {{{St("11,12", "null", "1,2,3,4,5,6,7")}, "stored device 11=A"}});
  Expect("C20", {{{St("11", "null", "1,2,3")}, "drop 0 tokens_too_short"}});
  Expect("one token too many", {{{St("11", "null", "1,2,3,4,5")}, "stored device 11=A"}});
  Expect("more tokens than the blocks hold",
         {{{St("13", "null", "1,2,3,4,5,6,7,8,9,10,11,12")}, "drop 0 sparse_store"}});
  const std::string eight = "[1,2],[2,3],[3,4],[4,5],[5,6],[6,7],[7,8]";  // 8 tokens
  Expect("C4", {{{St("11,12", "null", eight)}, "stored device 11=1914873892905420881"}});
  Expect("C5", {{{St("11,12", "null", eight + ",[8,9]")},
                 "stored device 11=1914873892905420881 12=1929047464662796003"}});
}

TEST(ConversionRows, C2AnotherBlockSizeIsNamed) {
  auto options = StreamOptions();
  options.block_size = 16;
  Stream stream(options);
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA)})), "drop 0 block_size_mismatch");
  EXPECT_EQ(stream.batch().dropped[0].block_size, 4u);
  EXPECT_EQ(stream.translator().stats().mismatched_block_size, 4u);
  EXPECT_EQ(stream.translator()
                .stats()
                .dropped[static_cast<std::size_t>(placement::DropReason::kBlockSizeMismatch)],
            1u);
}

TEST(ConversionRows, C19ABlockSizeOfZeroCutsNothing) {
  auto options = StreamOptions();
  options.block_size = 0;
  Stream stream(options);
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA, R"("block_size":0)")})),
            "drop 0 block_size_mismatch");
  EXPECT_EQ(
      stream.Feed(Batch({St("11,12", "null", kA, R"("block_size":2)")})),
      "stored device 11=" +
          std::to_string(Raw(hashing::HashBlock(std::array<TokenId, 2>{1, 2}, hashing::Seed()))) +
          " 12=" +
          std::to_string(Raw(hashing::HashBlock(std::array<TokenId, 2>{3, 4}, hashing::Seed()))));
}

// What says no size is no proof of the right one, and no proof that a wrong one was mended.
TEST(ConversionRows, AStoreWithoutABlockSizeIsAFault) {
  for (const std::string_view none : {R"("block_size":0)", R"("block_size":null)"}) {
    Stream stream;
    const std::string store = St("11", "null", kA, none);
    EXPECT_EQ(stream.Feed(Batch({store})), "drop 0 block_size_mismatch");
    EXPECT_EQ(stream.batch().wrong_block_size, placement::kNoBlockSize);
    EXPECT_EQ(placement::BlockSizeText(stream.batch().wrong_block_size), "no block_size");
    EXPECT_EQ(stream.Feed(Batch({St("12", "null", "1,2,3,4,5,6,7,8", R"("block_size":8)")})),
              "drop 0 block_size_mismatch");
    EXPECT_EQ(stream.batch().wrong_block_size, 8u);
    stream.Feed(Batch({store}));
    EXPECT_NE(stream.batch().wrong_block_size, 0u);
    stream.Feed(Batch({St("11", "null", kA)}));
    EXPECT_EQ(stream.batch().wrong_block_size, 0u);
  }
}

TEST(ConversionRows, RepeatedHashes) {
  Expect("C7", {{{St("1,1", "null", "1,2,3,4,5,6,7,8")}, "drop 0 self_referencing"}});
  Expect("C8", {{{St("7", "7", kA)}, "drop 0 self_referencing"}});
  Expect("C8 later", {{{St("6,7", "7", "1,2,3,4,5,6,7,8")}, "drop 0 self_referencing"}});
  Expect("C7 by name only", {{{St("1,1", "null", "")}, "drop 0 self_referencing"}});
  Expect("every hash is legal",
         {{{St("0", "18446744073709551615", kA)}, "stored device <18446744073709551615 0=A"}});
  std::string many = "1";
  for (int i = 2; i <= 1000; ++i)
    many += "," + std::to_string(i);
  Expect("many", {{{St(many, "1001", "")},
                   [&] {
                     std::string all = "named device <1001";
                     for (int i = 1; i <= 1000; ++i)
                       all += " " + std::to_string(i);
                     return all;
                   }()},
                  {{St(many, "1000", "")}, "drop 0 self_referencing"}});
}

TEST(ConversionRows, Identity) {
  Expect("C11", {{{St("11", "null", kA, R"("lora_name":"")")}, "stored device 11=A"}});
  Expect(
      "C12",
      {{{St("11", "null", kA, R"("lora_name":"x")")}, "stored device 11=" + Local('A', "x")},
       {{St("12", "null", kA, R"("cache_salt":"x")")}, "stored device 12=" + Local('A', "", "x")}});
  EXPECT_NE(Local('A', "x"), Local('A', "", "x"));
  const auto objects = [](std::string_view infos) {
    return St("11", "null", kA, R"("block_mm_infos":)" + std::string(infos));
  };
  const std::string one = "stored device 11=" + Local('A', "", "", {42}) + " !eligible";
  Expect("C13", {{{objects(R"([{"mm_objects":[{"mm_hash":42,"offsets":[[0,1]]}]}])")}, one},
                 {{objects(R"([{"mm_objects":[{"mm_hash":42,"offsets":[]}]}])")}, one}});
  const std::string two = "stored device 11=6295130183325757331 !eligible";
  Expect("C14", {{{objects(R"([{"mm_objects":[{"mm_hash":42},{"mm_hash":7}]}])")}, two},
                 {{objects(R"([{"mm_objects":[{"mm_hash":7},{"mm_hash":42}]}])")}, two}});
}

TEST(ConversionRows, Pads) {
  auto options = StreamOptions();
  options.image_token = 9;
  const auto plain = [](std::array<TokenId, 4> tokens) {
    return "stored device 11=" + std::to_string(Raw(hashing::HashBlock(tokens, hashing::Seed())));
  };
  const std::string vector = "stored device 11=11976489796984064783 !eligible";
  const std::string one = Keys("[[" + Quoted(kDigest) + "]]");
  const std::string two = Keys("[[" + Quoted(kDigest) + "," + Quoted(std::string(64, 'a')) + "]]");
  const TokenId pad = hashing::PadToken(kDigestHash);
  const struct {
    std::string_view id;
    std::string event, expected;
  } rows[] = {
      {"C15", St("11", "null", "1,9,9,2", one), vector},
      {"C16", St("11", "null", "1,9,9,2"), plain({1, 9, 9, 2})},
      {"C17", St("11", "null", "9,1,9,2", one), plain({pad, 1, pad, 2}) + " !eligible"},
      {"C18", St("11", "null", "1,9,9,2", two), vector},
      {"no placeholder in the block", St("11", "null", kA, one),
       "stored device 11=" + Local('A', "", "", {kDigestHash}) + " !eligible"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream(options);
    EXPECT_EQ(stream.Feed(Batch({row.event})), row.expected);
  }
}

TEST(ConversionRows, C22APayloadMayLieAnywhere) {
  const auto payload = MsgpackFromJson(Batch({St("11,12", "null", "1,2,3,4,5,6,7,8")}));
  std::vector<std::byte> room(payload.size() + 8);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::copy(payload.begin(), payload.end(), room.begin() + static_cast<std::ptrdiff_t>(shift));
    Stream stream;
    EXPECT_EQ(stream.FeedBytes(std::span(room).subspan(shift, payload.size())),
              "stored device 11=A 12=B")
        << shift;
  }
}

TEST(Copies, ABlockGoesWithItsLastCopy) {
  Expect("two copies",
         {{{St("11", "null", kA), St("11", "null", kA)}, "stored device 11=A; stored device 11=A"},
          {{Rm("11")}, ""},
          {{Rm("11")}, "removed device 11"},
          {{Rm("11")}, "removed device 11"}});  // never counted below zero
  Expect("tiers count apart",
         {{{St("11", "null", kA), St("11", "null", "", R"("medium":"CPU")"), Rm("11"),
            Rm("11", R"("medium":"CPU")")},
           "stored device 11=A; named host_pinned 11; removed device 11; removed host_pinned 11"}});
  Expect("disk counts too",
         {{{St("11", "null", kA, R"("medium":"DISK")"), St("11", "null", kA, R"("medium":"DISK")"),
            Rm("11", R"("medium":"DISK")"), Rm("11", R"("medium":"DISK")")},
           "stored disk 11=A; stored disk 11=A; removed disk 11"}});
  Expect("a hash listed twice counts twice",
         {{{St("11", "null", kA), St("11", "null", kA), Rm("11,11")},
           "stored device 11=A; stored device 11=A; removed device 11"}});
  Expect("a clear forgets", {{{St("11", "null", kA), St("11", "null", kA), std::string(kClr),
                               St("11", "null", kA), Rm("11")},
                              "stored device 11=A; stored device 11=A; cleared; "
                              "stored device 11=A; removed device 11"}});
  Expect("what was cut off is no copy",
         {{{St("11,12", "null", kA), Rm("12"), Rm("11")},
           "stored device 11=A; removed device 12; removed device 11"}});
  Expect("a removal that only partly passes",
         {{{St("11,12", "null", "1,2,3,4,5,6,7,8"), St("12", "11", kB), Rm("12,99,11")},
           "stored device 11=A 12=B; stored device <11 12=B; removed device 99 11"}});
  Expect(
      "report 11: copies of different content are not held for one another",
      {{{St("11", "null", kA, R"("lora_name":"x")"), St("11", "null", kB)},
        "stored device 11=" + Local('A', "x", "") + "; removed device 11; drop 1 ambiguous_name"},
       {{Rm("11")}, ""},
       {{Rm("11")}, "removed device 11"},
       {{St("11", "null", kA), St("11", "null", kA), Rm("11")},  // forgotten with the last one
        "stored device 11=A; stored device 11=A"}});
  Expect("a removal without hashes", {{{Rm("")}, "drop 0 empty_store"}});
}

TEST(Copies, RanksCountApart) {
  Stream stream;
  const std::string store = St("11", "null", kA);
  stream.Feed("[1.5,[" + store + "," + store + "],0]");
  stream.Feed("[1.5,[" + store + "],1]");
  EXPECT_EQ(stream.Feed("[1.5,[" + Rm("11") + "],1]"), "removed @1 device 11");
  EXPECT_EQ(stream.Feed("[1.5,[" + Rm("11") + "],0]"), "");
  EXPECT_EQ(stream.translator().stats().held_removals, 1u);
}

// A lost removal would else hold back every later one of that block.
TEST(Copies, AfterALossTheNextRemovalPassesAndSaltsStay) {
  Stream stream;
  stream.Feed(Batch({St("11", "null", kA, kSaltA), St("12", "11", kB)}));
  stream.translator().ForgetCounts();
  EXPECT_EQ(stream.Feed(Batch({St("13", "11", kC)})),
            "stored device <11 13=" + Local('C', "", "a"));
  EXPECT_EQ(
      stream.Feed(Batch({St("12", "11", kB), Rm("12"), Rm("11")})),
      "stored device <11 12=" + Local('B', "", "a") + "; removed device 12; removed device 11");
  EXPECT_EQ(stream.Feed(Batch({St("13", "11", kC, kSaltA), Rm("13")})),
            "stored device <11 13=" + Local('C', "", "a"))
      << "counted again since";
}

TEST(Translator, ARestartForgetsEverything) {
  Stream stream;
  stream.Feed(Batch({St("11", "null", kA,
                        R"("cache_salt":"a","group_idx":5,)"
                        R"("kv_cache_spec_kind":"full_attention")"),
                     St("11", "null", kA, kSaltA)}));
  stream.translator().Reset();
  EXPECT_EQ(stream.Feed(Batch({St("12", "11", kB), Rm("11"), Rm("11", Group(5))})),
            "stored device <11 12=B; removed device 11; drop 2 unlearned_group");
}

TEST(Translator, Limits) {
  auto options = StreamOptions();
  options.ranks_max = 2;
  options.memory.counted_blocks_max = 1;
  Stream stream(options);
  const std::string store = St("11", "null", kA);
  EXPECT_EQ(stream.Feed("[1.5,[" + store + "],0]"), "stored device 11=A");
  EXPECT_EQ(stream.Feed("[1.5,[" + store + "],1]"), "stored @1 device 11=A");
  EXPECT_EQ(stream.Feed("[1.5,[" + store + "],2]"), "error too_many_ranks");
  EXPECT_EQ(stream.translator().stats().bad_batches, 1u);
  // Beyond the counted blocks a removal passes at the first copy.
  EXPECT_EQ(stream.Feed(Batch({St("12", "11", kB), St("12", "11", kB), Rm("12")})),
            "stored device <11 12=B; stored device <11 12=B; removed device 12");
  EXPECT_EQ(stream.translator().stats().uncounted_blocks, 2u);
}

// However many there are, and whatever they say.
TEST(Translator, BatchesOfRanksThatNobodyFollowsTeachNothing) {
  auto options = StreamOptions();
  options.ranks_max = 2;
  bool also_three = true;
  options.follows = [&](std::uint32_t dp_rank) { return dp_rank == 3 && also_three; };
  Stream stream(options);
  const std::string store = St("11", "null", kA);
  const auto feed = [&](const std::string& events, std::uint32_t dp_rank) {
    return stream.Feed("[1.5,[" + events + "]," + std::to_string(dp_rank) + "]");
  };
  for (std::uint32_t rank = 4; rank < 2'000; ++rank) {
    ASSERT_EQ(feed(store + "," + Rm("12") + "," + std::string(kClr), rank), "");
    ASSERT_EQ(stream.batch().dp_rank, rank);
    ASSERT_EQ(stream.translator().decoded().events.size(), 3u);
  }
  EXPECT_EQ(stream.translator().remembered(), 0u);
  EXPECT_EQ(stream.translator().table_bytes(), 0u);
  EXPECT_EQ(feed(store + "," + store, 0), "stored device 11=A; stored device 11=A");
  EXPECT_EQ(feed(store, 3), "stored @3 device 11=A");
  EXPECT_EQ(feed(R"({"type":7})", 4), "") << "it can be of no other rank";
  EXPECT_EQ(stream.batch().lost_removals, placement::Concerned::kNone);
  EXPECT_EQ(feed(Rm("11"), 0), "") << "the copies are still counted";
  EXPECT_EQ(stream.translator().stats().bad_batches, 0u);
  // Whoever is followed no longer and then again begins anew: nobody saw what went in between.
  EXPECT_EQ(feed(store, 3), "stored @3 device 11=A");
  also_three = false;
  EXPECT_EQ(feed(Rm("11"), 3), "");
  also_three = true;
  EXPECT_EQ(feed(store + "," + Rm("11"), 3), "stored @3 device 11=A; removed @3 device 11");
}

// An item of a list that nobody can read may be of a rank that is followed.
TEST(Translator, AListOfAnotherRankMayHideARemoval) {
  auto options = StreamOptions();
  options.follows = [](std::uint32_t) { return false; };
  Stream stream(options);
  const std::string list = R"([{"event_id":1,"attention_dp_rank":5,"data":{"type":"removed",)"
                           R"("block_hashes":[1]}},{"event_id":2,"attention_dp_rank":5}])";
  EXPECT_EQ(stream.FeedBytes(std::as_bytes(std::span(list))), "drop 1 decode_error")
      << "it may be of a rank that is followed";
  EXPECT_EQ(stream.batch().dp_rank, 5u);
  EXPECT_EQ(stream.batch().lost_removals, placement::Concerned::kEveryRank);
}

TEST(Translator, TheRankIsTheBatchsOrTheRegistered) {
  auto options = StreamOptions();
  options.rank = Rank{WorkerId{9}, 4};
  Stream stream(options);
  for (const std::string_view none : {"", ",null"}) {
    stream.Feed("[1.5,[" + St("11", "null", kA) + "]" + std::string(none) + "]");
    EXPECT_EQ(stream.batch().events[0].rank, (Rank{WorkerId{9}, 4})) << none;
    EXPECT_EQ(stream.batch().dp_rank, std::nullopt) << none;
  }
  stream.Feed("[1.5,[" + St("11", "null", kA) + "],0]");
  EXPECT_EQ(stream.batch().events[0].rank, (Rank{WorkerId{9}, 0}));
}

}  // namespace
}  // namespace kvr::test
