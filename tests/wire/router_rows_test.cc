// RouterEvents: the rows R1 to R22 and T27 to T30 of the wire's edge cases, in MessagePack and
// JSON.
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hex.h"
#include "placement/drop_text.h"
#include "support/json_msgpack.h"
#include "wire/router_event.h"
#include "wire/stream.h"

namespace kvr::test {
namespace {

using wire::ResidencyDomain;
using wire::RouterBatch;
using wire::RouterEvent;

constexpr std::string_view kGoldenStored =
    "84a9776f726b65725f696407ac73746f726167655f74696572a6646576696365b07265736964656e63795f646f6d61"
    "696ea6776f726b6572a56576656e7483a86576656e745f696401a46461746181a673746f72656483ab706172656e74"
    "5f68617368c0ae73746172745f706f736974696f6ec0a6626c6f636b739183aa626c6f636b5f6861736801ab746f6b"
    "656e735f6861736802ad6d6d5f65787472615f696e666fc0a764705f72616e6b00";
constexpr std::string_view kGoldenLegacyClear =
    "82a9776f726b65725f696407a56576656e7483a86576656e745f696402a464617461a7636c6561726564a764705f72"
    "616e6b00";

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Store(std::string_view more = {}, std::string_view data = {}) {
  if (data.empty()) {
    data = R"({"stored":{"parent_hash":null,"start_position":null,
               "blocks":[{"block_hash":11,"tokens_hash":21,"mm_extra_info":null}]}})";
  }
  return fmt::format(R"({{"worker_id":1,"event":{{"event_id":5,"data":{},"dp_rank":0}}{}{}}})",
                     data, more.empty() ? "" : ",", more);
}
std::string Clear(std::string_view more = {}) {
  return Store(more, R"("cleared")");
}

// What a list of one event becomes, in MessagePack and, which must not differ, in JSON.
std::string Feed(const std::string& event) {
  const std::string list = "[" + event + "]";
  Stream packed;
  Stream text;
  const std::string result = packed.FeedBytes(MsgpackFromJson(list));
  EXPECT_EQ(text.FeedBytes(Bytes(list)), result) << list;
  return result;
}

RouterBatch Decoded(std::string_view json) {
  static std::vector<std::byte> bytes;  // the batch borrows from it
  bytes = MsgpackFromJson(json);
  RouterBatch batch;
  EXPECT_TRUE(wire::DecodeRouterEvents(bytes, {}, batch)) << json;
  return batch;
}

std::string Encoded(const RouterBatch& batch) {
  std::string out;
  wire::EncodeRouterEvent(batch, batch.events.at(0), out);
  return ToHex(Bytes(out));
}

std::string Again(std::string_view json) {
  return Encoded(Decoded(json));
}
std::string Packed(std::string_view json) {
  return ToHex(MsgpackFromJson(json));
}

TEST(RouterRows, R1R2R9WhatOldWritersLeaveOut) {
  EXPECT_EQ(Decoded(Store()).events[0].domain, ResidencyDomain::kMissing);
  EXPECT_EQ(Feed(Store()), "stored device 11=21 !eligible");
  EXPECT_EQ(Feed(Clear()), "cleared");
  EXPECT_EQ(Feed(Store(R"("storage_tier":"gpu")")), "drop 0 decode_error");
  EXPECT_EQ(Feed(Store(R"("storage_tier":"disk")")), "stored disk 11=21");
}

