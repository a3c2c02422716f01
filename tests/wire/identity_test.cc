// What makes a block another block: keys that name their type, embeddings in the place of text, and
// whether the hash of a store covers all that the engine hashed ("sce" on the wire).
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hashing/block_hash.h"
#include "hashing/xxh3.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

const std::string kDigest = "0123456789abcdef" + std::string(48, '0');
constexpr std::uint64_t kDigestHash = 0x0123456789abcdef;
constexpr std::string_view kBin =
    R"({"$bytes":"c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"})";

std::string Keys(const std::string& keys, const std::string& more = {}) {
  return R"("extra_keys":)" + keys + (more.empty() ? "" : "," + more);
}

std::string Key(std::string_view type, std::string_view fields) {
  return R"({"type":")" + std::string(type) + R"(",)" + std::string(fields) + "}";
}

BlockHash LocalOf(const std::string& event) {
  Stream stream;
  stream.Feed(Batch({event}));
  EXPECT_EQ(stream.batch().events.size(), 1u) << event;
  return stream.batch().events.at(0).blocks[0].local;
}

TEST(TypedKeys, MeanWhatTheUntypedOnesMean) {
  const std::string mm =
      Key("mm", R"("modality":"image","hash":")" + kDigest + R"(","block_offset":-3)");
  const std::string name = Key("mm", R"("modality":"image","hash":"img-1","block_offset":0)");
  const std::string salt = Key("cache_salt", R"("salt":"t")");
  const std::string lora = Key("lora", R"("name":"adapter")");
  const std::string adapter = R"("lora_name":"adapter")";
  const auto legacy = [](const std::string& value) { return Key("legacy", R"("value":)" + value); };
  const struct {
    std::string_view id;
    std::string event;
    std::string local;
  } rows[] = {
      {"lora", St("11", "null", kA, Keys("[[" + lora + "]]", adapter)), Local('A', "adapter")},
      {"mm digest", St("11", "null", kA, Keys("[[" + mm + "]]")),
       Local('A', "", "", {kDigestHash})},
      {"mm name", St("11", "null", kA, Keys("[[" + name + "]]")),
       Local('A', "", "", {14770383865288705413u})},
      {"salt", St("11", "null", kA, Keys("[[" + salt + "]]")), Local('A', "", "t")},
      {"salt that looks like a digest",
       St("11", "null", kA,
          Keys("[[" + Key("cache_salt", R"("salt":")" + kDigest + R"(")") + "]]")),
       Local('A', "", kDigest)},
      {"a salt under a parent", St("11", "10", kA, Keys("[[" + salt + "]]")), Local('A', "", "t")},
      {"all of them",
       St("11", "null", kA, Keys("[[" + lora + "," + mm + "," + salt + "]]", adapter)),
       Local('A', "adapter", "t", {kDigestHash})},
      {"the type last", St("11", "null", kA, Keys(R"([[{"salt":"t","type":"cache_salt"}]])")),
       Local('A', "", "t")},
      {"fields of later versions",
       St("11", "null", kA, Keys(R"([[{"type":"cache_salt","new":[1,{"a":2}],"salt":"t"}]])")),
       Local('A', "", "t")},
      {"legacy salt", St("11", "null", kA, Keys("[[" + legacy(R"("t")") + "]]")),
       Local('A', "", "t")},
      {"legacy adapter", St("11", "null", kA, Keys("[[" + legacy(R"("adapter")") + "]]", adapter)),
       Local('A', "adapter")},
      {"legacy pair", St("11", "null", kA, Keys("[[" + legacy(R"(["img-1",0])") + "]]")),
       Local('A', "", "", {14770383865288705413u})},
      {"a salt of the second block is none",
       St("11,12", "null", "1,2,3,4,5,6,7,8", Keys("[null,[" + salt + "]]")), Local('A')},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    EXPECT_EQ(std::to_string(Raw(LocalOf(row.event))), row.local);
  }
}

