// Rows T8 to T11 and B1 to B58: transport payloads, batches and events.
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "placement/drop_text.h"
#include "support/json_msgpack.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

struct Row {
  std::string_view id;
  std::string json;
  std::string expected;
};

// Each row on a stream of its own.
void Expect(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    EXPECT_EQ(stream.Feed(row.json), row.expected);
  }
}

std::string Feed(std::string_view hex) {
  Stream stream;
  const auto bytes = FromHex(hex);
  EXPECT_TRUE(bytes);
  return stream.FeedBytes(*bytes);
}

// A positional store of block A: nine elements, then `tail`.
std::string Tail(const std::string& tail) {
  return R"([1.5,[["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",null,null)" + tail + "]],0]";
}

TEST(DecodeRows, T8T9PayloadsThatAreNoBatch) {
  EXPECT_EQ(Feed(""), "error truncated");       // T8
  EXPECT_EQ(Feed("c1"), "error not_msgpack");   // T9
  EXPECT_EQ(Feed("a178"), "error wrong_type");  // a string is no batch
}

TEST(DecodeRows, T10TruncatedAnywhere) {
  EXPECT_EQ(Feed("93cb3ff80000000000"), "error truncated");
  const auto good = MsgpackFromJson(Batch({St("11", "null", kA)}));
  for (std::size_t size = 0; size < good.size(); ++size) {
    Stream stream;
    EXPECT_EQ(stream.FeedBytes(std::span(good).first(size)), "error truncated") << size;
    EXPECT_TRUE(stream.translator().decoded().events.empty());
    EXPECT_EQ(stream.FeedBytes(good), "stored device 11=A");  // the next one is fine
  }
}

TEST(DecodeRows, T11TrailingBytesAreCounted) {
  auto trailing = MsgpackFromJson(Batch({St("11", "null", kA)}));
  trailing.resize(trailing.size() + 3);
  Stream stream;
  EXPECT_EQ(stream.FeedBytes(trailing), "stored device 11=A");
  EXPECT_EQ(stream.translator().stats().trailing_bytes, 3u);
}

TEST(DecodeRows, Batches) {
  const std::string event = St("11", "null", kA);
  const std::string stored = "stored device 11=A";
  Expect({
      {"B1", "[1.5,[],0]", ""},
      {"B2", "[1.5,[" + event + "],null]", stored},
      {"B3", "[1.5,[" + event + "]]", stored},
      {"B4", "[1.5,[" + event + R"(],0,"x"])", stored},
      {"B5", R"({"ts":1.5,"events":[)" + event + "]}", stored},
      {"B5 rank first", R"({"data_parallel_rank":2,"events":[)" + event + R"(],"ts":1.5})",
       "stored @2 device 11=A"},
      {"B5 unknown key", R"({"ts":1.5,"new":{"a":[1]},"events":[)" + event + "]}", stored},
      {"B6", R"({"ts":1.5,"dp_rank":3,"events":[)" + event + "]}", "stored @3 device 11=A"},
      {"B7", "[1700000000,[" + event + "],0]", stored},
      {"B7 negative", "[-5,[" + event + "],0]", stored},
      {"B8", "[1.5,[" + event + "],-1]", "error foreign_rank"},
      {"B8 beyond the wire's 32 bits", "[1.5,[" + event + "],2147483648]", "error foreign_rank"},
      {"B9", "[1.5,[" + event + "],3]", "stored @3 device 11=A"},
      {"rank of another type", "[1.5,[" + event + R"(],"0"])", "error wrong_type"},
      {"one element", "[1.5]", "error missing_field"},
      {"no events", R"({"ts":1.5})", "error missing_field"},
      {"no ts", R"({"events":[]})", "error missing_field"},
      {"events no list", "[1.5,7,0]", "error wrong_type"},
      {"ts no number", R"(["x",[],0])", "error wrong_type"},
  });
}

TEST(DecodeRows, B10B11GoldenBytes) {
  EXPECT_EQ(  // B10
      Feed("93cb3ff80000000000009197ab426c6f636b53746f726564920102c098010203040506070804c0a3475055"
           "00"),
      "stored device 1=A 2=B");
  EXPECT_EQ(  // B11
      Feed("93cb3ff80000000000009183a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739"
           "1ffa66d656469756da343505503"),
      "removed @3 host_pinned 18446744073709551615");
}

