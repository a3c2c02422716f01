// The table of dialects: what each release writes, in its order.
#include <algorithm>
#include <array>
#include <utility>

#include "wire/event_encoder.h"

namespace kvr::wire {
namespace {

using F = EventField;
using Form = Dialect::Form;
using RankPlace = Dialect::RankPlace;

// vLLM only ever appends.
constexpr std::array<F, 14> kVllmStored = {F::kHashes,    F::kParent,   F::kTokens,   F::kBlockSize,
                                           F::kLoraId,    F::kMedium,   F::kLoraName, F::kExtraKeys,
                                           F::kGroup,     F::kKind,     F::kWindow,   F::kLocality,
                                           F::kOwnership, F::kSessionId};
constexpr std::array<F, 6> kVllmRemoved = {F::kHashes,   F::kMedium,    F::kGroup,
                                           F::kLocality, F::kOwnership, F::kCopiesLeft};
constexpr std::array<F, 8> kSglangStored = {F::kHashes, F::kParent, F::kTokens,    F::kBlockSize,
                                            F::kLoraId, F::kMedium, F::kCacheSalt, F::kSessionId};
constexpr std::array<F, 2> kSglangRemoved = {F::kHashes, F::kMedium};
constexpr std::array<F, 7> kRelayStored = {F::kHashes,   F::kParent,    F::kTokens, F::kBlockSize,
                                           F::kLoraName, F::kCacheSalt, F::kMmInfos};
constexpr std::array<F, 1> kRelayRemoved = {F::kHashes};
constexpr std::array<F, 12> kAtomStored = {F::kHashes, F::kParent, F::kTokens,   F::kBlockSize,
                                           F::kLoraId, F::kMedium, F::kLoraName, F::kExtraKeys,
                                           F::kGroup,  F::kKind,   F::kWindow,   F::kTokenOffset};

// What Mooncake's connector in vLLM says.
constexpr std::array<F, 8> kStoreConnector = {F::kHashes, F::kParent, F::kTokens,   F::kBlockSize,
                                              F::kLoraId, F::kMedium, F::kLoraName, F::kGroup};

// Every place there is; what has none comes last, for maps.
constexpr std::array<F, 18> kAllStored = {
    F::kHashes,    F::kParent,    F::kTokens,    F::kBlockSize, F::kLoraId,      F::kMedium,
    F::kLoraName,  F::kExtraKeys, F::kGroup,     F::kKind,      F::kWindow,      F::kLocality,
    F::kOwnership, F::kCacheSalt, F::kSessionId, F::kMmInfos,   F::kTokenOffset, F::kBackend};
constexpr std::array<F, 10> kAllRemoved = {
    F::kHashes,   F::kMedium,    F::kGroup,     F::kKind,       F::kWindow,
    F::kLocality, F::kOwnership, F::kSessionId, F::kCopiesLeft, F::kBackend};
constexpr std::array<F, 1> kAllCleared = {F::kOwnership};

// The first `count` fields, of which `required`.
template <std::size_t kSize>
constexpr EventLayout First(const std::array<F, kSize>& fields, std::size_t count,
                            std::size_t required) {
  return {std::span<const F>(fields).first(count), required};
}

constexpr Dialect VllmArrays(std::string_view name, std::size_t stored, std::size_t removed) {
  Dialect dialect;
  dialect.name = name;
  dialect.stored = First(kVllmStored, stored, 0);
  dialect.removed = First(kVllmRemoved, removed, 0);
  return dialect;
}
constexpr Dialect VllmMaps(std::string_view name, std::size_t stored, std::size_t removed) {
  Dialect dialect;
  dialect.name = name;
  dialect.form = Form::kMaps;
  dialect.stored = First(kVllmStored, stored, 7);
  dialect.removed = First(kVllmRemoved, removed, 2);
  return dialect;
}
constexpr Dialect Sglang(std::string_view name, std::size_t stored, std::size_t removed) {
  Dialect dialect;
  dialect.name = name;
  dialect.hashes = Dialect::Hashes::kSigned;
  dialect.stored = First(kSglangStored, stored, 0);
  dialect.removed = First(kSglangRemoved, removed, 0);
  return dialect;
}
constexpr Dialect SglangMaps(std::string_view name) {
  Dialect dialect = Sglang(name, 8, 2);
  dialect.form = Form::kMaps;
  dialect.stored.required = 5;
  dialect.removed.required = 1;
  return dialect;
}
constexpr Dialect Relay() {
  Dialect dialect;
  dialect.name = "dynamo-relay";
  dialect.form = Form::kMaps;
  dialect.hashes = Dialect::Hashes::kSigned;
  dialect.stored = First(kRelayStored, 7, 4);
  dialect.removed = First(kRelayRemoved, 1, 1);
  return dialect;
}
constexpr Dialect Atom() {
  Dialect dialect = VllmArrays("atom", 0, 3);
  dialect.stored = First(kAtomStored, 12, 0);
  return dialect;
}
constexpr Dialect StoreConnector(std::string_view name) {
  Dialect dialect = VllmMaps(name, 0, 2);
  dialect.stored = First(kStoreConnector, 8, 7);
  dialect.nil_tokens = true;
  return dialect;
}
constexpr Dialect Everything(std::string_view name, Form form) {
  const bool maps = form == Form::kMaps;
  Dialect dialect;
  dialect.name = name;
  dialect.form = form;
  dialect.stored = First(kAllStored, maps ? 18 : 13, 7);
  dialect.removed = First(kAllRemoved, maps ? 10 : 7, 2);
  dialect.cleared = First(kAllCleared, 1, 0);
  dialect.metadata = !maps;
  return dialect;
}
constexpr Dialect With(Dialect dialect, Form form) {
  dialect.form = form;
  return dialect;
}
constexpr Dialect WithRank(Dialect dialect, RankPlace rank) {
  dialect.rank = rank;
  return dialect;
}
constexpr Dialect Signed(Dialect dialect) {
  dialect.hashes = Dialect::Hashes::kSigned;
  return dialect;
}
constexpr Dialect Digests(Dialect dialect) {
  dialect.hashes = Dialect::Hashes::kDigests;
  return dialect;
}
constexpr Dialect WithMetadata(Dialect dialect) {
  dialect.metadata = true;
  return dialect;
}
constexpr Dialect WithHashAlgo(Dialect dialect, std::string_view name) {
  dialect.hash_algo = name;
  return dialect;
}
constexpr Dialect Named(std::string_view name, Form form) {
  Dialect dialect;
  dialect.name = name;
  dialect.form = form;
  return dialect;
}

constexpr std::array<Dialect, 31> kDialects = {{
    Signed(WithRank(VllmArrays("vllm-0.9.0", 5, 1), RankPlace::kNone)),
    VllmArrays("vllm-0.9.1", 5, 1),
    VllmArrays("vllm-0.10.2", 6, 2),
    VllmArrays("vllm-0.14", 7, 2),
    VllmArrays("vllm-0.17", 8, 2),
    VllmArrays("vllm-0.19", 8, 2),
    VllmArrays("vllm-0.20", 9, 3),
    VllmArrays("vllm-0.22", 11, 3),
    VllmMaps("vllm-0.24", 11, 3),
    VllmMaps("vllm-0.26", 12, 4),
    VllmMaps("vllm-0.29", 13, 5),
    VllmMaps("vllm-main", 14, 6),
    WithRank(With(VllmMaps("vllm-map-batch", 14, 6), Form::kMapBatch), RankPlace::kWhenKnown),
    WithRank(Sglang("sglang-0.4.6", 5, 1), RankPlace::kNone),
    Sglang("sglang-0.4.7", 5, 1),
    Sglang("sglang-0.5.9", 6, 2),
    WithMetadata(Sglang("sglang-0.5.18", 6, 2)),
    SglangMaps("sglang-main"),
    Signed(VllmMaps("trtllm-zmq", 11, 3)),
    Named("trtllm-json", Form::kJson),
    WithHashAlgo(Digests(Named("trtllm-json-v2", Form::kJson)), "v2_sha256"),
    WithHashAlgo(Named("trtllm-json-v2-64", Form::kJson), "v2_sha256_64"),
    Relay(),
    Signed(Named("mooncake", Form::kPool)),
    Atom(),
    Digests(VllmArrays("vllm-offload", 6, 2)),
    Digests(VllmMaps("vllm-lmcache", 7, 2)),
    StoreConnector("vllm-mooncake-store"),
    VllmMaps("vllm-llm-d-fs", 11, 3),
    WithRank(Everything("maps", Form::kMaps), RankPlace::kWhenKnown),
    Everything("positional", Form::kArrays),
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kShortNames = {{
    {"vllm-0.9", "vllm-0.9.1"},
    {"vllm-0.10", "vllm-0.10.2"},
    {"sglang", "sglang-0.5.18"},
    {"sglang-map", "sglang-main"},
}};

}  // namespace

std::span<const Dialect> Dialects() {
  return kDialects;
}

const Dialect* DialectByName(std::string_view name) {
  for (const auto& [brief, full] : kShortNames) {
    if (brief == name) return DialectByName(full);
  }
  const auto found = std::find_if(kDialects.begin(), kDialects.end(),
                                  [&](const Dialect& dialect) { return dialect.name == name; });
  return found == kDialects.end() ? nullptr : &*found;
}

}  // namespace kvr::wire
