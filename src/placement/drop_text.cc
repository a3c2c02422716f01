#include "placement/drop_text.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace kvr::placement {
namespace {

// Text from outside that goes into logs and answers.
std::string Shown(std::string_view text) {
  constexpr std::size_t kBytesMax = 32;
  std::string shown(text.substr(0, kBytesMax));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~' || c == '`'; }, '?');
  if (text.size() > kBytesMax) shown += "...";
  return shown;
}

// The decoded events are in the order of the batch. An item of a list that became several events is
// described by its first.
const wire::EngineEvent* EventAt(const wire::EventBatch& batch, std::uint32_t index) {
  const auto found =
      std::lower_bound(batch.events.begin(), batch.events.end(), index,
                       [](const wire::EngineEvent& e, std::uint32_t i) { return e.index < i; });
  return found != batch.events.end() && found->index == index ? &*found : nullptr;
}

// The same of those that could not be decoded.
std::string_view NameOfBad(const wire::EventBatch& batch, std::uint32_t index) {
  const auto found =
      std::lower_bound(batch.bad.begin(), batch.bad.end(), index,
                       [](const wire::BadEvent& e, std::uint32_t i) { return e.index < i; });
  const bool there = found != batch.bad.end() && found->index == index;
  return there ? found->name : std::string_view();
}

// The limit that a field of an event is over. A message's events share it.
std::string_view LimitText(std::string_view field) {
  if (field == "block_hashes" || field == "blocks" || field == "block_hash") {
    return "more blocks in the message than `ingest.message_blocks_max`";
  }
  if (field == "token_ids" || field == "tokens") {
    return "more tokens in the message than `ingest.message_tokens_max`";
  }
  return "more keys or deeper nesting than any message may have";
}

std::string UndecodableText(const DroppedEvent& dropped, const wire::EventBatch& batch) {
  std::string text(wire::DecodeErrcName(dropped.error.code));
  const std::string_view name = NameOfBad(batch, dropped.index);
  if (dropped.error.code == wire::DecodeErrc::kOverLimit)
    text += fmt::format(": {}", LimitText(name));
  if (name.data() == nullptr) return text;
  if (dropped.reason == DropReason::kUnknownEvent) return fmt::format("type `{}`", Shown(name));
  return text + fmt::format(", field `{}`", Shown(name));
}

std::string GroupText(const wire::EngineEvent& event) {
  std::string text;
  if (!event.kind_name.empty()) text = fmt::format("kind `{}`", Shown(event.kind_name));
  if (event.group) text += fmt::format("{}group {}", text.empty() ? "" : ", ", *event.group);
  return text;
}

std::string SizesText(const wire::EngineEvent& event) {
  if (event.type == wire::EventType::kIgnored) return fmt::format("{} blocks", event.left_out);
  return fmt::format("{} hashes, {} tokens, block_size {}", event.hashes.count, event.tokens.count,
                     event.block_size);
}

constexpr std::array<std::string_view, kDropReasonCount> kExplanations = {
    "its bytes do not fit its type; the offset says where they stop to",
    "its type is not one we know; a newer engine may send it, and what it announces is not seen",
    "a component we do not know placed these blocks, so nobody can say whether the worker can "
    "read them",
    "a component other than the engine placed these blocks, so they are no evidence of this "
    "worker's own cache",
    "the producer itself marks it as without meaning for an index",
    "the copy lies on another node, so this worker gains nothing from it",
    "its locality is neither LOCAL nor REMOTE, so nobody can say whether the worker can read it",
    "its medium names no tier we know, and is never taken for the device; `media: lenient` of the "
    "worker accepts the names of more producers",
    "its attention kind is not one we know, so its blocks may not make up whole prefixes",
    "it is of a cache group without full attention, whose blocks do not make up whole prefixes; "
    "with a group number they say how much of a prefix can be reused",
    "it is of a full-attention group beside the main one; its blocks say how much of a prefix can "
    "be reused",
    "its cache group was never announced with a kind; the announcement may have been missed",
    "the engine has more cache groups than are remembered of a rank, so what this one holds is not "
    "known; raise `ingest.groups_max`",
    "its parent was stored under two cache salts, so whose prompt it goes on is not known",
    "it names no blocks, so there is nothing to store or remove",
    "it names the same block twice, or a block as its own parent, which no chain can have",
    "its block size is not the registered one; register the worker with the engine's block size",
    "it is of a piece of a block, or of blocks that came behind one, which no index has: their "
    "place is not known",
    "it gives one name to several blocks, none of which the engine stored on the device as far as "
    "is "
    "known",
    "it brings more tokens than the blocks it names can hold, so which tokens they are is not "
    "known",
    "it brings fewer tokens than one block holds",
    "the engine stored a block it names, or its parent, in another place or with other tokens "
    "before, "
    "so which block that name means is not known; engines whose hashes do not cover what is before "
    "a "
    "block cannot be indexed",
    "it is of another worker than the one whose stream this is; register the worker under the id "
    "that its events name",
    "it does not say in a way we know whose cache it speaks of",
};
static_assert(!kExplanations.back().empty(), "every reason needs its words");

}  // namespace

std::string_view BatchErrorName(wire::DecodeErrc error) {
  return error == wire::DecodeErrc::kOutOfRange ? "foreign_rank" : wire::DecodeErrcName(error);
}

std::string_view BatchErrorDetail(wire::DecodeErrc error, std::size_t payload_bytes,
                                  const wire::DecodeLimits& limits) {
  if (error == wire::DecodeErrc::kTooManyRanks) {
    return "too_many_ranks: more ranks of one stream are registered than can be";
  }
  if (error != wire::DecodeErrc::kOverLimit) return wire::DecodeErrcName(error);
  if (payload_bytes > limits.payload_bytes_max) return "over_limit: longer than 64 MiB";
  if (payload_bytes > limits.json_bytes_max) {
    return "over_limit: JSON longer than 32 MiB, or more events than "
           "`ingest.message_events_max`, which can be raised";
  }
  return "over_limit: more events than `ingest.message_events_max`, which can be raised";
}

std::string BlockSizeText(std::uint32_t wrong) {
  return wrong == kNoBlockSize ? "no block_size" : fmt::format("block_size {}", wrong);
}

std::string DropDetail(const DroppedEvent& dropped, const wire::EventBatch& batch,
                       std::uint32_t block_size) {
  if (dropped.reason == DropReason::kDecodeError || dropped.reason == DropReason::kUnknownEvent) {
    return UndecodableText(dropped, batch);
  }
  if (dropped.reason == DropReason::kBlockSizeMismatch) {
    return fmt::format("block_size {}, registered {}", dropped.block_size, block_size);
  }
  const wire::EngineEvent* event = EventAt(batch, dropped.index);
  if (event == nullptr) return {};
  switch (dropped.reason) {
    case DropReason::kUnsupportedOwnership:
      if (!event->backend.empty()) return fmt::format("pool `{}`", Shown(event->backend));
      [[fallthrough]];
    case DropReason::kUnknownOwnership:
      return fmt::format("ownership `{}`", Shown(event->ownership_name));
    case DropReason::kRemoteLocality:
    case DropReason::kUnknownLocality:
      return fmt::format("locality `{}`", Shown(event->locality_name));
    case DropReason::kUnknownMedium:
      return fmt::format("medium `{}`", Shown(event->medium));
    case DropReason::kUnknownKind:
    case DropReason::kNonMainGroup:
    case DropReason::kFurtherMainGroup:
    case DropReason::kUnlearnedGroup:
    case DropReason::kTooManyGroups:
      return GroupText(*event);
    case DropReason::kPartialBlock:
    case DropReason::kChunkedStore:
    case DropReason::kSparseStore:
    case DropReason::kTokensTooShort:
      return SizesText(*event);
    default:
      return {};
  }
}

std::string_view DropExplanation(const DroppedEvent& dropped) {
  if (dropped.reason == DropReason::kDecodeError) {
    if (dropped.error.code == wire::DecodeErrc::kSecondRank) {
      return "it is of another attention rank than the first event of its list, and a list is of "
             "one rank; split it by rank, as is done with what a `trtllm+http` endpoint answers";
    }
    if (dropped.error.code == wire::DecodeErrc::kBadJson) {
      return "it is no JSON, or has a value that JSON readers refuse, as a number beyond 64 bits";
    }
  }
  return kExplanations[static_cast<std::size_t>(dropped.reason)];
}

bool IsRoutine(DropReason reason) {
  return reason == DropReason::kIgnoredEvent || reason == DropReason::kNonMainGroup ||
         reason == DropReason::kFurtherMainGroup || reason == DropReason::kPartialBlock ||
         reason == DropReason::kEmptyStore || reason == DropReason::kRemoteLocality ||
         reason == DropReason::kUnsupportedOwnership || reason == DropReason::kTokensTooShort;
}

}  // namespace kvr::placement
