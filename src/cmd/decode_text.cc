#include "cmd/decode_text.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "model/tier.h"
#include "placement/block_keys.h"
#include "placement/drop_text.h"
#include "wire/medium.h"

namespace kvr::cmd {
namespace {

struct Line {
  std::uint32_t index;
  std::string text;
};

bool ByIndex(const Line& a, const Line& b) {
  return a.index < b.index;
}

std::string Plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string_view TierOf(const wire::EngineEvent& event) {
  const auto tier = wire::TierFromMedium(event.medium);
  return tier ? TierName(*tier) : std::string_view("an unknown tier");
}

// What sets the blocks apart from those of the same tokens.
std::string Identity(const wire::EventBatch& batch, const wire::EngineEvent& event,
                     SaltNames& salts) {
  std::string text;
  if (!event.lora_name.empty()) text += fmt::format(", LoRA `{}`", event.lora_name);
  const std::string salt = salts.NameOf(placement::SaltOf(batch, event));
  if (!salt.empty()) text += fmt::format(", cache salt {}", salt);
  if (event.eagle) text += ", tokens as bigrams";
  if (event.group) text += fmt::format(", cache group {}", *event.group);
  return text;
}

std::string StoredText(const wire::EventBatch& batch, const wire::EngineEvent& event,
                       const PlacementEvent& placed, SaltNames& salts) {
  const std::string where =
      event.parent ? fmt::format("under block {}", Raw(*event.parent)) : std::string("at the root");
  std::string text = fmt::format("{} stored on {}, {}{}", Plural(placed.blocks.size(), "block"),
                                 TierName(placed.tier), where, Identity(batch, event, salts));
  if (placed.hash_only) {
    return text + "; by name only: found by prompts once an event with tokens tells their content";
  }
  if (placed.blocks.size() < event.hashes.count) {
    text += fmt::format("; {} more lack their tokens and are left out",
                        event.hashes.count - placed.blocks.size());
  }
  if (!placed.eligible) {
    text +=
        "; the engine hashed more than tokens, LoRA and salt, so they are no evidence for a "
        "shared cache";
  }
  return text;
}

std::string RemovedText(const wire::EngineEvent& event, const PlacementEvent* placed) {
  const std::size_t gone = placed == nullptr ? 0 : placed->removed.size();
  std::string text = fmt::format("{} removed from {}", Plural(event.hashes.count, "block"),
                                 placed != nullptr ? TierName(placed->tier) : TierOf(event));
  if (gone < event.hashes.count) {
    text += fmt::format("; {} stay, for the engine holds another copy", event.hashes.count - gone);
  }
  return text;
}

std::string KeptText(const wire::EventBatch& batch, const wire::EngineEvent& event,
                     const PlacementEvent* placed, SaltNames& salts) {
  if (event.type == wire::EventType::kCleared) return "all blocks of the rank cleared";
  if (event.type == wire::EventType::kRemoved) return RemovedText(event, placed);
  return placed != nullptr ? StoredText(batch, event, *placed, salts) : "without effect";
}

std::string DroppedText(const placement::DroppedEvent& dropped, const wire::EventBatch& batch,
                        std::uint32_t block_size) {
  std::string text = fmt::format("dropped, {}", placement::DropReasonName(dropped.reason));
  const std::string detail = placement::DropDetail(dropped, batch, block_size);
  if (!detail.empty()) text += fmt::format(" ({})", detail);
  const bool bytes = dropped.reason == placement::DropReason::kDecodeError ||
                     dropped.reason == placement::DropReason::kUnknownEvent;
  if (bytes) text += fmt::format(" at byte {}", dropped.error.offset);
  return text + ": " + std::string(placement::DropExplanation(dropped.reason));
}

}  // namespace

void ExplainBatch(const wire::EventBatch& batch, const placement::PlacementBatch& placed,
                  std::uint32_t block_size, SaltNames& salts, std::string& out) {
  std::vector<Line> lines;
  for (const placement::DroppedEvent& dropped : placed.dropped)
    lines.push_back({dropped.index, DroppedText(dropped, batch, block_size)});
  const auto dropped_count = static_cast<std::ptrdiff_t>(lines.size());
  const auto is_dropped = [&](std::uint32_t index) {
    return std::binary_search(lines.begin(), lines.begin() + dropped_count, Line{index, {}},
                              ByIndex);
  };
  PlacedEvents placed_events(placed);
  for (const wire::EngineEvent& event : batch.events) {
    const PlacementEvent* made = placed_events.Of(event);
    if (made == nullptr && is_dropped(event.index)) continue;
    lines.push_back({event.index, "kept: " + KeptText(batch, event, made, salts)});
  }
  std::stable_sort(lines.begin(), lines.end(), ByIndex);
  for (const Line& line : lines)
    fmt::format_to(std::back_inserter(out), "  event {} {}\n", line.index, line.text);
}

}  // namespace kvr::cmd
