// Why an event of an engine does not reach an index, and what counters call it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvr::placement {

// Why an engine event does not reach an index. The checks run in the order of the enumerators and
// the first that fails gives the reason. The names are stable: they label counters and appear in
// the output of `kvroute decode`.
enum class DropReason : std::uint8_t {
  kDecodeError,           // the event's bytes do not fit its type
  kUnknownEvent,          // a tag we do not know
  kUnknownOwnership,      // placed by a component we do not know
  kUnsupportedOwnership,  // placed by a component that is not this worker
  kIgnoredEvent,          // the producer says that it means nothing
  kRemoteLocality,        // a copy on another node
  kUnknownLocality,
  kUnknownMedium,            // a tier name we do not know; never taken for the device
  kUnknownKind,              // an attention kind we do not know
  kNonMainGroup,             // not full attention: no prefix is complete in such a group. What
                             // has a group number goes to PlacementBatch::side
  kFurtherMainGroup,         // full attention beside the main group's; goes to PlacementBatch::side
  kUnlearnedGroup,           // a group whose kind was never announced
  kTooManyGroups,            // a group beyond MemoryLimits::groups_max
  kAmbiguousCacheNamespace,  // under a parent that was stored with two salts
  kEmptyStore,               // a store or removal without hashes
  kSelfReferencing,          // a hash twice among the blocks and their parent
  kBlockSizeMismatch,        // another block size than registered
  kPartialBlock,             // a piece of a block, under a parent that is never announced, or of
                             // blocks that were left out as such
  kChunkedStore,             // one name for several blocks
  kSparseStore,              // more tokens than the named blocks hold: which they are is unknown
  kTokensTooShort,           // fewer tokens than one block
  kAmbiguousName,            // of a name, or under one, that stands for blocks in several places
  // Of RouterEvents only.
  kForeignWorker,     // of a worker other than the one whose stream it is
  kUnknownResidency,  // of a cache that we cannot tell whose it is
};

inline constexpr std::size_t kDropReasonCount = 24;
inline constexpr std::array<std::string_view, kDropReasonCount> kDropReasonNames = {
    "decode_error",        "unknown_event",
    "unknown_ownership",   "unsupported_ownership",
    "ignored_event",       "remote_locality",
    "unknown_locality",    "unknown_medium",
    "unknown_kind",        "non_main_group",
    "further_main_group",  "unlearned_group",
    "too_many_groups",     "ambiguous_cache_namespace",
    "empty_store",         "self_referencing",
    "block_size_mismatch", "partial_block",
    "chunked_store",       "sparse_store",
    "tokens_too_short",    "ambiguous_name",
    "foreign_worker",      "unknown_residency"};
constexpr std::string_view DropReasonName(DropReason reason) {
  return kDropReasonNames[static_cast<std::size_t>(reason)];
}

}  // namespace kvr::placement