TEST(RouterRows, R3ToR8ResidencyDomains) {
  EXPECT_EQ(Feed(Clear(R"("residency_domain":null)")), "drop 0 unknown_residency");
  EXPECT_EQ(Feed(Store(R"("residency_domain":"worker")")), "stored device 11=21 !eligible");
  EXPECT_EQ(Feed(Store(R"("residency_domain":"future")")), "drop 0 unknown_residency");
  const RouterBatch future = Decoded(Store(R"("residency_domain":"future")"));
  EXPECT_EQ(future.events[0].domain_name, "future");
  EXPECT_NE(Encoded(future).find(ToHex(Bytes("future"))), std::string::npos);
  for (const std::string value : {"5", "[]", "{}", R"({"$bytes":"00"})", "true", "null"}) {
    const RouterBatch batch = Decoded(Store(R"("residency_domain":)" + value));
    EXPECT_EQ(batch.events.at(0).domain, ResidencyDomain::kInvalid) << value;
  }
  const RouterBatch twice =
      Decoded(Store(R"("residency_domain":"future","residency_domain":true)"));
  EXPECT_EQ(twice.events.at(0).domain, ResidencyDomain::kInvalid);
  EXPECT_EQ(twice.events.at(0).domain_name, "");
  EXPECT_EQ(Feed(Store(R"("residency_domain":"cache_owner")")), "drop 0 unsupported_ownership");
  EXPECT_EQ(Feed(Clear(R"("residency_domain":"cache_owner")")), "drop 0 unsupported_ownership");
  EXPECT_EQ(Feed(Store(R"("residency_domain":"cache_owner","storage_tier":"host_pinned")")),
            "drop 0 unsupported_ownership");
}

TEST(RouterRows, R10ToR15Flags) {
  EXPECT_FALSE(Decoded(Store()).events[0].eligible);
  EXPECT_EQ(Again(Store(R"("sce":false)")).find(ToHex(Bytes("sce"))), std::string::npos);
  EXPECT_EQ(Feed(Store(R"("sce":true)")), "stored device 11=21");
  EXPECT_EQ(Again(Store(R"("sce":true)")).size(), Again(Store()).size() + 10);
  for (const std::string value : {"null", "1", R"("true")", "[]"})
    EXPECT_EQ(Feed(Store(R"("sce":)" + value)), "stored device 11=21 !eligible") << value;
  EXPECT_EQ(Again(Store(R"("session_id":null)")).find(ToHex(Bytes("session_id"))),
            std::string::npos);
  EXPECT_EQ(Decoded(Store(R"("session_id":"s")")).events[0].session_id, "s");
}

// What says neither which blocks are meant nor where they are costs itself alone, and is counted.
TEST(RouterRows, HintsOfAWrongTypeArePassedOver) {
  const auto stored = [](std::string_view position, std::string_view mm) {
    return fmt::format(R"({{"stored":{{"parent_hash":null,"start_position":{},
        "blocks":[{{"block_hash":11,"tokens_hash":21,"mm_extra_info":{}}}]}}}})",
                       position, mm);
  };
  const auto total = [](const placement::TranslatorStats& stats) {
    return std::array{stats.skipped_session_ids, stats.skipped_positions, stats.skipped_mm_infos,
                      stats.skipped_flags};
  };
  const std::string plain = "stored device 11=21";
  const struct {
    std::string event;
    std::string outcome;
    std::array<std::uint64_t, 4> skipped;
  } rows[] = {
      {Store(R"("sce":true,"session_id":7)"), plain, {1, 0, 0, 0}},
      {Store(R"("sce":true,"session_id":{"a":[1]})"), plain, {1, 0, 0, 0}},
      {Store(R"("sce":true,"session_id":null)"), plain, {0, 0, 0, 0}},
      {Store(R"("sce":"yes")"), plain + " !eligible", {0, 0, 0, 1}},
      {Store(R"("sce":null)"), plain + " !eligible", {0, 0, 0, 0}},
      {Store(R"("sce":true)", stored("-1", "null")), plain, {0, 1, 0, 0}},
      {Store(R"("sce":true)", stored("4294967296", "null")), plain, {0, 1, 0, 0}},
      {Store(R"("sce":true)", stored(R"("x")", "null")), plain, {0, 1, 0, 0}},
      // The hash may cover objects that cannot be read.
      {Store(R"("sce":true)", stored("0", "7")), plain + " !eligible", {0, 0, 1, 0}},
      {Store(R"("sce":true)", stored("0", R"({"mm_objects":[{"mm_hash":"x"}]})")),
       plain + " !eligible",
       {0, 0, 1, 0}},
      {Store(R"("sce":true)", stored("0", R"({"mm_objects":[{"mm_hash":1,"offsets":[[1]]}]})")),
       plain + " !eligible",
       {0, 0, 1, 0}},
      {Store(R"("sce":true)", stored("0", R"({"objects":[]})")),
       plain + " !eligible",
       {0, 0, 1, 0}},
      // Nothing is counted of an event that is lost.
      {R"({"session_id":7,"worker_id":"x","event":{"event_id":1,"data":"cleared"}})",
       "drop 0 decode_error",
       {0, 0, 0, 0}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.event);
    const std::string list = "[" + row.event + "]";
    Stream packed;
    EXPECT_EQ(packed.FeedBytes(MsgpackFromJson(list)), row.outcome);
    EXPECT_EQ(total(packed.translator().stats()), row.skipped);
    Stream text;
    EXPECT_EQ(text.FeedBytes(Bytes(list)), row.outcome);
    EXPECT_EQ(total(text.translator().stats()), row.skipped);
  }
}