TEST(DecodeRows, ABadEventCostsItself) {
  const std::string good = St("11", "null", kA);
  const std::string stored = "stored device 11=A";
  const auto with = [&](std::string_view id, const std::string& bad, std::string_view reason) {
    return Row{id, Batch({bad, good}), stored + "; drop 0 " + std::string(reason)};
  };
  Expect({
      with("B12", R"(["BlockStored",[1],null,["x"],4])", "decode_error"),
      with("B13", "[]", "decode_error"),
      with("B14", "7", "decode_error"),
      with("B14 nil", "null", "decode_error"),
      with("B15", R"(["BlockMoved",[1]])", "unknown_event"),
      with("B15 map", R"({"type":"BlockMoved"})", "unknown_event"),
      with("B16", R"({"block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4})", "decode_error"),
      with("tag no text", "[7,[1]]", "decode_error"),
      with("B19", R"({"type":"BlockStored","block_hashes":[1],"token_ids":[1,2,3,4]})",
           "decode_error"),
      with("B21", R"(["BlockStored",[1],null,[1,2,3,4]])", "decode_error"),
      with("removal without hashes", R"(["BlockRemoved"])", "decode_error"),
      with("B43 float", R"(["BlockStored",[1.0],null,[1,2,3,4],4])", "decode_error"),
      with("B43 string", R"(["BlockStored",["11"],null,[1,2,3,4],4])", "decode_error"),
      with("B43 nil", R"(["BlockStored",[null],null,[1,2,3,4],4])", "decode_error"),
      with("B44 empty bin", R"(["BlockStored",[{"$bytes":""}],null,[1,2,3,4],4])", "decode_error"),
      with("B47 negative", R"(["BlockStored",[1],null,[1,2,3,-1],4])", "decode_error"),
      with("B47 2^32", R"(["BlockStored",[1],null,[1,2,3,4294967296],4])", "decode_error"),
      with("B50", R"(["BlockStored",[1],null,[1,[2,3]],4])", "decode_error"),
      with("B50 pair first", R"(["BlockStored",[1],null,[[1,2],3],4])", "decode_error"),
      with("B51", R"(["BlockStored",[1],null,[[1,2,3]],4])", "decode_error"),
      with(
          "B54",
          R"({"type":"BlockStored","new":{"$raw":")" +
              [] {
                std::string deep;
                for (int i = 0; i < 10'000; ++i)
                  deep += "91";
                return deep + "c0";
              }() +
              R"("},"block_hashes":[1],"token_ids":[1,2,3,4],"block_size":4})",
          "decode_error"),
      with("B55", R"({"type":"BlockRemoved","block_hashes":[1],"medium":{"$raw":"a2c328"}})",
           "decode_error"),
      with("B55 tag", R"([{"$raw":"a2c328"}])", "decode_error"),
      with("negative block size", R"(["BlockStored",[1],null,[1,2,3,4],-4])", "decode_error"),
      with("medium no text", St("1", "null", kA, R"("medium":7)"), "decode_error"),
      with("key no text", R"({"$raw":"81c0c0"})", "decode_error"),
  });
}

