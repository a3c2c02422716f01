// One batch of engine events as it came over the wire, flat and reusable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/reused_lists.h"
#include "model/ids.h"
#include "wire/decode_error.h"

namespace kvr::wire {

enum class EventType : std::uint8_t { kStored, kRemoved, kCleared, kIgnored };
inline constexpr std::array<std::string_view, 4> kEventTypeNames = {"stored", "removed", "cleared",
                                                                    "ignored"};
constexpr std::string_view EventTypeName(EventType type) {
  return kEventTypeNames[static_cast<std::size_t>(type)];
}

enum class Locality : std::uint8_t { kAbsent, kLocal, kRemote, kUnknown };
// Who decides where a copy lives. kFramework is the engine, and what absence means.
enum class Ownership : std::uint8_t { kFramework, kKvcr, kUnknown };
// The kind of attention a cache group serves. Only a main group's blocks make up whole prefixes.
enum class GroupKind : std::uint8_t { kAbsent, kMain, kOther, kUnknown };

// A run of elements of one of EventBatch's vectors.
struct Slice {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// A producer's "I do not know" among numbers of copies.
inline constexpr std::uint32_t kCopiesUnknown = std::numeric_limits<std::uint32_t>::max();

// One of the things, beside tokens, that an engine mixed into a block's hash.
struct ExtraKey {
  enum class Kind : std::uint8_t {
    kText,        // a string, or bytes that are valid UTF-8
    kTextOffset,  // [string, integer]: an item of a prompt and where it starts in the block
    kBytes,       // bytes that are no text
    kOther,       // anything else
  };

  Kind kind = Kind::kOther;
  std::string_view text;    // kText, kTextOffset, kBytes
  std::string_view raw;     // the whole key as it was encoded
  std::int64_t offset = 0;  // of TensorRT-LLM's lists: kTextOffset, where the item starts; kBytes,
                            // which token of the block it is
};

// One event. Views borrow from the payload; absent texts are empty where absent and empty mean the
// same. Fields that an event type does not have keep their defaults.
struct EngineEvent {
  EventType type = EventType::kStored;
  std::uint32_t index = 0;  // place in the batch, undecodable siblings counted

  Slice hashes;
  std::optional<EngineHash> parent;
  Slice tokens;        // of a bigram event the plain tokens, one more than there are pairs
  bool eagle = false;  // tokens came as bigrams
  std::uint32_t block_size = 0;
  std::optional<std::uint64_t> lora_id;  // a number of the engine process; names nothing outside it
  bool odd_lora_id = false;              // there is one that is no number, and not taken for any
  std::string_view lora_name;
  std::optional<std::string_view> cache_salt;  // the explicit field; "" overrules extra keys
  std::string_view session_id;

  Slice extra_blocks;  // per block a run of extra keys; may be shorter or longer than hashes
  bool has_mm_infos = false;
  Slice mm_blocks;  // per block a run of multimodal hashes

  std::uint32_t left_out = 0;  // blocks of it that are not here, for they are not full, or behind
                               // one that is not. Of TensorRT-LLM's lists
  Slice copies_left;           // of a removal, per hash; none when the producer does not say

