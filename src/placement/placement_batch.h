// What an engine's batch means to an index, and what of it goes no further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/reused_lists.h"
#include "model/ids.h"
#include "model/placement_event.h"
#include "model/side_group.h"
#include "model/tier.h"
#include "placement/drop_reason.h"
#include "wire/decode_error.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// An engine event that went no further.
struct DroppedEvent {
  std::uint32_t index = 0;  // place in the engine's batch
  DropReason reason = DropReason::kDecodeError;
  wire::DecodeError error;       // kDecodeError, kUnknownEvent: what and at which byte
  std::uint32_t block_size = 0;  // kBlockSizeMismatch: the size the event came with
};

// An event whose bytes do not fit its type, or whose tag nobody knows.
DroppedEvent Undecodable(const wire::BadEvent& bad);

// What happened to a side group of a hybrid model.
struct SideEvent {
  std::uint32_t before = 0;  // of the batch's `events`, the first that comes after it
  SideGroup group;           // what is known of it by now
  bool removed = false;
  Tier tier = Tier::kDevice;         // device or host_pinned
  std::span<const SideCopy> copies;  // none when the event only made the group known
};

// A cache group of which it is not known what a prefix needs of it, and why.
struct UnclearGroup {
  std::uint32_t group = 0;                       // its number; 2^32 - 1 when it has none
  DropReason why = DropReason::kUnlearnedGroup;  // or kUnknownKind, kTooManyGroups

  friend bool operator==(const UnclearGroup&, const UnclearGroup&) = default;
};

// What else there is to say of an event. For display.
struct EventNote {
  std::uint32_t index = 0;   // place in the engine's batch
  std::uint64_t salt = 0;    // of a store that took another block's salt: what it adds to the seed
  std::uint32_t pieces = 0;  // of a removal: blocks that were left out because they were not full
};

// Which ranks of a stream something concerns.
enum class Concerned : std::uint8_t { kNone, kBatchsRank, kEveryRank };

// In the place of a block size: a store with tokens that says none.
inline constexpr std::uint32_t kNoBlockSize = 0xFFFF'FFFF;

// What one frame of an engine means for an index. Reused from frame to frame: once warm, filling it
// allocates nothing. The events' spans point into the batch and are valid until it is filled again
// or destroyed; session ids point into the frame. Not thread-safe; movable.
struct PlacementBatch {
  double ts = 0;                         // as the engine sent it
  std::optional<std::uint32_t> dp_rank;  // as the engine sent it
  // Each event says its rank itself, in lists of JSON and RouterEvents: what could not be decoded
  // may be of any rank of the stream.
  bool ranks_vary = false;
  // Of RouterEvents: the number of the first event, from which on they are numbered.
  std::optional<std::uint64_t> first_event;
  // The block size, in tokens, that the rank's main group stores with instead of the registered
  // one, or kNoBlockSize; 0 while they agree. What is stored so is dropped.
  std::uint32_t wrong_block_size = 0;
  // While there is one, how much of a prefix can be reused is not known. It may become clear.
  std::optional<UnclearGroup> unclear_group;
  // Copies that the rank may still hold are no longer known: the main group turned out to be
  // another when they could not be told apart any more, or they had found no room.
  bool lost_copies = false;
  // Among what could not be decoded there may be removals: how many copies these ranks have left of
  // each block is no longer known. What the translator counted is forgotten already.
  Concerned lost_removals = Concerned::kNone;
  // What came before is to be forgotten, of all ranks of the stream: its digests were read by the
  // wrong end, so that blocks would not be found when they go.
  bool forget = false;
  std::vector<PlacementEvent> events;
  std::vector<std::uint32_t> event_index;  // of each event, its place in the engine's batch
  // Of each decoded event, how many of `events` there were after it. What comes behind the last is
  // of none: chunks whose time was over, see MemoryLimits::chunks_max.
  std::vector<std::uint32_t> made_until;
  std::vector<DroppedEvent> dropped;
  std::vector<EventNote> notes;  // in the order of the engine's batch, of few events
  std::vector<SideEvent> side;   // no part of `events`, and listed in `dropped`, too

  // What the spans point into.
  std::vector<PlacedBlock> blocks;
  std::vector<EngineHash> removed;
  std::vector<SideCopy> side_copies;
  ReusedLists reused;

  void Clear() {
    ts = 0;
    dp_rank.reset();
    ranks_vary = false;
    first_event.reset();
    wrong_block_size = 0;
    unclear_group.reset();
    lost_copies = false;
    lost_removals = Concerned::kNone;
    forget = false;
    reused.Empty(events, event_index, made_until, dropped, notes, blocks, removed, side,
                 side_copies);
  }

  // For producers. In the order of the engine's batch.
  void SortDropped();
  // For producers, once `blocks` and `removed` have stopped growing: `ends[i]` is where the blocks
  // or hashes of event i end there.
  void SetEventSpans(std::span<const std::size_t> ends);
};

}  // namespace kvr::placement