TEST(RouterRows, ObjectsThatArePassedOverLeaveTheirRoom) {
  const RouterBatch batch = Decoded(Store({}, R"({"stored":{"parent_hash":null,"blocks":[
      {"block_hash":1,"tokens_hash":1,"mm_extra_info":{"mm_objects":[{"mm_hash":1,"offsets":[[0,1]]},7]}},
      {"block_hash":2,"tokens_hash":2,"mm_extra_info":{"mm_objects":[{"mm_hash":2}]}}]}})"));
  EXPECT_EQ(batch.mm_objects.size(), 1u);
  EXPECT_TRUE(batch.mm_offsets.empty());
  EXPECT_EQ(batch.blocks.at(0).mm_objects.count, 0u);
  EXPECT_TRUE(batch.blocks.at(0).has_mm);
  EXPECT_EQ(batch.mm_objects.at(batch.blocks.at(1).mm_objects.begin).hash, 2u);
}

// Of MessagePack; JSON has names.
TEST(RouterRows, R18PositionalForm) {
  const auto feed = [](const std::string& event) {
    Stream stream;
    return stream.FeedBytes(MsgpackFromJson("[" + event + "]"));
  };
  EXPECT_EQ(feed(R"([1,"host_pinned","worker",[5,{"stored":[null,null,[[11,21,null]]]},0]])"),
            "stored host_pinned 11=21");
  EXPECT_EQ(feed(R"([1,"device","worker",[5,{"removed":[[11,12]]}]])"), "removed device 11 12");
  EXPECT_EQ(feed(R"([1,"device","worker",[5,"cleared",3],null,"s",true,{},7])"), "cleared @3");
}

TEST(RouterRows, R19ToR21Fields) {
  const std::string most = R"({"worker_id":1,"event":{"event_id":18446744073709551615,
      "data":"cleared","dp_rank":4294967295,"new":[1]},"unknown":{"a":[{}]}})";
  EXPECT_EQ(Decoded(most).events[0].event_id, ~std::uint64_t{0});
  EXPECT_EQ(Feed(most), "cleared @4294967295");
  EXPECT_FALSE(Decoded(Store()).blocks[0].has_mm);
  const std::string mm = R"({"stored":{"parent_hash":9,"start_position":3,"blocks":[
      {"block_hash":11,"tokens_hash":21,"mm_extra_info":{"mm_objects":[
        {"mm_hash":7,"offsets":[[0,4],[6,8]]}]}}]}})";
  EXPECT_EQ(Again(Store(R"("sce":true)", mm)),
            Packed(R"({"worker_id":1,"storage_tier":"device","event":{"event_id":5,"data":)" + mm +
                   R"(,"dp_rank":0},"sce":true})"));
  EXPECT_EQ(Feed(Store(R"("sce":true)", mm)), "stored device <9 11=21 !eligible");
}

