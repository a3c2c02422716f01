#include "wire/placement_event.h"

#include <array>
#include <optional>
#include <string_view>

#include "wire/msgpack_reader.h"
#include "wire/msgpack_writer.h"
#include "wire/router_event_json.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

// The encoded values of a struct's fields; empty where one is missing.
template <std::size_t kCount>
using Values = std::array<std::string_view, kCount>;

// Reads a struct, which comes as a map, or as an array in the order of `names`.
template <std::size_t kCount>
bool ReadValues(MsgpackReader& in, const std::array<std::string_view, kCount>& names,
                std::size_t depth_max, Values<kCount>& values) {
  const std::size_t start = in.offset();
  MsgpackItem head;
  if (!in.Read(head)) return false;
  if (head.kind != Kind::kMap && head.kind != Kind::kArray) {
    return in.Fail(DecodeErrc::kWrongType, start);
  }
  for (std::uint64_t i = 0; i < head.number; ++i) {
    std::size_t field = static_cast<std::size_t>(i);
    if (head.kind == Kind::kMap) {
      std::string_view key;
      if (!in.ReadText(key)) return false;
      for (field = 0; field < kCount && names[field] != key;)
        ++field;
    }
    const std::size_t value = in.offset();
    if (!in.Skip(depth_max)) return false;
    if (field < kCount) values[field] = in.Since(value);
  }
  return true;
}

MsgpackReader ReaderOf(std::string_view value) {
  return MsgpackReader(std::as_bytes(std::span(value)));
}

// "Shared", or {"LocalWorker":{worker_id, dp_rank}}.
Result<std::optional<std::string_view>, DecodeError> ReadWorkerId(std::string_view owner,
                                                                  std::size_t depth_max) {
  MsgpackReader in = ReaderOf(owner);
  const auto fail = [&in] { return tl::make_unexpected(in.error()); };
  std::string_view name;
  if (in.AtText()) {
    if (!in.ReadText(name)) return fail();
    if (name == "Shared") return std::optional<std::string_view>();
    static_cast<void>(in.Fail(DecodeErrc::kOutOfRange, 0));
    return fail();
  }
  std::size_t pairs = 0;
  if (!in.ReadMap(pairs)) return fail();
  if (pairs != 1 || !in.ReadText(name) || name != "LocalWorker") {
    static_cast<void>(in.Fail(DecodeErrc::kOutOfRange, 0));
    return fail();
  }
  static constexpr std::array<std::string_view, 2> kWorker = {"worker_id", "dp_rank"};
  Values<2> values;
  if (!ReadValues(in, kWorker, depth_max, values)) return fail();
  if (values[0].empty()) {
    static_cast<void>(in.Fail(DecodeErrc::kMissingField, 0));
    return fail();
  }
  return std::optional(values[0]);
}

void AppendField(std::string_view name, std::string_view value, MsgpackWriter& out) {
  if (value.empty()) return;
  out.Text(name);
  out.Raw(value);
}

// Nothing for what is no domain, which nobody may apply.
std::optional<std::string_view> DomainOf(const RouterEvent& event) {
  switch (event.domain) {
    case ResidencyDomain::kCacheOwner:
      return "cache_owner";
    case ResidencyDomain::kUnknown:
      return event.domain_name;
    case ResidencyDomain::kInvalid:
      return std::nullopt;
    default:
      return "worker";
  }
}

}  // namespace

void EncodePlacementEvent(const RouterBatch& batch, const RouterEvent& event, std::string& bytes) {
  MsgpackWriter out(bytes);
  out.Map(2 + std::size_t{!event.session_id.empty()} + std::size_t{event.eligible});
  out.Text("placement");
  out.Map(3);
  out.Text("owner");
  out.Map(1);
  out.Text("LocalWorker");
  out.Map(2);
  out.Text("worker_id");
  out.Uint(event.worker_id);
  out.Text("dp_rank");
  out.Uint(event.dp_rank);
  out.Text("tier");
  out.Text(TierName(event.tier));
  out.Text("residency_domain");
  const auto domain = DomainOf(event);
  domain ? out.Text(*domain) : out.Nil();
  out.Text("event");
  EncodeKvCacheEvent(batch, event, bytes);
  if (!event.session_id.empty()) {
    out.Text("session_id");
    out.Text(event.session_id);
  }
  if (event.eligible) {
    out.Text("sce");
    out.Bool(true);
  }
}

void WritePlacementEvent(const RouterBatch& batch, const RouterEvent& event, JsonWriter& json) {
  json.BeginObject();
  json.Key("placement");
  json.BeginObject();
  json.Key("owner");
  json.BeginObject();
  json.Key("LocalWorker");
  json.BeginObject();
  json.Field("worker_id", event.worker_id);
  json.Field("dp_rank", event.dp_rank);
  json.EndObject();
  json.EndObject();
  json.Field("tier", TierName(event.tier));
  json.Key("residency_domain");
  if (const auto domain = DomainOf(event)) {
    json.Value(*domain);
  } else {
    json.Null();
  }
  json.EndObject();
  json.Key("event");
  WriteKvCacheEvent(batch, event, json);
  if (!event.session_id.empty()) json.Field("session_id", event.session_id);
  if (event.eligible) json.Field("sce", true);
  json.EndObject();
}

Result<PlacementOwner, DecodeError> RouterEventFromPlacement(std::span<const std::byte> payload,
                                                             const DecodeLimits& limits,
                                                             std::string& bytes) {
  static constexpr std::array<std::string_view, 4> kEvent = {"placement", "event", "session_id",
                                                             "sce"};
  static constexpr std::array<std::string_view, 3> kPlacement = {"owner", "tier",
                                                                 "residency_domain"};
  bytes.clear();
  if (payload.size() > limits.payload_bytes_max) {
    return tl::make_unexpected(DecodeError{DecodeErrc::kOverLimit, 0});
  }
  MsgpackReader in(payload);
  Values<4> event;
  if (!ReadValues(in, kEvent, limits.depth_max, event)) return tl::make_unexpected(in.error());
  MsgpackReader inner = ReaderOf(event[0]);
  Values<3> placement;
  if (event[0].empty() || event[1].empty()) {
    return tl::make_unexpected(DecodeError{DecodeErrc::kMissingField, 0});
  }
  if (!ReadValues(inner, kPlacement, limits.depth_max, placement)) {
    return tl::make_unexpected(inner.error());
  }
  if (placement[0].empty()) return tl::make_unexpected(DecodeError{DecodeErrc::kMissingField, 0});
  KVR_TRY(const std::optional<std::string_view> worker,
          ReadWorkerId(placement[0], limits.depth_max));
  if (!worker) return PlacementOwner::kShared;

  MsgpackWriter out(bytes);
  std::size_t fields = 3;
  for (const std::string_view optional : {placement[1], event[2], event[3]})
    fields += std::size_t{!optional.empty()};
  out.Map(fields);
  AppendField("worker_id", *worker, out);
  AppendField("storage_tier", placement[1], out);
  out.Text("residency_domain");
  if (placement[2].empty()) {
    out.Text("worker");
  } else {
    out.Raw(placement[2]);
  }
  AppendField("event", event[1], out);
  AppendField("session_id", event[2], out);
  AppendField("sce", event[3], out);
  return PlacementOwner::kLocalWorker;
}

}  // namespace kvr::wire