// A text that looks like the salt is the salt once, in the block that begins a chain. Elsewhere it
// is what it would be without the salt: an image, or a key without a name.
TEST(Salt, IsOneTextOfTheFirstBlock) {
  const std::string digest = "\"" + kDigest + "\"";
  const std::string salt = R"("cache_salt":)";
  const auto second = [](const std::string& event) {
    Stream stream;
    stream.Feed(Batch({event}));
    return std::to_string(Raw(stream.batch().events.at(0).blocks[1].local));
  };
  const auto two = [](const std::string& keys, const std::string& more = {}) {
    return St("11,12", "null", "1,2,3,4,5,6,7,8", Keys(keys, more));
  };
  const auto first = [](const std::string& event) { return std::to_string(Raw(LocalOf(event))); };
  EXPECT_EQ(first(two(R"([["t"],null])", salt + R"("t")")), Local('A', "", "t"));
  EXPECT_EQ(second(two("[null,[" + digest + "]]", salt + digest)),
            Local('B', "", kDigest, {kDigestHash}));
  EXPECT_EQ(first(two("[[" + digest + "," + digest + "],null]", salt + digest)),
            Local('A', "", kDigest, {kDigestHash}));
  EXPECT_EQ(first(St("11", "10", kA, Keys("[[" + digest + "]]", salt + digest))),
            Local('A', "", kDigest, {kDigestHash}));
  const std::string plain = Local('B', "", "img");
  EXPECT_EQ(second(two(R"([["img"],null])")), plain);
  EXPECT_NE(second(two(R"([["img"],["img"]])")), plain);
  EXPECT_NE(second(two(R"([null,["img"]])", salt + R"("img")")), plain);
  EXPECT_NE(first(two(R"([["img","img"],null])", salt + R"("img")")), Local('A', "", "img"));
}

TEST(TypedKeys, WithoutANameSetTheirBlockApart) {
  std::vector<std::string> seen = {Local('A'), Local('A', "", "t"), Local('A', "adapter")};
  for (const std::string& key :
       {Key("prompt_embeds", R"("hash":)" + std::string(kBin)),
        Key("prompt_embeds", R"("hash":"c9d5")"), Key("new_type", R"("hash":"c9d5")"),
        Key("lora", R"("name":"adapter")"), Key("cache_salt", R"("salt":7)"),
        Key("cache_salt", R"("value":"t")"), Key("mm", R"("hash":null)"),
        Key("legacy", R"("value":{"a":1})"), std::string(R"({"salt":"t"})"),
        std::string(R"({"type":["cache_salt"],"salt":"t"})"), std::string("{}")}) {
    SCOPED_TRACE(key);
    const auto local = std::to_string(Raw(LocalOf(St("11", "null", kA, Keys("[[" + key + "]]")))));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), local), 0);
    seen.push_back(local);
  }
}

TEST(Multimodal, AnImageUnderAnAdapterIsTheSameImage) {
  const std::string adapter = R"("lora_name":"x:y")";
  for (const std::string& key : {"[\"x:y:" + kDigest + "\",0]", "\"x:y:" + kDigest + "\""}) {
    EXPECT_EQ(std::to_string(Raw(LocalOf(St("11", "null", kA, Keys("[[" + key + "]]", adapter))))),
              Local('A', "x:y", "", {kDigestHash}));
  }
  // The prefix of another adapter is a part of the name.
  const std::string other = "z:" + kDigest;
  EXPECT_EQ(std::to_string(
                Raw(LocalOf(St("11", "null", kA, Keys("[[[\"" + other + "\",0]]]", adapter))))),
            Local('A', "x:y", "", {hashing::Xxh3(other, 0)}));
}

TEST(PromptEmbeds, BlocksMatchNothingElse) {
  const std::string zeros = "0,0,0,0";
  const std::string keyed = Keys("[[" + std::string(kBin) + "]]");
  const BlockHash embedded = LocalOf(St("11", "null", zeros, keyed));
  EXPECT_NE(embedded, LocalOf(St("11", "null", zeros)));
  EXPECT_EQ(embedded, LocalOf(St("99", "null", zeros, keyed))) << "the digest names the content";

  auto options = StreamOptions();
  options.unmapped_keys = placement::UnmappedKeys::kIgnore;
  Stream lenient(options);
  lenient.Feed(Batch({St("12", "null", zeros, keyed)}));
  EXPECT_EQ(lenient.batch().events[0].blocks[0].local, embedded);
}

// An event with blocks of eight tokens, or of another size.
std::string Sized(std::string_view hashes, const std::string& tokens, const std::string& more = {},
                  std::uint32_t block_size = 8) {
  return R"({"type":"BlockStored","parent_block_hash":null,"block_hashes":[)" +
         std::string(hashes) + R"(],"token_ids":[)" + tokens + R"(],"block_size":)" +
         std::to_string(block_size) + (more.empty() ? "" : "," + more) + "}";
}

placement::TranslatorOptions OfSize(std::uint32_t block_size) {
  auto options = StreamOptions();
  options.block_size = block_size;
  return options;
}

BlockHash SizedLocalOf(const std::string& event, std::uint32_t block_size = 8) {
  Stream stream(OfSize(block_size));
  stream.Feed(Batch({event}));
  EXPECT_EQ(stream.batch().events.size(), 1u) << event;
  return stream.batch().events.at(0).blocks[0].local;
}

std::string Repeated(std::string_view token, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i)
    all += (i == 0 ? "" : ",") + std::string(token);
  return all;
}

BlockHash Text(const std::vector<TokenId>& tokens) {
  return hashing::HashBlock(tokens, hashing::Seed());
}

