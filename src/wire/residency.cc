#include "wire/residency.h"

#include "wire/msgpack_reader.h"
#include "wire/msgpack_writer.h"

namespace kvr::wire {
namespace {

constexpr std::size_t kDepthMax = 8;

std::string_view DomainName(ResetScope scope) {
  return scope == ResetScope::kWorker ? "worker" : "cache_owner";
}

std::optional<ResetScope> ScopeOfDomain(std::string_view name) {
  if (name == "worker") return ResetScope::kWorker;
  if (name == "cache_owner") return ResetScope::kCacheOwner;
  return std::nullopt;
}

}  // namespace

Residency ResidencyOf(const RouterEvent& event) {
  const bool clear = event.type == EventType::kCleared;
  switch (event.domain) {
    case ResidencyDomain::kMissing:
      return clear ? Residency::kAll : Residency::kWorker;
    case ResidencyDomain::kWorker:
      return Residency::kWorker;
    case ResidencyDomain::kCacheOwner:
      if (!clear && event.tier == Tier::kDevice) return Residency::kUnsupported;
      if (!clear && event.state_source.empty()) return Residency::kOwnerMissing;
      return Residency::kCacheOwner;
    case ResidencyDomain::kUnknown:
    case ResidencyDomain::kInvalid:
      break;
  }
  return Residency::kUnsupported;
}

bool ReachesDevice(const RouterEvent& event) {
  const Residency residency = ResidencyOf(event);
  if (residency != Residency::kWorker && residency != Residency::kAll) return false;
  return event.type == EventType::kCleared || event.tier == Tier::kDevice;
}

void EncodeResetScope(ResetScope scope, std::string& bytes) {
  MsgpackWriter out(bytes);
  if (scope == ResetScope::kAll) return out.Text("all");
  out.Map(1);
  out.Text("domain");
  out.Text(DomainName(scope));
}

void WriteResetScope(ResetScope scope, JsonWriter& json) {
  if (scope == ResetScope::kAll) return json.Value("all");
  json.BeginObject();
  json.Field("domain", DomainName(scope));
  json.EndObject();
}

std::optional<ResetScope> DecodeResetScope(std::span<const std::byte> payload) {
  MsgpackReader in(payload);
  std::string_view text;
  if (in.AtText()) {
    if (!in.ReadText(text) || text != "all") return std::nullopt;
    return ResetScope::kAll;
  }
  std::size_t pairs = 0;
  if (!in.AtMap() || !in.ReadMap(pairs)) return std::nullopt;
  std::optional<ResetScope> scope;
  for (std::size_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!in.ReadText(key)) return std::nullopt;
    if (key != "domain") {
      if (!in.Skip(kDepthMax)) return std::nullopt;
      continue;
    }
    if (!in.AtText() || !in.ReadText(text)) return std::nullopt;
    scope = ScopeOfDomain(text);
    if (!scope) return std::nullopt;
  }
  return scope;
}

}  // namespace kvr::wire