// A wrong type where it touches neither which blocks are meant nor where they are.
TEST(DecodeRows, HintsOfAWrongTypeArePassedOver) {
  using wire::SkippedFields;
  const auto stored = [](std::string_view more) { return Batch({St("11", "null", kA, more)}); };
  const auto removed = [](std::string_view more) { return Batch({Rm("11", more)}); };
  const auto place7 = [](std::string_view metadata) {
    return R"([1.5,[["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",)" + std::string(metadata) +
           "]],0]";
  };
  const struct {
    std::string_view id;
    std::string json;
    std::string expected;
    SkippedFields skipped;
  } rows[] = {
      {"session", stored(R"("session_id":5)"), "stored device 11=A", {1, 0, 0, 0}},
      {"session, a map", stored(R"("session_id":{"a":[1]})"), "stored device 11=A", {1, 0, 0, 0}},
      {"session, no UTF-8",
       stored(R"("session_id":{"$raw":"a2c328"})"),
       "stored device 11=A",
       {1, 0, 0, 0}},
      {"session in its place 7",
       place7(R"({"session_id":[7],"cache_salt":"a"})"),
       "stored device 11=" + Local('A', "", "a"),
       {1, 0, 0, 0}},
      {"window",
       stored(R"("kv_cache_spec_sliding_window":-1)"),
       "stored device 11=A",
       {0, 1, 0, 0}},
      {"window, 2^32",
       stored(R"("kv_cache_spec_sliding_window":4294967296)"),
       "stored device 11=A",
       {0, 1, 0, 0}},
      {"window, text",
       stored(R"("kv_cache_spec_sliding_window":"8")"),
       "stored device 11=A",
       {0, 1, 0, 0}},
      {"both",
       stored(R"("kv_cache_spec_sliding_window":1.5,"session_id":true)"),
       "stored device 11=A",
       {1, 1, 0, 0}},
      {"token offset", stored(R"("token_offset":-4)"), "stored device 11=A", {0, 0, 1, 0}},
      {"nil is nothing wrong",
       stored(R"("kv_cache_spec_sliding_window":null,"session_id":null)"),
       "stored device 11=A",
       {}},
      {"removal",
       removed(R"("kv_cache_spec_sliding_window":[],"session_id":5)"),
       "removed device 11",
       {1, 1, 0, 0}},
      {"copies, no list",
       removed(R"("remaining_copy_counts":7)"),
       "removed device 11",
       {0, 0, 0, 1}},
      {"copies, no numbers",
       removed(R"("remaining_copy_counts":[-1,"x"])"),
       "removed device 11",
       {0, 0, 0, 1}},
      {"copies not known", removed(R"("remaining_copy_counts":[null])"), "removed device 11", {}},
      {"of an event that is lost",
       stored(R"("session_id":5,"cache_salt":5)"),
       "drop 0 decode_error",
       {}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    Stream stream;
    EXPECT_EQ(stream.Feed(row.json), row.expected);
    const auto& stats = stream.translator().stats();
    EXPECT_EQ(stats.skipped_session_ids, row.skipped.session_id);
    EXPECT_EQ(stats.skipped_windows, row.skipped.window);
    EXPECT_EQ(stats.skipped_token_offsets, row.skipped.token_offset);
    EXPECT_EQ(stats.skipped_copies_left, row.skipped.copies_left);
  }
}

// ... and where it touches that: a block under the wrong name or in the wrong place is worse than
// none.
TEST(DecodeRows, WrongTypesThatCostTheEvent) {
  for (const std::string_view more :
       {R"("parent_block_hash":"x")", R"("lora_name":5)", R"("cache_salt":5)", R"("extra_keys":5)",
        R"("block_mm_infos":5)", R"("medium":5)", R"("group_idx":-1)", R"("kv_cache_spec_kind":5)",
        R"("ownership":5)", R"("source_kind":5)", R"("backend_id":5)"}) {
    Stream stream;
    EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA, more), St("12", "null", kB)})),
              "stored device 12=B; drop 0 decode_error")
        << more;
  }
  Stream stream;  // refused, too, but by its own name
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA, R"("locality":5)")})),
            "drop 0 unknown_locality");
}

TEST(DecodeRows, MapEvents) {
  Expect({
      {"B17",
       R"([1.5,[{"block_hashes":[11],"token_ids":[1,2,3,4],"block_size":4,"type":"BlockStored"}],0])",
       "stored device 11=A"},
      {"B18", Batch({St("11", "null", kA, R"("new":{"a":{"b":[1,{"c":2}]}})")}),
       "stored device 11=A"},
      {"B20",
       R"([1.5,[{"type":"BlockStored","block_hashes":[11],"token_ids":[1,2,3,4],"block_size":4}],0])",
       "stored device 11=A"},
      {"of two keys the last counts", Batch({St("11", "null", kA, R"("block_hashes":[12])")}),
       "stored device 12=A"},
      {"... whatever the event is as one of the first",
       Batch({R"({"type":"BlockStored","block_hashes":[11],"type":"BlockRemoved"})"}),
       "removed device 11"},
      {"... which may be one that nobody knows",
       Batch({R"({"type":"BlockMoved","block_hashes":[11],"type":"BlockRemoved"})"}),
       "removed device 11"},
      {"... as the last may be",
       Batch({R"({"type":"BlockRemoved","block_hashes":[11],"type":"BlockMoved"})"}),
       "drop 0 unknown_event"},
      {"of two tags the last counts", Batch({St("11", "null", kA, R"("type":"BlockRemoved")")}),
       "removed device 11"},
  });
}

