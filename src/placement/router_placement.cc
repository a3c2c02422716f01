#include "placement/router_placement.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "wire/json_items.h"
#include "wire/readable_list.h"

namespace kvr::placement {
namespace {

using wire::EventType;
using wire::ResidencyDomain;
using wire::RouterEvent;

// The names under which engines' events carry the tiers.
constexpr std::array<std::string_view, kTierCount> kMedia = {"GPU", "CPU", "DISK", "EXTERNAL"};

std::optional<DropReason> CheckOrigin(const RouterEvent& event) {
  if (event.domain == ResidencyDomain::kUnknown || event.domain == ResidencyDomain::kInvalid) {
    return DropReason::kUnknownResidency;
  }
  // A cache that outlives the engine is no rank's own, and its clear leaves the rank's alone.
  if (event.domain == ResidencyDomain::kCacheOwner) return DropReason::kUnsupportedOwnership;
  if (event.type == EventType::kStored && event.blocks.count == 0) return DropReason::kEmptyStore;
  if (event.type == EventType::kRemoved && event.removed.count == 0) return DropReason::kEmptyStore;
  return std::nullopt;
}

}  // namespace

bool RouterPlacement::Takes(std::span<const std::byte> payload, bool json,
                            const wire::DecodeLimits& limits) {
  payload_ = payload;
  text_ = {};
  if (!json) return wire::LooksLikeRouterEvents(payload);
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  // No other list of events has this key; to convert every one of them would be a waste.
  if (text.find("\"worker_id\"") == std::string_view::npos) return false;
  if (!Convert(payload, limits)) return false;
  payload_ = std::as_bytes(std::span(converted_));
  text_ = payload;
  return wire::LooksLikeRouterEvents(payload_);
}

// To MessagePack. Of a list, items that are no JSON are left out.
bool RouterPlacement::Convert(std::span<const std::byte> text, const wire::DecodeLimits& limits) {
  // Looks like an event, and is none.
  constexpr std::string_view kPlaceholder = R"({"event":0})";
  unreadable_.clear();
  const auto converted = json_.Convert(text, limits, converted_);
  if (converted) return true;
  if (converted.error().code != wire::DecodeErrc::kBadJson) return false;
  const auto readable = wire::MakeReadable(text, limits.events_max, kPlaceholder);
  if (!readable || !json_.Convert(std::as_bytes(std::span(readable->text)), limits, converted_)) {
    return false;
  }
  for (const auto& bad : readable->bad)
    unreadable_.push_back(bad.index);
  return true;
}

Result<void, wire::DecodeError> RouterPlacement::Place(const wire::DecodeLimits& limits, Rank rank,
                                                       bool any_worker, PlacementBatch& out,
                                                       wire::EventBatch& shown) {
  out.Clear();
  shown.Clear();
  ends_.clear();
  const bool converted = !text_.empty();
  if (const auto decoded = wire::DecodeRouterEvents(payload_, limits, batch_); !decoded) {
    const wire::DecodeError error = decoded.error();
    return tl::make_unexpected(wire::DecodeError{error.code, converted ? 0 : error.offset});
  }
  if (converted) FindInText();
  if (!batch_.events.empty()) {
    const RouterEvent& front = batch_.events.front();
    out.dp_rank = front.dp_rank;
    if (front.event_id >= front.index) out.first_event = front.event_id - front.index;
    shown.dp_rank = out.dp_rank;
  }
  for (const wire::BadEvent& bad : batch_.bad)
    out.dropped.push_back(Undecodable(bad));
  shown.bad = batch_.bad;
  for (const RouterEvent& event : batch_.events) {
    Show(event, shown);
    if (!any_worker && event.worker_id != Raw(rank.worker)) {
      out.dropped.push_back({event.index, DropReason::kForeignWorker, {}, 0});
    } else if (const auto reason = CheckOrigin(event)) {
      out.dropped.push_back({event.index, *reason, {}, 0});
    } else if (RepeatsBlock(event)) {
      out.dropped.push_back({event.index, DropReason::kSelfReferencing, {}, 0});
    } else {
      Add(event, rank, out);
    }
    out.made_until.push_back(static_cast<std::uint32_t>(out.events.size()));
  }
  out.SortDropped();
  out.SetEventSpans(ends_);
  return {};
}

// Where the bad events are in the text that came, and not in what it was converted to.
void RouterPlacement::FindInText() {
  wire::JsonItems places(text_);
  for (wire::BadEvent& bad : batch_.bad) {
    bad.error.offset = bad.begin = places.BeginOf(bad.index);
    if (std::binary_search(unreadable_.begin(), unreadable_.end(), bad.index)) {
      bad.error.code = wire::DecodeErrc::kBadJson;
    }
  }
}

// A block that would stand behind itself.
bool RouterPlacement::RepeatsBlock(const RouterEvent& event) {
  if (event.type != EventType::kStored) return false;
  const auto blocks = std::span(batch_.blocks).subspan(event.blocks.begin, event.blocks.count);
  return seen_.FindRepeated(event.parent, blocks,
                            [](const wire::RouterBlock& block) { return block.engine; });
}

void RouterPlacement::Add(const RouterEvent& event, Rank rank, PlacementBatch& out) {
  PlacementEvent& placed = out.events.emplace_back();
  out.event_index.push_back(event.index);
  placed.rank = Rank{rank.worker, event.dp_rank};
  placed.tier = event.tier;
  placed.session_id = event.session_id;
  std::size_t end = 0;
  if (event.type == EventType::kStored) {
    placed.kind = PlacementKind::kStored;
    placed.parent = event.parent;
    placed.eligible = event.eligible;
    for (std::size_t i = 0; i < event.blocks.count; ++i) {
      const wire::RouterBlock& block = batch_.blocks[event.blocks.begin + i];
      out.blocks.push_back({block.engine, block.local});
      // The hash of a block with objects covers more than text.
      placed.eligible = placed.eligible && !block.has_mm;
    }
    end = out.blocks.size();
  } else if (event.type == EventType::kRemoved) {
    placed.kind = PlacementKind::kRemoved;
    const auto first = batch_.removed.begin() + event.removed.begin;
    out.removed.insert(out.removed.end(), first, first + event.removed.count);
    end = out.removed.size();
  } else {
    placed.kind = PlacementKind::kCleared;
  }
  ends_.push_back(end);
}

void RouterPlacement::Show(const RouterEvent& event, wire::EventBatch& shown) {
  wire::EngineEvent* engine = nullptr;
  if (event.type == EventType::kStored) {
    hashes_.clear();
    for (std::size_t i = 0; i < event.blocks.count; ++i)
      hashes_.push_back(batch_.blocks[event.blocks.begin + i].engine);
    engine = &shown.AddStored(hashes_, event.parent, {}, 0);
  } else if (event.type == EventType::kRemoved) {
    engine = &shown.AddRemoved(
        std::span(batch_.removed).subspan(event.removed.begin, event.removed.count));
  } else {
    engine = &shown.AddCleared();
  }
  engine->index = event.index;
  if (event.type != EventType::kCleared)
    engine->medium = kMedia[static_cast<std::size_t>(event.tier)];
  engine->session_id = event.session_id;
  if (event.domain == ResidencyDomain::kCacheOwner) engine->backend = "cache_owner";
}

}  // namespace kvr::placement