TEST(RouterRows, R22GoldenBytes) {
  RouterBatch batch;
  ASSERT_TRUE(wire::DecodeRouterEvents(*FromHex(kGoldenStored), {}, batch));
  const RouterEvent& event = batch.events.at(0);
  EXPECT_EQ(event.worker_id, 7u);
  EXPECT_EQ(event.event_id, 1u);
  EXPECT_EQ(batch.blocks.at(0).engine, EngineHash{1});
  EXPECT_EQ(batch.blocks.at(0).local, BlockHash{2});
  EXPECT_EQ(Encoded(batch), kGoldenStored);
  EXPECT_EQ(kGoldenStored.size(), 2 * 174u);
  RouterBatch flagged = batch;
  flagged.events[0].eligible = true;
  EXPECT_EQ(Encoded(flagged).size(), 2 * 179u);
  EXPECT_TRUE(Encoded(flagged).ends_with("a3736365c3"));

  batch.events[0].type = wire::EventType::kCleared;
  batch.events[0].event_id = 2;
  EXPECT_EQ(Encoded(batch).size(), 2 * 95u);
  ASSERT_TRUE(wire::DecodeRouterEvents(*FromHex(kGoldenLegacyClear), {}, batch));
  EXPECT_EQ(batch.events.at(0).domain, ResidencyDomain::kMissing);
}

TEST(RouterRows, EventsOfOtherWorkersGoNowhere) {
  std::string other = Store();
  other.replace(other.find("1"), 1, "2");
  EXPECT_EQ(Feed(other), "drop 0 foreign_worker");
}

TEST(RouterRows, ABadEventCostsItself) {
  EXPECT_EQ(Feed(Store() + R"(,{"worker_id":1,"event":{"event_id":1,"data":{"moved":{}}}},)" +
                 Store({}, R"({"stored":{"blocks":[{"block_hash":"x","tokens_hash":1}]}})") +
                 R"(,7,{"worker_id":1},)" + Clear()),
            "stored device 11=21 !eligible; cleared; drop 1 unknown_event; drop 2 decode_error; "
            "drop 3 decode_error; drop 4 decode_error");
  EXPECT_EQ(Feed(Store({}, R"({"removed":{"block_hashes":[]}})")), "drop 0 empty_store");
}

TEST(RouterRows, WhatCostAnEventIsNamed) {
  const auto detail = [](std::span<const std::byte> list) {
    Stream stream;
    stream.FeedBytes(list);
    EXPECT_EQ(stream.batch().dropped.size(), 1u);
    if (stream.batch().dropped.empty()) return std::string();
    return placement::DropDetail(stream.batch().dropped[0], stream.translator().decoded(), 4);
  };
  const auto stored = [](std::string_view block, std::string_view more = "") {
    return Store(
        {}, R"({"stored":{"blocks":[{)" + std::string(block) + "}]" + std::string(more) + "}}");
  };
  constexpr std::string_view kBlock = R"("block_hash":1,"tokens_hash":2)";
  const struct {
    std::string bad;
    std::string_view detail;
  } rows[] = {
      {"7", "wrong_type"},
      {R"({"worker_id":1})", "missing_field, field `event`"},
      {R"({"event":{"event_id":5,"data":"cleared","dp_rank":0}})",
       "missing_field, field `worker_id`"},
      {R"({"worker_id":1,"event":7})", "wrong_type, field `event`"},
      {R"({"worker_id":1,"event":{"event_id":5}})", "missing_field, field `data`"},
      {R"({"worker_id":1,"event":{"event_id":"5","data":"cleared"}})",
       "wrong_type, field `event_id`"},
      {Store({}, R"({"moved":{}})"), "type `moved`"},
      {Store({}, R"("forgotten")"), "type `forgotten`"},
      {Store({}, R"({"stored":{"parent_hash":null}})"), "missing_field, field `blocks`"},
      {Store({}, R"({"removed":{"block_hashes":["x"]}})"), "wrong_type, field `block_hashes`"},
      {stored(R"("tokens_hash":2)"), "missing_field, field `block_hash`"},
      {stored(R"("block_hash":1,"tokens_hash":"x")"), "wrong_type, field `tokens_hash`"},
      {stored(kBlock, R"(,"parent_hash":"x")"), "wrong_type, field `parent_hash`"},
      {Clear(R"("storage_tier":"attic")"), "out_of_range, field `storage_tier`"},
      // A hint that is passed over is not what costs the event.
      {stored(std::string(kBlock) + R"(,"mm_extra_info":{"mm_objects":[{"mm_hash":"x"}]})",
              R"(,"parent_hash":"x")"),
       "wrong_type, field `parent_hash`"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.bad);
    // Behind one that says what the list is.
    const std::string list = "[" + Clear() + "," + row.bad + "]";
    EXPECT_EQ(detail(MsgpackFromJson(list)), row.detail);
    EXPECT_EQ(detail(Bytes(list)), row.detail);
  }
}

