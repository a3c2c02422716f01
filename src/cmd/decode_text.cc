#include "cmd/decode_text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/tier.h"
#include "placement/block_keys.h"
#include "placement/drop_text.h"

namespace kvr::cmd {
namespace {

struct Line {
  std::uint32_t index;
  std::string text;
};

bool ByIndex(const Line& a, const Line& b) {
  return a.index < b.index;
}

std::string_view TierText(const DecodedBatch& decoded, const wire::EngineEvent& event) {
  const auto tier = decoded.TierOf(event);
  return tier ? TierName(*tier) : std::string_view("an unknown tier");
}

// The objects and the keys without a name that are in the hashes of the event's blocks. What the
// keys are stays hidden, as they may be secrets.
std::string KeysText(const wire::EventBatch& batch, const wire::EngineEvent& event) {
  constexpr std::size_t kShownMax = 4;
  const std::string_view salt = placement::SaltOf(batch, event);
  std::string objects;
  std::size_t with_object = 0;
  std::size_t unmapped = 0;
  placement::BlockKeys keys;
  for (std::size_t i = 0; i < event.hashes.count; ++i) {
    placement::ReadBlockKeys(batch, event, i, salt, keys);
    unmapped += keys.unmapped ? 1 : 0;
    if (keys.mm.empty() || ++with_object > kShownMax) continue;
    objects += fmt::format("{}{}: {}", objects.empty() ? "" : "; ", i, fmt::join(keys.mm, " "));
  }
  if (with_object > kShownMax) objects += "; ...";
  std::string text;
  if (with_object > 0) {
    text += fmt::format(", objects in {} (mm hashes of block {})", Plural(with_object, "block"),
                        objects);
  }
  if (unmapped > 0) text += fmt::format(", keys without a name in {}", Plural(unmapped, "block"));
  return text;
}

// What sets the blocks apart from those of the same tokens.
std::string Identity(const DecodedBatch& decoded, const ShownEvent& shown, SaltNames& salts) {
  const wire::EventBatch& batch = decoded.batch;
  const wire::EngineEvent& event = *shown.event;
  std::string text;
  if (!event.lora_name.empty()) {
    text += fmt::format(", LoRA `{}`", event.lora_name);
  } else if (event.lora_id.value_or(0) != 0) {
    text += fmt::format(", LoRA number {}{}", *event.lora_id,
                        decoded.options.unmapped_keys == placement::UnmappedKeys::kFold
                            ? " without a name, which no prompt matches"
                            : "");
  }
  if (shown.inherited_salt != 0) {
    text += fmt::format(", inherited cache salt {}", salts.NameOf(shown.inherited_salt));
  } else if (const auto salt = salts.NameOf(placement::SaltOf(batch, event)); !salt.empty()) {
    text += fmt::format(", cache salt {}", salt);
  }
  text += KeysText(batch, event);
  if (event.eagle) text += ", tokens as bigrams";
  if (event.group) text += fmt::format(", cache group {}", *event.group);
  if (event.window) text += fmt::format(", window {}", *event.window);
  if (!event.session_id.empty()) text += fmt::format(", session `{}`", event.session_id);
  return text;
}

std::string StoredText(const DecodedBatch& decoded, const ShownEvent& shown, SaltNames& salts) {
  const wire::EngineEvent& event = *shown.event;
  const PlacementEvent& placed = *shown.own;
  const std::string where =
      event.parent ? fmt::format("under block {}", Raw(*event.parent)) : std::string("at the root");
  std::string text = fmt::format("{} stored on {}, {}{}", Plural(placed.blocks.size(), "block"),
                                 TierName(placed.tier), where, Identity(decoded, shown, salts));
  if (placed.hash_only) {
    return text + "; by name only: found by prompts once an event with tokens tells their content";
  }
  if (shown.left_out > 0) {
    text += fmt::format("; {} more lack tokens, or are behind such a block, and are left out",
                        shown.left_out);
  }
  if (!placed.eligible) {
    text +=
        "; the engine hashed more than tokens, LoRA and salt, so they are no evidence for a "
        "shared cache";
  }
  return text;
}

// How many of the removal's blocks no part of it names.
std::size_t HeldOf(std::span<const EngineHash> hashes, std::span<const PlacementEvent> parts) {
  std::set<EngineHash> gone;
  for (const PlacementEvent& part : parts)
    gone.insert(part.removed.begin(), part.removed.end());
  return static_cast<std::size_t>(std::count_if(hashes.begin(), hashes.end(), [&](EngineHash hash) {
    return gone.find(hash) == gone.end();
  }));
}

// What takes blocks of the event's away: before it the rank may have been cleared for another
// reason.
std::span<const PlacementEvent> RemovalsOf(const ShownEvent& shown) {
  const bool cleared = !shown.placed.empty() && shown.placed[0].kind == PlacementKind::kCleared;
  return shown.placed.subspan(cleared ? 1 : 0);
}

// "from device", or of several tiers ": 1 from device, 1 from host_pinned".
std::string FromTiers(const DecodedBatch& decoded, const ShownEvent& shown) {
  const auto parts = RemovalsOf(shown);
  if (parts.empty() && shown.event->every_tier) return {};
  if (parts.empty()) return fmt::format(" from {}", TierText(decoded, *shown.event));
  if (parts.size() == 1) return fmt::format(" from {}", TierName(parts[0].tier));
  std::string text;
  for (const PlacementEvent& part : parts) {
    text += fmt::format("{} {} from {}", text.empty() ? ":" : ",", part.removed.size(),
                        TierName(part.tier));
  }
  return text;
}

std::string RemovedText(const DecodedBatch& decoded, const ShownEvent& shown) {
  const auto hashes = decoded.batch.HashesOf(*shown.event);
  const std::size_t pieces = shown.left_out - shown.event->left_out;
  std::string text =
      Plural(hashes.size() - pieces, "block") + " removed" + FromTiers(decoded, shown);
  const std::size_t held = HeldOf(hashes, RemovalsOf(shown)) - pieces;
  if (shown.left_out > 0) {
    text += fmt::format("; {} were never in an index: not full, or behind such a block",
                        shown.left_out);
  }
  if (held > 0) text += fmt::format("; {} stay, for the engine holds another copy", held);
  return text;
}

// What an event does to an index beside storing or removing its own blocks.
std::string AsideText(const PlacementEvent& placed) {
  switch (placed.kind) {
    case PlacementKind::kStored:
      return fmt::format("{} that waited for the kind of the group stored on {}, by name only",
                         Plural(placed.blocks.size(), "block"), TierName(placed.tier));
    case PlacementKind::kRemoved:
      return fmt::format(
          "{} taken back from {}: now known to be elsewhere, or of no main cache group",
          Plural(placed.removed.size(), "block"), TierName(placed.tier));
    case PlacementKind::kCleared:
      break;
  }
  return "all blocks of the rank cleared, for whose they are is no longer known";
}

std::string AsidesText(const ShownEvent& shown) {
  std::string text;
  const wire::EventType type = shown.event->type;
  for (const PlacementEvent& placed : shown.placed) {
    const bool aside =
        type == wire::EventType::kStored
            ? &placed != shown.own
            : type != wire::EventType::kCleared && placed.kind == PlacementKind::kCleared;
    if (aside) text += "; " + AsideText(placed);
  }
  return text;
}

std::string KeptText(const DecodedBatch& decoded, const ShownEvent& shown, SaltNames& salts) {
  switch (shown.event->type) {
    case wire::EventType::kCleared:
      return "all blocks of the rank cleared";
    case wire::EventType::kRemoved:
      return RemovedText(decoded, shown);
    case wire::EventType::kStored:
    case wire::EventType::kIgnored:
      break;
  }
  if (shown.own == nullptr) return "nothing new";
  return StoredText(decoded, shown, salts);
}

std::string DroppedText(const placement::DroppedEvent& dropped, const DecodedBatch& decoded) {
  std::string text = fmt::format("dropped, {}", placement::DropReasonName(dropped.reason));
  const std::string detail =
      placement::DropDetail(dropped, decoded.batch, decoded.options.block_size);
  if (!detail.empty()) text += fmt::format(" ({})", detail);
  const bool bytes = dropped.reason == placement::DropReason::kDecodeError ||
                     dropped.reason == placement::DropReason::kUnknownEvent;
  if (bytes) text += fmt::format(" at byte {}", dropped.error.offset);
  return text + ": " + std::string(placement::DropExplanation(dropped));
}

}  // namespace

void ExplainBatch(const DecodedBatch& decoded, SaltNames& salts, std::string& out) {
  std::vector<Line> lines;
  for (const placement::DroppedEvent& dropped : decoded.placed.dropped)
    lines.push_back({dropped.index, DroppedText(dropped, decoded)});
  for (const ShownEvent& shown : decoded.events) {
    const std::string asides = AsidesText(shown);
    const bool removed =
        shown.event->type == wire::EventType::kRemoved && !RemovalsOf(shown).empty();
    if (!shown.dropped || removed) {
      lines.push_back({shown.event->index, "kept: " + KeptText(decoded, shown, salts) + asides});
    } else if (!asides.empty()) {
      lines.push_back({shown.event->index, "all the same:" + asides.substr(1)});
    }
  }
  std::stable_sort(lines.begin(), lines.end(), ByIndex);
  for (const Line& line : lines)
    fmt::format_to(std::back_inserter(out), "  event {} {}\n", line.index, line.text);
  for (const Fact& fact : decoded.facts)
    fmt::format_to(std::back_inserter(out), "  batch {}: {}\n", fact.name, fact.text);
}

}  // namespace kvr::cmd