TEST(DecodeRows, PositionalEvents) {
  const auto one = [](std::string_view event) { return "[1.5,[" + std::string(event) + "],0]"; };
  const std::string stored = "stored device 11=A";
  Expect({
      {"B22", one(R"(["BlockStored",[11],null,[1,2,3,4],4])"), stored},
      {"B23", one(R"(["BlockStored",[11],null,[1,2,3,4],4,42])"),
       "stored device 11=" + NumberedAdapter('A', 42) + " !eligible"},
      {"B23 any value", one(R"(["BlockStored",[11],null,[1,2,3,4],4,[-1,{"a":2}],"CPU"])"),
       "stored host_pinned 11=A"},
      {"B24", one(R"(["BlockStored",[11],null,[1,2,3,4],4,null,"GPU","adapter"])"),
       "stored device 11=" + Local('A', "adapter")},
      {"B25",
       one(R"(["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",{"cache_salt":"a","session_id":"s"}])"),
       "stored device 11=" + Local('A', "", "a")},
      {"B26",
       one(R"(["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",null,[["dynamo-cache-salt:t"]]])"),
       "stored device 11=" + Local('A', "", "t")},
      {"component names", one(R"(["BlockStored",[11],null,[1,2,3,4],4,null,"GPU",["full","swa"]])"),
       stored},
      {"B37", one(R"(["BlockRemoved",[1]])"), "removed device 1"},
      {"B38", one(R"(["BlockRemoved",[1],"CPU",null,null,null,"REMOTE"])"),
       "drop 0 remote_locality"},
      {"B39 array", one(R"(["AllBlocksCleared"])"), "cleared"},
      {"B39 extras", one(R"(["AllBlocksCleared",null,1])"), "cleared"},
      {"B39 map", one(R"({"type":"AllBlocksCleared"})"), "cleared"},
      {"clear with a medium", one(R"(["AllBlocksCleared","GPU"])"), "cleared"},
      {"clear with an extra key", one(R"({"type":"AllBlocksCleared","extra":1})"), "cleared"},
      {"clear of another owner", one(R"(["AllBlocksCleared","kvcr"])"),
       "drop 0 unsupported_ownership"},
      {"clear of an unknown owner", one(R"({"type":"AllBlocksCleared","ownership":"x"})"),
       "drop 0 unknown_ownership"},
      {"clear of a tier is no clear", one(R"({"type":"TierBlocksCleared","medium":"GPU"})"),
       "drop 0 unknown_event"},
      {"B40", one(R"(["Ignored",1,2])"), "drop 0 ignored_event"},
      {"B41 tuple", one(R"(["BlockStored",[11],null,[1,2,3,4],4,null,""])"), stored},
      {"B41 map", Batch({St("11", "null", kA, R"("medium":"")")}), stored},
  });
}

