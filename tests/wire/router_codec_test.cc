// RouterEvents and PlacementEvents as values on the wire, both directions: the rows R1 to R22 that
// are about residency, flags and forms. What an index makes of them is in router_rows_test.cc.
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hex.h"
#include "base/json_writer.h"
#include "support/json_msgpack.h"
#include "wire/json_to_msgpack.h"
#include "wire/placement_event.h"
#include "wire/residency.h"
#include "wire/router_event.h"
#include "wire/router_event_json.h"

namespace kvr::test {
namespace {

using wire::RouterBatch;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A decoded payload and the bytes it borrows from.
struct Decoded {
  std::vector<std::byte> bytes;
  RouterBatch batch;

  explicit Decoded(std::vector<std::byte> payload) : bytes(std::move(payload)) {
    EXPECT_TRUE(wire::DecodeRouterEvents(bytes, {}, batch));
    EXPECT_EQ(batch.events.size(), 1u);
  }
  explicit Decoded(std::string_view json) : Decoded(MsgpackFromJson(json)) {}

  [[nodiscard]] const wire::RouterEvent& event() const { return batch.events.at(0); }
  [[nodiscard]] std::string Packed() const {
    std::string out;
    wire::EncodeRouterEvent(batch, event(), out);
    return out;
  }
  [[nodiscard]] std::string Json() const {
    std::string out;
    JsonWriter json(out);
    wire::WriteRouterEvent(batch, event(), json);
    return out;
  }
};

std::string Event(std::string_view fields, std::string_view data) {
  return fmt::format(R"({{"worker_id":7,{}"event":{{"event_id":1,"data":{},"dp_rank":0}}}})",
                     fields, data);
}

constexpr std::string_view kStore =
    R"({"stored":{"parent_hash":null,"start_position":null,"blocks":[{"block_hash":1,"tokens_hash":2,"mm_extra_info":null}]}})";
constexpr std::string_view kRemove = R"({"removed":{"block_hashes":[1]}})";
constexpr std::string_view kClear = R"("cleared")";
// Of a cache owner; what is in it is not looked at.
constexpr std::string_view kOwner = R"("state_source":{"slot":[1,-2,"x",true,null,1.5]},)";

TEST(RouterCodec, R1ToR8ResidencyAndClears) {
  struct Row {
    const char* name;
    std::string_view fields;
    std::string_view data;
    wire::Residency residency;
    bool device;
  };
  using wire::Residency;
  const std::string host_owner =
      fmt::format(R"("residency_domain":"cache_owner","storage_tier":"host_pinned",{})", kOwner);
  const Row rows[] = {
      {"R1", "", kStore, Residency::kWorker, true},
      {"R1 lower tier", R"("storage_tier":"disk",)", kStore, Residency::kWorker, false},
      {"R2", "", kClear, Residency::kAll, true},
      {"R2 with a domain", R"("residency_domain":"worker",)", kClear, Residency::kWorker, true},
      {"R3", R"("residency_domain":null,)", kClear, Residency::kUnsupported, false},
      {"R4", R"("residency_domain":"future",)", kRemove, Residency::kUnsupported, false},
      {"R4 clear", R"("residency_domain":"future",)", kClear, Residency::kUnsupported, false},
      {"R5", R"("residency_domain":5,)", kStore, Residency::kUnsupported, false},
      {"R6", R"("residency_domain":"cache_owner",)", kStore, Residency::kUnsupported, false},
      {"R7", R"("residency_domain":"cache_owner",)", kClear, Residency::kCacheOwner, false},
      {"R8", R"("residency_domain":"cache_owner","storage_tier":"host_pinned",)", kStore,
       Residency::kOwnerMissing, false},
      {"R8 with its owner", host_owner, kStore, Residency::kCacheOwner, false},
  };
  for (const Row& row : rows) {
    const Decoded decoded(Event(row.fields, row.data));
    EXPECT_EQ(wire::ResidencyOf(decoded.event()), row.residency) << row.name;
    EXPECT_EQ(wire::ReachesDevice(decoded.event()), row.device) << row.name;
  }
}

// What nobody may apply stays what nobody may apply.
TEST(RouterCodec, R5ADomainThatIsNoTextBecomesNone) {
  const Decoded decoded(Event(R"("residency_domain":5,)", kStore));
  std::string text;
  JsonWriter json(text);
  wire::WritePlacementEvent(decoded.batch, decoded.event(), json);
  EXPECT_THAT(text, testing::HasSubstr(R"("residency_domain":null)"));
  std::string packed;
  wire::EncodePlacementEvent(decoded.batch, decoded.event(), packed);
  std::string back;
  ASSERT_TRUE(wire::RouterEventFromPlacement(Bytes(packed), {}, back));
  const Decoded again(std::vector(Bytes(back).begin(), Bytes(back).end()));
  EXPECT_EQ(wire::ResidencyOf(again.event()), wire::Residency::kUnsupported);
}

TEST(RouterCodec, ResetScopes) {
  using wire::ResetScope;
  const struct {
    ResetScope scope;
    std::string_view json;
  } rows[] = {{ResetScope::kAll, R"("all")"},
              {ResetScope::kWorker, R"({"domain":"worker"})"},
              {ResetScope::kCacheOwner, R"({"domain":"cache_owner"})"}};
  for (const auto& row : rows) {
    std::string packed;
    wire::EncodeResetScope(row.scope, packed);
    EXPECT_EQ(ToHex(Bytes(packed)), ToHex(MsgpackFromJson(row.json)));
    EXPECT_EQ(wire::DecodeResetScope(Bytes(packed)), row.scope);
    std::string text;
    JsonWriter json(text);
    wire::WriteResetScope(row.scope, json);
    EXPECT_EQ(text, row.json);
  }
  EXPECT_EQ(wire::DecodeResetScope(MsgpackFromJson(R"({"new":[{}],"domain":"worker"})")),
            ResetScope::kWorker);
  for (const std::string_view json :
       {R"("some")", "{}", R"({"domain":"future"})", R"({"domain":1})", "3", "null", "[]"})
    EXPECT_FALSE(wire::DecodeResetScope(MsgpackFromJson(json))) << json;
  EXPECT_FALSE(wire::DecodeResetScope({}));
}

// What JSON says is what MessagePack says, and both survive the way there and back.
TEST(RouterCodec, R12R15R19ToR22JsonBothWays) {
  const std::string mm =
      R"({"stored":{"parent_hash":18446744073709551615,"start_position":3,"blocks":[{"block_hash":1,"tokens_hash":2,"mm_extra_info":{"mm_objects":[{"mm_hash":7,"offsets":[[0,4],[6,8]]}]}}]}})";
  const auto text = [](std::string_view domain, std::string_view data, std::string_view tail) {
    return fmt::format(
        R"({{"worker_id":7,"storage_tier":"device",{}"event":{{"event_id":18446744073709551615,"data":{},"dp_rank":3}}{}}})",
        domain, data, tail);
  };
  constexpr std::string_view kWorker = R"("residency_domain":"worker",)";
  const std::string rows[] = {
      text(kWorker, kStore, ""),
      text(kWorker, kStore, R"(,"sce":true)"),
      text(kWorker, mm, R"(,"session_id":"a\"b\u00e9","sce":true)"),
      text("", kRemove, ""),
      text(kWorker, kClear, R"(,"session_id":"s")"),
      text(R"("residency_domain":"future",)", kClear, ""),
      text(R"("residency_domain":null,)", kClear, ""),
      text(R"("residency_domain":"cache_owner",)", kRemove,
           R"(,"state_source":{"slot":[1,-2,"x",true,null,1.5]})"),
  };
  wire::JsonToMsgpack convert;
  for (const std::string& row : rows) {
    const Decoded decoded(row);
    EXPECT_EQ(ToHex(Bytes(decoded.Packed())), ToHex(MsgpackFromJson(row))) << row;
    std::string packed;
    ASSERT_TRUE(convert.Convert(Bytes(decoded.Json()), {}, packed)) << decoded.Json();
    EXPECT_EQ(ToHex(Bytes(packed)), ToHex(Bytes(decoded.Packed()))) << row;
  }
  EXPECT_EQ(Decoded(Event(R"("sce":false,)", kClear)).Json().find("sce"), std::string::npos);
}

TEST(RouterCodec, R12TrueCostsFiveBytes) {
  const std::string without = Decoded(Event("", kStore)).Packed();
  const std::string with = Decoded(Event(R"("sce":true,)", kStore)).Packed();
  EXPECT_EQ(with.size(), without.size() + 5);
  EXPECT_EQ(with.substr(1), without.substr(1) + std::string("\xa3sce\xc3"));
}

TEST(RouterCodec, R22ClearedGoldenBytes) {
  constexpr std::string_view kGolden =
      "84a9776f726b65725f696407ac73746f726167655f74696572a6646576696365b07265736964656e63795f646f6d"
      "61"
      "696ea6776f726b6572a56576656e7483a86576656e745f696402a464617461a7636c6561726564a764705f72616e"
      "6b"
      "00";
  ASSERT_EQ(kGolden.size(), 2 * 95u);
  const Decoded decoded(*FromHex(kGolden));
  EXPECT_EQ(ToHex(Bytes(decoded.Packed())), kGolden);
}

std::string Placement(std::string_view owner, std::string_view more, std::string_view tail) {
  return fmt::format(
      R"({{"placement":{{"owner":{},"tier":"host_pinned"{}}},"event":{{"event_id":1,"data":{},"dp_rank":3}}{}}})",
      owner, more, kStore, tail);
}
constexpr std::string_view kLocal = R"({"LocalWorker":{"worker_id":7,"dp_rank":3}})";
constexpr std::string_view kKnown = R"(,"residency_domain":"worker")";

TEST(RouterCodec, R16PlacementEventsBecomeRouterEvents) {
  const struct {
    std::string placement;
    std::string_view router;  // what the fields before and after the event are
    std::string_view tail;
  } rows[] = {
      {Placement(kLocal, kKnown, R"(,"session_id":"s","sce":true)"),
       R"("residency_domain":"worker")", R"(,"session_id":"s","sce":true)"},
      {Placement(kLocal, kKnown, ""), R"("residency_domain":"worker")", ""},
      {Placement(kLocal, "", R"(,"new":{"a":[1]})"), R"("residency_domain":"worker")", ""},
      {Placement(kLocal, R"(,"residency_domain":"cache_owner","new":1)", ""),
       R"("residency_domain":"cache_owner")", ""},
  };
  for (const auto& row : rows) {
    std::string bytes;
    const auto owner = wire::RouterEventFromPlacement(MsgpackFromJson(row.placement), {}, bytes);
    ASSERT_TRUE(owner) << row.placement;
    EXPECT_EQ(*owner, wire::PlacementOwner::kLocalWorker);
    const std::string want = fmt::format(
        R"({{"worker_id":7,"storage_tier":"host_pinned",{},"event":{{"event_id":1,"data":{},"dp_rank":3}}{}}})",
        row.router, kStore, row.tail);
    EXPECT_EQ(ToHex(Bytes(bytes)), ToHex(MsgpackFromJson(want))) << row.placement;
    EXPECT_EQ(Decoded(std::vector(Bytes(bytes).begin(), Bytes(bytes).end())).event().tier,
              Tier::kHostPinned);
  }
}

TEST(RouterCodec, R16PositionalAndBack) {
  std::string bytes;
  ASSERT_TRUE(wire::RouterEventFromPlacement(
      MsgpackFromJson(fmt::format(
          R"([[{{"LocalWorker":[7,3]}},"host_pinned","worker"],[1,{},3],"s",true])", kStore)),
      {}, bytes));
  const Decoded decoded(std::vector(Bytes(bytes).begin(), Bytes(bytes).end()));
  EXPECT_EQ(decoded.event().worker_id, 7u);
  EXPECT_TRUE(decoded.event().eligible);
  const std::string same = Placement(kLocal, kKnown, R"(,"session_id":"s","sce":true)");
  std::string packed;
  wire::EncodePlacementEvent(decoded.batch, decoded.event(), packed);
  EXPECT_EQ(ToHex(Bytes(packed)), ToHex(MsgpackFromJson(same)));
  std::string text;
  JsonWriter json(text);
  wire::WritePlacementEvent(decoded.batch, decoded.event(), json);
  EXPECT_EQ(text, same);
  // Missing is of old writers of RouterEvents; a placement's domain is always known.
  const Decoded old(Event("", kClear));
  packed.clear();
  wire::EncodePlacementEvent(old.batch, old.event(), packed);
  ASSERT_TRUE(wire::RouterEventFromPlacement(Bytes(packed), {}, bytes));
  EXPECT_EQ(Decoded(std::vector(Bytes(bytes).begin(), Bytes(bytes).end())).event().domain,
            wire::ResidencyDomain::kWorker);
}

TEST(RouterCodec, R17SharedPlacementsHaveNone) {
  std::string bytes = "left over";
  const auto owner = wire::RouterEventFromPlacement(
      MsgpackFromJson(Placement(R"("Shared")", kKnown, "")), {}, bytes);
  ASSERT_TRUE(owner);
  EXPECT_EQ(*owner, wire::PlacementOwner::kShared);
  EXPECT_EQ(bytes, "");
}

TEST(RouterCodec, PlacementsThatAreNone) {
  const struct {
    std::string json;
    std::string_view error;
  } rows[] = {
      {"7", "wrong_type"},
      {"{}", "missing_field"},
      {R"({"placement":{"owner":"Shared"}})", "missing_field"},
      {R"({"placement":{"tier":"device"},"event":{}})", "missing_field"},
      {R"({"placement":5,"event":{}})", "wrong_type"},
      {Placement(R"("Somebody")", kKnown, ""), "out_of_range"},
      {Placement(R"({"Remote":{"worker_id":1}})", kKnown, ""), "out_of_range"},
      {Placement(R"({"LocalWorker":{"dp_rank":1}})", kKnown, ""), "missing_field"},
      {Placement("[]", kKnown, ""), "wrong_type"},
  };
  for (const auto& row : rows) {
    std::string bytes;
    const auto owner = wire::RouterEventFromPlacement(MsgpackFromJson(row.json), {}, bytes);
    ASSERT_FALSE(owner) << row.json;
    EXPECT_EQ(wire::DecodeErrcName(owner.error().code), row.error) << row.json;
  }
  std::string bytes;
  std::vector<std::byte> whole = MsgpackFromJson(Placement(kLocal, kKnown, R"(,"sce":true)"));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(wire::RouterEventFromPlacement(std::span(whole).first(size), {}, bytes)) << size;
  wire::DecodeLimits limits;
  limits.payload_bytes_max = whole.size() - 1;
  EXPECT_FALSE(wire::RouterEventFromPlacement(whole, limits, bytes));
}

}  // namespace
}  // namespace kvr::test