TEST(RouterRows, ErrorsInJsonSayWhereTheirEventBegins) {
  const std::string text = R"([{"worker_id":1,"event":"]"}, 7])";
  placement::EventTranslator translator({.rank = {WorkerId{1}, 0}});
  placement::PlacementBatch batch;
  ASSERT_TRUE(translator.Translate(std::as_bytes(std::span(text)), batch));
  const auto& bad = translator.decoded().bad;
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].begin, 1u);
  EXPECT_EQ(bad[1].begin, text.find('7'));
  EXPECT_EQ(batch.dropped[1].error.offset, text.find('7'));
}

// As of engines' events, C7 and C8: a block stands behind another one.
TEST(RouterRows, RepeatedBlocks) {
  const auto store = [](std::string_view parent, std::string_view names) {
    std::string blocks;
    for (std::size_t i = 0; i < names.size(); ++i) {
      blocks += fmt::format(R"({}{{"block_hash":{},"tokens_hash":{},"mm_extra_info":null}})",
                            i == 0 ? "" : ",", names[i], 20 + i);
    }
    return fmt::format(
        R"({{"worker_id":1,"storage_tier":"device","event":{{"event_id":0,"data":{{"stored":{{)"
        R"("parent_hash":{},"start_position":null,"blocks":[{}]}}}},"dp_rank":0}}}})",
        parent, blocks);
  };
  for (const auto& [parent, names] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"1", "1"}, {"null", "11"}, {"null", "121"}, {"2", "12"}}) {
    Stream stream;
    EXPECT_EQ(stream.FeedBytes(Bytes("[" + store(parent, names) + "]")), "drop 0 self_referencing")
        << parent << " " << names;
  }
  Stream stream;
  EXPECT_EQ(stream.FeedBytes(Bytes("[" + store("3", "12") + "]")),
            "stored device <3 1=20 2=21 !eligible");
}