TEST(DecodeRows, Tails) {
  const std::string stored = "stored device 11=A";
  Expect({
      {"B27", Tail(R"(,0,"full_attention",null,"LOCAL")"), stored},
      {"B28", Tail(R"(,null,null,null,"REMOTE")"), "drop 0 remote_locality"},
      {"B29", Tail(R"(,0,"full_attention",null,"LOCAL","kvcr")"), "drop 0 unsupported_ownership"},
      {"B30", Tail(",1"), "drop 0 unlearned_group"},
      {"B31", Tail(R"(,"mamba")"), "drop 0 non_main_group"},
      {"B32", Tail(R"(,3,"sliding_window",4096)"), "drop 0 non_main_group"},
      {"B33", Tail(R"(,[null],0,"full_attention")"), stored},
      {"B34", Tail(R"(,null,"full_attention",null)"), stored},
      {"B35", Tail(R"(,0,"full_attention",null,"LOCAL",null,{},7)"), stored},
      {"B36", Tail(R"(,"full_attention",0,null,"REMOTE")"), "drop 0 unknown_kind"},
      {"objects by type", Tail(R"(,[{"mm_objects":[{"mm_hash":42,"offsets":[]}]}],0)"),
       "stored device 11=" + Local('A', "", "", {42}) + " !eligible"},
      {"a list of something else", Tail(R"(,["full"],0)"), stored},
      {"a token offset names no group", Tail(",null,null,null,4"), stored},
  });
  const struct {
    std::string_view tail;
    std::uint32_t legacy;
    std::optional<std::uint32_t> group, window;
    std::string_view kind, locality, ownership;
  } rows[] = {
      {R"(,0,"full_attention",null,"LOCAL")", 0, 0, {}, "full_attention", "LOCAL", ""},
      {R"(,0,"full_attention",9,"LOCAL","kvcr")", 0, 0, 9, "full_attention", "LOCAL", "kvcr"},
      {R"(,3,"sliding_window",4096)", 1, 3, 4096, "sliding_window", "", ""},
      {R"(,null,"sliding_window",128)", 1, {}, 128, "sliding_window", "", ""},
      {R"(,1,"sliding_window",128,4096)", 1, 1, 128, "sliding_window", "", ""},
      {R"(,null,5,"mamba",8)", 1, 5, 8, "mamba", "", ""},
      {R"(,"mamba",7)", 1, 7, {}, "mamba", "", ""},
      {R"(,null,"full_attention",null)", 1, {}, {}, "full_attention", "", ""},
      {R"(,"full_attention",0,null,"REMOTE")", 1, 0, {}, "REMOTE", "", ""},
      {R"(,[null],0,"mamba",8,"LOCAL")", 1, 0, 8, "LOCAL", "", ""},
      {"", 0, {}, {}, "", "", ""},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.tail);
    wire::EventBatch batch;
    const auto bytes = MsgpackFromJson(Tail(std::string(row.tail)));
    ASSERT_TRUE(wire::DecodeEventBatch(bytes, {}, batch));
    ASSERT_EQ(batch.events.size(), 1u);
    EXPECT_EQ(batch.legacy_layouts, row.legacy);
    EXPECT_EQ(batch.events[0].group, row.group);
    EXPECT_EQ(batch.events[0].window, row.window);
    EXPECT_EQ(batch.events[0].kind_name, row.kind);
    EXPECT_EQ(batch.events[0].locality_name, row.locality);
    EXPECT_EQ(batch.events[0].ownership_name, row.ownership);
  }
}

TEST(DecodeRows, HashesAndTokens) {
  Expect({
      {"B42", Batch({Rm("-1"), Rm("18446744073709551615")}),
       "removed device 18446744073709551615; removed device 18446744073709551615"},
      {"B44",
       Batch({St(R"({"$bytes":"c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"})",
                 "null", kA)}),
       "stored device 2164874634404590027=A"},
      {"B45", Batch({Rm(R"({"$bytes":"010203"})")}), "removed device 66051"},
      {"B46", Batch({St("11", R"({"$bytes":"aabbccdd0000000000000009"})", kA)}),
       "stored device <9 11=A"},
      {"B48", Batch({St("11", "null", "[1,2],[2,3],[3,4],[4,5]")}),
       "stored device 11=1914873892905420881"},
      {"B49", Batch({St("11", "null", "")}), "named device 11"},
      {"nil tokens",
       R"([1.5,[{"type":"BlockStored","block_hashes":[11],"token_ids":null,"block_size":4}],0])",
       "named device 11"},
  });
}

