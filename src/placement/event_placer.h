// Engine events → placement events. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/placement_event.h"
#include "placement/block_hasher.h"
#include "placement/chunk_book.h"
#include "placement/copy_rules.h"
#include "placement/drop_reason.h"
#include "placement/hash_set.h"
#include "placement/placement_batch.h"
#include "placement/rank_memory.h"
#include "placement/translator_options.h"
#include "wire/event_batch.h"

namespace kvr::placement {

// Places the events of one decoded batch after the other, each by what earlier ones taught about
// its rank. Begin, then Place for each event and perhaps ExpireChunks, then NoteRank and End. Not
// thread-safe; `options` and `stats` must outlive it.
class EventPlacer {
 public:
  EventPlacer(const TranslatorOptions& options, TranslatorStats& stats)
      : options_(options), stats_(stats), hasher_(options, stats) {}

  void Begin() {
    ends_.clear();
    side_ends_.clear();
  }
  // Adds to `out` what the event of `batch` means; else says why it means nothing.
  std::optional<DropReason> Place(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                  RankMemory& memory, PlacementBatch& out) {
    told_ = nullptr;
    const auto reason = PlaceOwn(event, batch, memory, out);
    if (told_ != nullptr) Settle(event, *told_, memory, out);
    return reason;
  }
  // What was placed as the main group's is another's: the event at `index` told so.
  void ChangeMain(std::uint32_t index, RankMemory& memory, PlacementBatch& out);
  // Removes the copies of chunks whose time is over: names are appended to `batch` for that.
  void ExpireChunks(wire::EventBatch& batch, RankMemory& memory, PlacementBatch& out);
  void NoteRank(RankMemory& memory, PlacementBatch& out);
  // The vectors behind the spans of `out` have stopped growing.
  void End(PlacementBatch& out) const;

 private:
  std::optional<DropReason> PlaceOwn(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                     RankMemory& memory, PlacementBatch& out);
  // group_placer.cc: whose event it is.
  std::optional<DropReason> Sort(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                 Tier tier, RankMemory& memory, PlacementBatch& out);
  std::optional<DropReason> SortNumberless(const wire::EngineEvent& event, RankMemory& memory);
  void FollowMain(const wire::EngineEvent& event, std::optional<std::uint32_t> before,
                  RankMemory& memory, PlacementBatch& out);
  void TakeBack(const wire::EngineEvent& event, RankMemory& memory, PlacementBatch& out);
  void TakeAllBack(const wire::EngineEvent& event, RankMemory& memory, PlacementBatch& out);
  void Settle(const wire::EngineEvent& event, GroupTable::Group& group, RankMemory& memory,
              PlacementBatch& out);
  void NoteHeld(const GroupTable::Group& group, Tier tier, PlacementBatch& out);
  void NoteSide(const wire::EngineEvent& event, const wire::EventBatch& batch, Tier tier,
                const GroupTable::Group& group, PlacementBatch& out);
  SideEvent& AddSide(const SideGroup& group, Tier tier, PlacementBatch& out);

  // held_placer.cc: copies of a group whose kind is not told.
  void Hold(const wire::EngineEvent& event, const wire::EventBatch& batch, Tier tier,
            GroupTable::Group& group, RankMemory& memory);
  void StoreHeld(const wire::EngineEvent& event, const GroupTable::Group& group, Tier tier,
                 RankMemory& memory, PlacementBatch& out);
  void EmitHeld(const wire::EngineEvent& event, const StoreFacts& facts, bool eligible,
                std::size_t before, const GroupTable::Group& group, RankMemory& memory,
                PlacementBatch& out);

  // event_placer.cc: what it does to the main group's blocks.
  PlacementEvent& Emit(const wire::EngineEvent& event, PlacementKind kind, Tier tier,
                       const RankMemory& memory, PlacementBatch& out);
  std::optional<DropReason> Remove(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                   Tier tier, RankMemory& memory, PlacementBatch& out);
  void EmitRemoved(const wire::EngineEvent& event, std::size_t before, Tier tier,
                   const RankMemory& memory, PlacementBatch& out);
  std::optional<DropReason> Store(const wire::EngineEvent& event, const wire::EventBatch& batch,
                                  Tier tier, RankMemory& memory, PlacementBatch& out);
  void Withdraw(const wire::EngineEvent& event, std::span<const EngineHash> names, Tier from,
                RankMemory& memory, PlacementBatch& out);
  bool StoreChunk(const wire::EngineEvent& event, const wire::EventBatch& batch, Tier tier,
                  std::uint32_t block_size, RankMemory& memory, PlacementBatch& out);
  void CountCopies(std::span<const PlacedBlock> stored, const StoreFacts& facts,
                   RankMemory& memory);
  void NoteShown(const wire::EngineEvent& event, const Salt& own);

  const TranslatorOptions& options_;
  TranslatorStats& stats_;
  BlockHasher hasher_;
  ShownKeys shown_;                     // by the stream, whatever was forgotten since
  GroupTable::Group* told_ = nullptr;   // by the event at hand, which changed what is known of it
  HashSet seen_;                        // scratch, kept for its capacity
  Contradictions found_;                // the same
  std::vector<TierSet> tiers_;          // the same
  std::vector<PlacedBlock> held_;       // the same
  std::vector<std::size_t> ends_;       // of each event's blocks or hashes in the output
  std::vector<std::size_t> side_ends_;  // the same of the side events' copies
};

}  // namespace kvr::placement