// vLLM up to 0.16 says nothing of embeddings: all there is are ids of zero.
TEST(PromptEmbeds, BlocksOfZerosNeverAreText) {
  const std::string zeros = Repeated("0", 8);
  const BlockHash plain = Text(std::vector<TokenId>(8, 0));
  EXPECT_NE(SizedLocalOf(Sized("11", zeros)), plain);
  EXPECT_NE(SizedLocalOf(Sized("11", zeros, Keys("[null]"))), plain);
  EXPECT_NE(SizedLocalOf(Sized("11", zeros)), SizedLocalOf(Sized("12", zeros)))
      << "other embeddings may be behind them";
  EXPECT_EQ(SizedLocalOf(Sized("11", zeros)), SizedLocalOf(Sized("11", zeros)));
  EXPECT_NE(SizedLocalOf(Sized("11", Repeated("[0,0]", 8))), Text(std::vector<TokenId>(9, 0)));
  EXPECT_EQ(SizedLocalOf(Sized("11", Repeated("0", 7) + ",1")), Text({0, 0, 0, 0, 0, 0, 0, 1}));
  const std::string salt = R"("cache_salt":"a")";
  EXPECT_NE(SizedLocalOf(Sized("11", zeros, salt)), SizedLocalOf(Sized("11", zeros)));

  // In a chain, and for copies off the device, which bring no keys.
  Stream stream(OfSize(8));
  const std::string text = "1,2,3,4,5,6,7,8";
  stream.Feed(Batch(
      {Sized("11,12,13", text + "," + zeros + "," + text, Keys(R"([[["img-1",0]],null,null])"))}));
  const auto blocks = stream.batch().events[0].blocks;
  EXPECT_NE(blocks[1].local, plain);
  EXPECT_EQ(blocks[2].local, Text({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(stream.translator().stats().zero_blocks, 1u);
  EXPECT_EQ(stream.Feed(Batch({Sized("12", zeros, R"("medium":"CPU")")})), "named host_pinned 12");
  // A model whose placeholder is 0 names the object.
  const std::string image = Keys("[[[\"" + kDigest + "\",0]]]");
  EXPECT_EQ(SizedLocalOf(Sized("11", zeros, image)),
            hashing::HashBlock(std::vector<TokenId>(8, 0), hashing::Seed(),
                               std::vector<std::uint64_t>{kDigestHash}));
}

// Token 0 begins a text in many models, and is a word in others.
TEST(PromptEmbeds, ZerosInSmallBlocksAreText) {
  for (const std::uint32_t size : {1u, 2u, 4u, 7u}) {
    SCOPED_TRACE(size);
    const auto some = [&](std::string_view token, const std::string& more = {}) {
      return Sized("11", Repeated(token, size), more, size);
    };
    EXPECT_EQ(SizedLocalOf(some("0"), size), Text(std::vector<TokenId>(size, 0)));
    EXPECT_EQ(SizedLocalOf(some("0", Keys("[null]")), size), Text(std::vector<TokenId>(size, 0)));
    EXPECT_EQ(SizedLocalOf(some("[0,0]"), size), Text(std::vector<TokenId>(size + 1, 0)));
  }
  Stream pages(OfSize(1));  // all blocks of a prompt in one event
  pages.Feed(Batch({Sized("21,22,23,24", "0,5,0,6", {}, 1)}));
  const auto blocks = pages.batch().events[0].blocks;
  EXPECT_EQ(blocks[0].local, Text({0}));
  EXPECT_EQ(blocks[2].local, Text({0}));
  EXPECT_TRUE(pages.batch().events[0].eligible);
  EXPECT_EQ(pages.translator().stats().zero_blocks, 0u);
}

// Whatever names something in a block that a plain request has not keeps it from that request.
TEST(Identity, NothingThatKeysNameIsLost) {
  const std::string image = Keys("[[[\"img-1\",0]]]");
  const std::string zeros = "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0";
  auto options = StreamOptions();
  const auto local = [&](std::string_view tokens, const std::string& fields) {
    Stream stream(options);
    stream.Feed(Batch({St("11", "null", tokens, fields)}));
    EXPECT_EQ(stream.batch().blocks.size(), 1u) << fields;
    return stream.batch().blocks.empty() ? BlockHash{} : stream.batch().blocks[0].local;
  };
  const BlockHash with_image = local(kA, image);
  EXPECT_NE(with_image, local(kA, ""));
  for (const std::string_view none : {"[null]", "[]", R"([{"mm_objects":[]}])", "null"})
    EXPECT_EQ(local(kA, R"("block_mm_infos":)" + std::string(none) + "," + image), with_image);
  const BlockHash salted = local(kA, R"("cache_salt":"a")");
  EXPECT_EQ(local(kA, Keys(R"([["dynamo-cache-salt:a","dynamo-cache-salt:a"]])")), salted);
  EXPECT_NE(local(kA, Keys(R"([["dynamo-cache-salt:a","dynamo-cache-salt:b"]])")), salted);
  EXPECT_EQ(local(kA, R"("cache_salt":"a",)" + Keys(R"([["dynamo-cache-salt:b"]])")), salted)
      << "B57";
  options.block_size = 16;
  const std::string wide = R"("block_size":16)";
  const auto text = [&](std::string_view lora, std::string_view salt) {
    return hashing::HashBlock(std::vector<TokenId>(16), hashing::Seed(lora, salt));
  };
  EXPECT_NE(local(zeros, wide), text("", ""));
  EXPECT_NE(local(zeros, wide + R"(,"lora_name":"x",)" + Keys(R"([["x"]])")), text("x", ""));
  EXPECT_NE(local(zeros, wide + "," + Keys(R"([["a"]])")), text("", "a"));
}

TEST(Eligible, OnlyWhenTheHashCoversAllThatTheEngineHashed) {
  const std::string cpu = R"("medium":"CPU")";
  const std::string device = St("11", "null", kA);
  const std::string image = St("11", "null", kA, Keys("[[[\"img-1\",0]]]"));
  const struct {
    std::string_view id;
    std::vector<std::string> events;  // what is asked of the last
    bool eligible;
  } rows[] = {
      {"text", {device}, true},
      {"keys told to be none", {St("11", "null", kA, Keys("[null]"))}, true},
      {"an adapter by name", {St("11", "null", kA, R"("lora_name":"x")")}, true},
      {"an adapter by number", {St("11", "null", kA, R"("lora_id":3)")}, false},
      {"a salt", {St("11", "null", kA, R"("cache_salt":"a")")}, true},
      {"an untagged salt", {St("11", "null", kA, Keys(R"([["a"]])"))}, true},
      {"zeros in a small block", {St("11", "null", "0,0,0,0")}, true},
      {"a text that may be a salt", {St("11", "10", kA, Keys(R"([["a"]])"))}, false},
      {"an image", {image}, false},
      {"explicit objects",
       {St("11", "null", kA, R"("block_mm_infos":[{"mm_objects":[{"mm_hash":1}]}])")},
       false},
      {"one image among the blocks",
       {St("11,12", "null", "1,2,3,4,5,6,7,8", Keys("[null,[[\"img-1\",0]]]"))},
       false},
      {"an image that an empty list of objects does not name",
       {St("11", "null", kA, R"("block_mm_infos":[null],)" + Keys("[[[\"img-1\",0]]]"))},
       false},
      {"two tagged salts",
       {St("11", "null", kA, Keys(R"([["dynamo-cache-salt:a","dynamo-cache-salt:b"]])"))},
       false},
      {"one tagged salt, twice",
       {St("11", "null", kA, Keys(R"([["dynamo-cache-salt:a","dynamo-cache-salt:a"]])"))},
       true},
      {"a salt that overrules another",
       {St("11", "null", kA, R"("cache_salt":"a",)" + Keys(R"([["dynamo-cache-salt:b"]])"))},
       false},
      {"no salt that overrules another",
       {St("11", "null", kA, R"("cache_salt":"",)" + Keys(R"([["dynamo-cache-salt:b"]])"))},
       false},
      {"a salt, twice",
       {St("11", "null", kA, R"("cache_salt":"a",)" + Keys(R"([["dynamo-cache-salt:a"]])"))},
       true},
      {"an adapter by what is no number", {St("11", "null", kA, R"("lora_id":"x")")}, false},
      {"... and by name", {St("11", "null", kA, R"("lora_id":"x","lora_name":"x")")}, true},
      {"an unknown key", {St("11", "null", kA, Keys("[[7]]"))}, false},
      {"embeddings", {St("11", "null", "0,0,0,0", Keys("[[" + std::string(kBin) + "]]"))}, false},
      {"names only", {St("11", "null", "")}, false},
      {"a host copy of what the device told", {device, St("11", "null", kA, cpu)}, true},
      {"a host copy of an image", {image, St("11", "null", kA, cpu)}, false},
      {"a host copy of what nobody told", {St("11", "null", kA, cpu)}, false},
      {"a host copy of a name", {St("11", "null", ""), St("11", "null", kA, cpu)}, false},
      {"a host copy that tells", {St("11", "null", kA, cpu + "," + Keys("[null]"))}, true},
      {"a disk copy of what nobody told", {St("11", "null", kA, R"("medium":"DISK")")}, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    stream.Feed(Batch(row.events));
    ASSERT_FALSE(stream.batch().events.empty());
    EXPECT_EQ(stream.batch().events.back().eligible, row.eligible);
  }
}

}  // namespace
}  // namespace kvr::test