TEST(DecodeRows, ExplicitFieldsWin) {
  const std::string digest(64, 'a');
  Expect({
      {"B56",
       Batch({St("11", "null", kA,
                 R"("block_mm_infos":[{"mm_objects":[{"mm_hash":42,"offsets":[]}]}],)"
                 R"("extra_keys":[[")" +
                     digest + R"("]])")}),
       "stored device 11=" + Local('A', "", "", {42}) + " !eligible"},
      {"B57",
       Batch({St("11", "null", kA,
                 R"("cache_salt":"own","extra_keys":[["dynamo-cache-salt:other"]])")}),
       "stored device 11=" + Local('A', "", "own") + " !eligible"},
      {"B58",
       Batch({St("11", "null", kA, R"("cache_salt":"","extra_keys":[["dynamo-cache-salt:t"]])")}),
       "stored device 11=A !eligible"},
  });
}

TEST(DecodeRows, B52LargeEventsAndTheirLimit) {
  std::string tokens = "1";
  for (int i = 1; i < 1'000'000; ++i)
    tokens += ",1";
  std::string hashes = "1";
  for (int i = 2; i <= 100'000; ++i)
    hashes += "," + std::to_string(i);
  const auto payload = MsgpackFromJson(Batch({
      R"({"type":"BlockStored","block_hashes":[)" + hashes + R"(],"token_ids":[)" + tokens +
          R"(],"block_size":10})",
      St("7", "null", kA),
  }));
  auto options = StreamOptions();
  options.block_size = 10;
  Stream large(options);
  large.FeedBytes(payload);
  ASSERT_EQ(large.batch().events.size(), 1u);
  EXPECT_EQ(large.batch().events[0].blocks.size(), 100'000u);

  options = StreamOptions();
  options.limits.tokens_max = 999'999;
  Stream small(options);
  EXPECT_EQ(small.FeedBytes(payload), "stored device 7=A; drop 0 decode_error");
  EXPECT_EQ(small.batch().dropped[0].error.code, wire::DecodeErrc::kOverLimit);
  options = StreamOptions();
  options.limits.blocks_max = 99'999;
  Stream few(options);
  EXPECT_EQ(few.FeedBytes(payload), "stored device 7=A; drop 0 decode_error");
  options.limits.events_max = 1;
  Stream one(options);
  EXPECT_EQ(one.FeedBytes(payload), "error over_limit");
  options.limits.payload_bytes_max = payload.size() - 1;
  Stream none(options);
  EXPECT_EQ(none.FeedBytes(payload), "error over_limit");
}

// Whoever has to mend a producer needs to know what it sent.
TEST(DecodeRows, WhatCostAnEventIsNamed) {
  const std::string good = St("11", "null", kA);
  const auto detail = [&](const std::string& bad) {
    Stream stream;
    const auto payload = MsgpackFromJson(Batch({good, bad}));  // names borrow from it
    stream.FeedBytes(payload);
    EXPECT_EQ(stream.batch().dropped.size(), 1u) << bad;
    return placement::DropDetail(stream.batch().dropped.at(0), stream.translator().decoded(), 4);
  };
  const struct {
    std::string bad;
    std::string_view detail;
  } rows[] = {
      {R"({"type":"BlockMoved","block_hashes":[1]})", "type `BlockMoved`"},
      {R"({"block_hashes":[1],"type":"BlockMoved"})", "type `BlockMoved`"},
      {R"(["BlockMoved",[1]])", "type `BlockMoved`"},
      {R"([""])", "type ``"},
      {R"(["a\u001b[2J`\nb"])", "type `a?[2J??b`"},
      {R"([")" + std::string(1000, 'x') + R"("])", "type `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...`"},
      {St("11", "null", R"("a")"), "wrong_type, field `token_ids`"},
      {R"({"block_hashes":"x","type":"BlockRemoved"})", "wrong_type, field `block_hashes`"},
      {St("11", "null", kA, R"("group_idx":"one")"), "wrong_type, field `group_idx`"},
      {R"(["BlockStored",[1],null,["x"],4])", "wrong_type, field `token_ids`"},
      {R"(["BlockStored",[1],null,[1,2,3,4]])", "missing_field, field `block_size`"},
      {R"({"type":"BlockStored","block_hashes":[1],"block_size":4})",
       "missing_field, field `token_ids`"},
      {R"({"block_hashes":[1]})", "missing_field"},
      {"7", "wrong_type"},
      {"[]", "missing_field"},
  };
  for (const auto& row : rows)
    EXPECT_EQ(detail(row.bad), row.detail);
}

// B52: the text says which limit an event is over.
TEST(DecodeRows, B52TheLimitOfAnEventIsNamed) {
  auto options = StreamOptions();
  options.limits.blocks_max = 4;
  options.limits.tokens_max = 16;
  options.limits.extra_keys_max = 2;
  const auto detail = [&](const std::string& bad) {
    Stream stream(options);
    const auto payload = MsgpackFromJson(Batch({St("11", "null", kA), bad}));
    stream.FeedBytes(payload);
    EXPECT_EQ(stream.batch().dropped.size(), 1u) << bad;
    const std::string text =
        placement::DropDetail(stream.batch().dropped.at(0), stream.translator().decoded(), 4);
    EXPECT_LE(text.size(), 128u) << "no more is kept of a rejected event";
    return text;
  };
  EXPECT_EQ(detail(Rm("1,2,3,4,5")),
            "over_limit: more blocks in the message than `ingest.message_blocks_max`, "
            "field `block_hashes`");
  EXPECT_EQ(detail(St("12,13,14", "11", "1,2,3,4,5,6,7,8,9,10,11,12,13")),
            "over_limit: more tokens in the message than `ingest.message_tokens_max`, "
            "field `token_ids`");
  EXPECT_EQ(detail(St("12", "11", kA, R"("extra_keys":[["a","b","c"]])")),
            "over_limit: more keys or deeper nesting than any message may have, "
            "field `extra_keys`");
}

// B52: the limit is the operator's, what refuses a batch is named, and one large batch does not
// keep its memory for ever.
TEST(DecodeRows, B52AnExtraordinaryBatch) {
  std::vector<std::string> events;
  for (int i = 0; i < 70'000; ++i)
    events.push_back(Rm("7"));
  const auto payload = MsgpackFromJson(Batch(events));
  auto options = StreamOptions();
  Stream stream(options);
  EXPECT_EQ(stream.FeedBytes(payload), "error over_limit");
  const auto detail = [&](std::size_t bytes) {
    return placement::BatchErrorDetail(wire::DecodeErrc::kOverLimit, bytes, options.limits);
  };
  EXPECT_NE(detail(payload.size()).find("ingest.message_events_max"), std::string::npos);
  EXPECT_NE(detail(options.limits.payload_bytes_max + 1).find("64 MiB"), std::string::npos);
  options.limits.events_max = 70'000;
  Stream large(options);
  large.FeedBytes(payload);
  EXPECT_EQ(large.batch().events.size(), 70'000u);
  EXPECT_GE(large.translator().decoded().events.capacity(), 70'000u);
  for (std::uint32_t i = 0; i < ReusedLists::kLookEvery; ++i) {
    large.Feed(Batch({Rm("7")}));
    ASSERT_EQ(large.batch().events.size(), 1u);
  }
  EXPECT_LT(large.batch().events.capacity(), 1'000u);
  EXPECT_LT(large.translator().decoded().events.capacity(), 1'000u);
}

TEST(DecodeRows, B53HostileLengthsAllocateNothing) {
  // [1.5, [..., announcing 2^32 - 1 of something and ending
  for (const std::string_view hex :
       {"93cb3ff8000000000000ddffffffff0000", "ddffffffff00000000",
        "93cb3ff80000000000009195ab426c6f636b53746f726564ddffffffff0000",
        "93cb3ff80000000000009195ab426c6f636b53746f7265649101c0ddffffffff0000",
        "93cb3ff80000000000009195ab426c6f636b53746f7265649101c0dfffffffff0000",
        "93cb3ff800000000000091dfffffffff0000", "93cb3ff800000000000091dbffffffff0000"}) {
    SCOPED_TRACE(hex);
    const auto bytes = FromHex(hex);
    wire::EventBatch batch;
    const auto done = wire::DecodeEventBatch(*bytes, {}, batch);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, wire::DecodeErrc::kTruncated);
    EXPECT_LT(batch.hashes.capacity() + batch.tokens.capacity() + batch.events.capacity(), 16u);
  }
}

}  // namespace
}  // namespace kvr::test
