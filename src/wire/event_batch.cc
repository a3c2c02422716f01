#include "wire/event_batch.h"

#include <algorithm>

#include "wire/short_text.h"

namespace kvr::wire {
namespace {

constexpr std::array<std::string_view, 3> kMainKinds = {"full_attention", "mla_attention",
                                                        "sink_full_attention"};
constexpr std::array<std::string_view, 6> kOtherKinds = {
    "sliding_window",          "sliding_window_mla",     "mamba",
    "chunked_local_attention", "encoder_only_attention", "cross_attention"};

}  // namespace

void EventBatch::Clear() {
  ts = 0;
  dp_rank.reset();
  legacy_layouts = 0;
  skipped = {};
  trailing_bytes = 0;
  new_main_from.reset();
  reused_.Empty(events, bad, hashes, tokens, extra_blocks, extra_keys, mm_blocks, mm_hashes,
                copies_left, digests);
}

EngineEvent& EventBatch::Add(EventType type, std::span<const EngineHash> block_hashes) {
  EngineEvent& event = events.emplace_back();
  event.type = type;
  event.index = static_cast<std::uint32_t>(events.size() - 1);
  event.hashes = {static_cast<std::uint32_t>(hashes.size()),
                  static_cast<std::uint32_t>(block_hashes.size())};
  hashes.insert(hashes.end(), block_hashes.begin(), block_hashes.end());
  return event;
}

EngineEvent& EventBatch::AddStored(std::span<const EngineHash> block_hashes,
                                   std::optional<EngineHash> parent,
                                   std::span<const TokenId> token_ids, std::uint32_t block_size) {
  EngineEvent& event = Add(EventType::kStored, block_hashes);
  event.parent = parent;
  event.tokens = {static_cast<std::uint32_t>(tokens.size()),
                  static_cast<std::uint32_t>(token_ids.size())};
  tokens.insert(tokens.end(), token_ids.begin(), token_ids.end());
  event.block_size = block_size;
  return event;
}

EngineEvent& EventBatch::AddRemoved(std::span<const EngineHash> block_hashes) {
  return Add(EventType::kRemoved, block_hashes);
}

EngineEvent& EventBatch::AddCleared() {
  return Add(EventType::kCleared, {});
}

GroupKind GroupKindFromName(std::string_view name) {
  const auto is_name = [name](std::string_view kind) { return SameText(kind, name); };
  if (std::any_of(kMainKinds.begin(), kMainKinds.end(), is_name)) return GroupKind::kMain;
  if (std::any_of(kOtherKinds.begin(), kOtherKinds.end(), is_name)) return GroupKind::kOther;
  return GroupKind::kUnknown;
}

Locality LocalityFromName(std::string_view name) {
  if (name == "LOCAL") return Locality::kLocal;
  return name == "REMOTE" ? Locality::kRemote : Locality::kUnknown;
}

Ownership OwnershipFromName(std::string_view name) {
  return name == "kvcr" ? Ownership::kKvcr : Ownership::kUnknown;
}

}  // namespace kvr::wire