  std::string_view medium;
  bool sole = false;        // of a store: the engine has one copy of a block in a tier at most
  bool every_tier = false;  // of a removal: from wherever the blocks are; `medium` is empty
  std::optional<std::uint32_t> group;
  std::optional<std::uint32_t> window;        // tokens
  std::optional<std::uint32_t> token_offset;  // of ATOM; where in the prompt the store begins
  GroupKind kind = GroupKind::kAbsent;
  Locality locality = Locality::kAbsent;
  Ownership ownership = Ownership::kFramework;
  std::string_view kind_name;
  std::string_view locality_name;
  std::string_view ownership_name;
  std::string_view backend;  // the part of a pool that workers share; empty: no pool speaks
};

// A block's name that came as more than 8 bytes, by either end. See DigestEnd.
struct DigestName {
  EngineHash last{};
  EngineHash first{};
  std::string_view bytes;  // all of it, of TensorRT-LLM's lists its hex digits; borrowed from the
                           // payload
};

// Fields that were passed over, wholly or in part, because their values are of a wrong type. Only
// those that say neither which blocks an event is about nor where they are; see
// docs/compatibility.md.
struct SkippedFields {
  std::uint32_t session_id = 0;
  std::uint32_t window = 0;
  std::uint32_t token_offset = 0;
  std::uint32_t copies_left = 0;
};

// An event that could not be decoded; its siblings were. In JSON text the byte of the error is its
// first one.
struct BadEvent {
  std::uint32_t index = 0;
  DecodeError error;
  std::size_t begin = 0;  // its first byte in the payload; 0 where that is not known
  // What it is, so far as it says so in a readable way, and of the batch's rank.
  std::optional<EventType> type{};
  // Of kUnknownEvent the tag, which borrows from the payload; else the field that is missing or
  // could not be read. Empty where that is not known.
  std::string_view name{};
};

// Reused from batch to batch: once warm, decoding into it allocates nothing but for extraordinary
// batches, whose room is given back (ReusedLists). Not thread-safe.
struct EventBatch {
  double ts = 0;  // as sent: seconds, of some producers milliseconds; 0 for a NaN or an infinity
  std::optional<std::uint32_t> dp_rank;
  std::vector<EngineEvent> events;
  std::vector<BadEvent> bad;
  std::uint32_t legacy_layouts = 0;  // positional events whose tail was read by type, not by place
  SkippedFields skipped;             // of the events that were decoded
  std::size_t trailing_bytes = 0;    // after the batch value, ignored
  // TensorRT-LLM: from this event on another window is the main one; what came before as the main
  // one's, in this batch or an earlier one, was another's.
  std::optional<std::uint32_t> new_main_from;

  // What the events' slices point into.
  std::vector<EngineHash> hashes;
  std::vector<TokenId> tokens;
  std::vector<Slice> extra_blocks;
  std::vector<ExtraKey> extra_keys;
  std::vector<Slice> mm_blocks;
  std::vector<std::uint64_t> mm_hashes;
  std::vector<std::uint32_t> copies_left;

  std::vector<DigestName> digests;  // those among the hashes and parents, in their order

  [[nodiscard]] std::span<const EngineHash> HashesOf(const EngineEvent& event) const {
    return Part(hashes, event.hashes);
  }
  [[nodiscard]] std::span<const TokenId> TokensOf(const EngineEvent& event) const {
    return Part(tokens, event.tokens);
  }
  // The keys of the event's block `i`; none beyond the end of the list.
  [[nodiscard]] std::span<const ExtraKey> ExtraKeysOf(const EngineEvent& event,
                                                      std::size_t i) const {
    if (i >= event.extra_blocks.count) return {};
    return Part(extra_keys, extra_blocks[event.extra_blocks.begin + i]);
  }
  // The explicit multimodal hashes of the event's block `i`; none beyond the end of the list.
  [[nodiscard]] std::span<const std::uint64_t> MmHashesOf(const EngineEvent& event,
                                                          std::size_t i) const {
    if (i >= event.mm_blocks.count) return {};
    return Part(mm_hashes, mm_blocks[event.mm_blocks.begin + i]);
  }

  // How many physical copies of the removal's hash `i` the engine says are left after it;
  // kCopiesUnknown when it does not say.
  [[nodiscard]] std::uint32_t CopiesLeftOf(const EngineEvent& event, std::size_t i) const {
    if (i >= event.copies_left.count) return kCopiesUnknown;
    return copies_left[event.copies_left.begin + i];
  }

  void Clear();

  // For producers: appends an event that owns copies of what is passed. Views in it (texts) are
  // the caller's to keep alive. The reference is valid until the next event is added.
  EngineEvent& AddStored(std::span<const EngineHash> block_hashes, std::optional<EngineHash> parent,
                         std::span<const TokenId> token_ids, std::uint32_t block_size);
  EngineEvent& AddRemoved(std::span<const EngineHash> block_hashes);
  EngineEvent& AddCleared();

 private:
  ReusedLists reused_;

  template <typename T>
  static std::span<const T> Part(const std::vector<T>& all, Slice slice) {
    return std::span<const T>(all).subspan(slice.begin, slice.count);
  }
  EngineEvent& Add(EventType type, std::span<const EngineHash> block_hashes);
};

// "full_attention" and its kin are main, names of other known kinds are not, the rest is unknown.
GroupKind GroupKindFromName(std::string_view name);
Locality LocalityFromName(std::string_view name);
Ownership OwnershipFromName(std::string_view name);

}  // namespace kvr::wire