// A value that is no JSON costs its event, as a MessagePack value of a wrong type does.
TEST(RouterRows, AValueOfAListThatIsNoJsonCostsItsEvent) {
  const struct {
    std::string_view id;
    std::string bad;
  } rows[] = {
      {"a number beyond 64 bits", R"({"worker_id":18446744073709551616,"event":1})"},
      {"NaN", R"({"worker_id":NaN})"},
      {"no value", "event"},
      {"nothing", ""},
      {"brackets that do not match", R"({"event":[1}])"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    for (const bool leads : {false, true}) {
      std::string text = "[";
      if (!leads) text += Store() + ", ";
      const std::size_t place = text.size() + (row.bad.empty() ? 1 : 0);
      text += row.bad + " ," + Clear() + "]";
      Stream stream;
      const std::string kept = leads
                                   ? "cleared; drop 0 decode_error"
                                   : "stored device 11=21 !eligible; cleared; drop 1 decode_error";
      EXPECT_EQ(stream.FeedBytes(Bytes(text)), kept) << text;
      ASSERT_EQ(stream.batch().dropped.size(), 1u);
      const wire::DecodeError expected{wire::DecodeErrc::kBadJson, place};
      EXPECT_EQ(stream.batch().dropped[0].error, expected);
    }
  }
  Stream stream;
  EXPECT_EQ(stream.FeedBytes(Bytes("[" + Store() + ",NaN")), "error bad_json")
      << "not sure to be whole";
}

TEST(RouterRows, OneEventAndEnvelopes) {
  Stream stream;
  EXPECT_EQ(stream.FeedBytes(MsgpackFromJson(Store())), "stored device 11=21 !eligible");
  std::string envelope;
  std::string list;
  const RouterBatch batch = Decoded("[" + Store() + "," + Clear() + "]");
  wire::EncodeRouterEvents(batch, list);
  wire::EncodeRouterEnvelope({12, 42, 1'700'000'000'000, "kv-events", list}, envelope);
  EXPECT_EQ(stream.FeedBytes(Bytes(envelope)), "stored device 11=21 !eligible; cleared");
  envelope.clear();
  wire::EncodeRouterEnvelope({12, 42, 1, "", "\x90"}, envelope);
  EXPECT_EQ(stream.FeedBytes(Bytes(envelope)), "");
  envelope.clear();
  wire::EncodeRouterEnvelope({12, 42, 1, "", "\xc1"}, envelope);
  EXPECT_EQ(stream.FeedBytes(Bytes(envelope)), "error not_msgpack");
}

TEST(RouterRows, GoldenEnvelope) {
  std::string out;
  wire::EncodeRouterEnvelope({12345, 42, 1'700'000'000'000, "test-topic", "payload"}, out);
  EXPECT_EQ(
      ToHex(Bytes(out)),
      "85ac7075626c69736865725f6964cd3039a873657175656e63652aac7075626c69736865645f6174cf00000"
      "18bcfe56800a5746f706963aa746573742d746f706963a77061796c6f6164c4077061796c6f6164");
}

TEST(RouterRows, T27ToT29Frames) {
  const auto unframe = [](std::string_view bytes) {
    const auto content = wire::UnframeRouterEvents(Bytes(bytes));
    if (!content) return std::string(wire::DecodeErrcName(content.error().code));
    return std::string(reinterpret_cast<const char*>(content->data()), content->size());
  };
  std::string framed;
  wire::FrameRouterEvents("abc", framed);
  EXPECT_EQ(framed, std::string("\1\0\0\0\3abc", 8));
  EXPECT_EQ(unframe(framed), "abc");
  framed[0] = 2;
  EXPECT_EQ(unframe(framed), "out_of_range");
  EXPECT_EQ(unframe("\1\1\1"), "truncated");
  EXPECT_EQ(unframe(std::string("\1\0\0\3\xe8"
                                "12345",
                                10)),
            "truncated");
}

// A stream's form is found out payload by payload.
TEST(RouterRows, FormsMayChangeWithinOneStream) {
  Stream stream;
  EXPECT_EQ(stream.Feed(Batch({St("11", "null", kA)})), "stored device 11=A");
  EXPECT_EQ(stream.FeedBytes(MsgpackFromJson("[" + Store() + "]")),
            "stored device 11=21 !eligible");
  EXPECT_EQ(stream.Feed(Batch({Rm("11")})), "removed device 11");
  EXPECT_EQ(stream.FeedBytes(Bytes(Store())), "stored device 11=21 !eligible");
}

}  // namespace
}  // namespace kvr::test
