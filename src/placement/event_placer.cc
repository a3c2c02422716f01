#include "placement/event_placer.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>

#include "placement/block_keys.h"
#include "placement/copy_rules.h"
#include "placement/event_filter.h"
#include "placement/store_size.h"
#include "wire/medium.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;
using wire::EventType;

namespace {

template <typename T>
wire::Slice Append(std::vector<T>& to, const std::vector<T>& what) {
  const wire::Slice slice{static_cast<std::uint32_t>(to.size()),
                          static_cast<std::uint32_t>(what.size())};
  to.insert(to.end(), what.begin(), what.end());
  return slice;
}

// One name for several blocks, or for a block that the engine calls otherwise.
bool MayBeChunk(const EngineEvent& event, const EventBatch& batch, std::uint32_t block_size,
                RankMemory& memory) {
  if (event.hashes.count != 1 || event.eagle || event.sole || block_size == 0) return false;
  if (event.block_size > block_size) return true;
  return memory.chunks.begun() && event.block_size == block_size &&
         memory.blocks.Find(batch.HashesOf(event).front()) == nullptr;
}

bool HasKeys(std::span<const std::uint8_t> keyed) {
  return std::any_of(keyed.begin(), keyed.end(), [](std::uint8_t has) { return has != 0; });
}

}  // namespace

std::optional<DropReason> EventPlacer::PlaceOwn(const EngineEvent& event, const EventBatch& batch,
                                                RankMemory& memory, PlacementBatch& out) {
  if (const auto reason = CheckOrigin(event)) return reason;
  if (event.type == EventType::kCleared) {
    memory.ForgetCopies();
    Emit(event, PlacementKind::kCleared, Tier::kDevice, memory, out);
    ends_.push_back(0);
    return std::nullopt;
  }
  const auto tier = options_.lenient_media ? wire::TierFromMediumLeniently(event.medium)
                                           : wire::TierFromMedium(event.medium);
  if (!tier) return DropReason::kUnknownMedium;
  if (OnPath(*tier)) {
    if (const auto reason = Sort(event, batch, *tier, memory, out)) return reason;
  }
  if (event.type == EventType::kRemoved) return Remove(event, batch, *tier, memory, out);
  return Store(event, batch, *tier, memory, out);
}

PlacementEvent& EventPlacer::Emit(const EngineEvent& event, PlacementKind kind, Tier tier,
                                  const RankMemory& memory, PlacementBatch& out) {
  PlacementEvent& placed = out.events.emplace_back();
  placed.kind = kind;
  placed.tier = tier;
  placed.rank = Rank{options_.rank.worker, memory.dp_rank};
  if (kind == PlacementKind::kStored) placed.session_id = event.session_id;
  out.event_index.push_back(event.index);
  return placed;
}

std::optional<DropReason> EventPlacer::Remove(const EngineEvent& event, const EventBatch& batch,
                                              Tier tier, RankMemory& memory, PlacementBatch& out) {
  if (event.hashes.count == 0) return DropReason::kEmptyStore;
  const auto hashes = batch.HashesOf(event);
  if (event.every_tier) {
    FindTiers(hashes, memory.blocks, tiers_, stats_);
    for (std::size_t i = 0; i < kTierCount; ++i) {
      const std::size_t before = out.removed.size();
      RemoveCopies(hashes, tiers_, static_cast<Tier>(i), memory, out.removed, stats_);
      EmitRemoved(event, before, static_cast<Tier>(i), memory, out);
    }
  } else {
    const std::size_t before = out.removed.size();
    const std::uint64_t pieces = stats_.partial_removals;
    RemoveCopies(batch, event, tier, memory, out.removed, stats_);
    EmitRemoved(event, before, tier, memory, out);
    if (stats_.partial_removals != pieces) {
      out.notes.push_back(
          {event.index, 0, static_cast<std::uint32_t>(stats_.partial_removals - pieces)});
    }
  }
  if (memory.chunks.begun()) {
    for (const EngineHash hash : hashes) {
      if (memory.blocks.Find(hash) == nullptr) memory.chunks.Forget(hash);
    }
  }
  return std::nullopt;
}

// What was appended to the removed blocks since `before`, if anything.
void EventPlacer::EmitRemoved(const EngineEvent& event, std::size_t before, Tier tier,
                              const RankMemory& memory, PlacementBatch& out) {
  const std::size_t passed = out.removed.size() - before;
  if (passed == 0) return;
  stats_.removed_blocks += passed;
  Emit(event, PlacementKind::kRemoved, tier, memory, out);
  ends_.push_back(out.removed.size());
}

std::optional<DropReason> EventPlacer::Store(const EngineEvent& event, const EventBatch& batch,
                                             Tier tier, RankMemory& memory, PlacementBatch& out) {
  const std::string_view named = SaltOf(batch, event);
  const Salt own = Salt::Named(named);
  NoteShown(event, own);
  stats_.cut_blocks += event.left_out;
  if (event.hashes.count == 0) return DropReason::kEmptyStore;
  const Salt salt = InheritSalt(batch, event, tier, own, memory.blocks);
  if (salt.state == SaltState::kAmbiguous) return DropReason::kAmbiguousCacheNamespace;
  if (seen_.FindRepeated(event.parent, batch.HashesOf(event), std::identity())) {
    return DropReason::kSelfReferencing;
  }
  const bool off_device = tier != Tier::kDevice;
  bool hash_only =
      event.tokens.count == 0 || (off_device && LacksKeys(batch, event, memory.blocks));
  std::size_t count = event.hashes.count;
  const std::uint32_t block_size =
      options_.block_size != 0 ? options_.block_size : event.block_size;
  if (!hash_only) {
    if (off_device && MayBeChunk(event, batch, block_size, memory) &&
        StoreChunk(event, batch, tier, block_size, memory, out)) {
      return std::nullopt;
    }
    if (const auto reason = CountBlocks(event, batch, tier, block_size, memory, stats_, count)) {
      return reason;
    }
    hash_only = off_device && MayLackKeys(batch, event, salt, shown_, memory.blocks);
  }
  if (!hash_only && event.parent && IsMisplaced(*event.parent, memory.blocks)) {
    return DropReason::kAmbiguousName;
  }
  const auto names = batch.HashesOf(event).first(count);
  const std::size_t before = out.blocks.size();
  bool complete = false;
  if (!hash_only) {
    complete = hasher_.AppendBlocks(batch, event, named, salt, block_size, count, out.blocks);
    shown_.others = shown_.others || HasKeys(hasher_.keyed());
    hash_only =
        off_device && IsElsewhere(std::span(out.blocks).subspan(before), event.parent, memory);
    if (hash_only) out.blocks.resize(before);
  }
  if (hash_only) hasher_.AppendNames(names, out.blocks);
  const bool eligible =
      complete && !hash_only && (!off_device || KeysAreTold(batch, event, memory.blocks));
  CountCopies(std::span(out.blocks).subspan(before),
              {tier, event.sole, event.parent, hash_only ? nullptr : &salt, hasher_.keyed()},
              memory);
  Withdraw(event, found_.moved, Tier::kHostPinned, memory, out);
  Withdraw(event, found_.misplaced, Tier::kDevice, memory, out);
  if (found_.refuse) {
    out.blocks.resize(before);
    return DropReason::kAmbiguousName;
  }
  PlacementEvent& placed = Emit(event, PlacementKind::kStored, tier, memory, out);
  if (salt.state == SaltState::kSalted && own.state != SaltState::kSalted && !hash_only) {
    out.notes.push_back({event.index, salt.mix, 0});
  }
  placed.parent = event.parent;
  placed.hash_only = hash_only;
  placed.eligible = eligible;
  ends_.push_back(out.blocks.size());
  stats_.stored_blocks += count;
  if (!off_device && !hash_only && memory.chunks.begun()) {
    const auto tokens = hasher_.TokenHashes(batch, event, block_size);
    stats_.unplaced_blocks += memory.chunks.Learn(event.parent, tokens.first(count), names);
  }
  return std::nullopt;
}

void EventPlacer::NoteShown(const EngineEvent& event, const Salt& own) {
  shown_.salts = shown_.salts || own.state == SaltState::kSalted;
  shown_.adapters = shown_.adapters || !event.lora_name.empty() || event.lora_id.value_or(0) != 0;
}

// Blocks that are not where they were said to be, in this tier and below.
void EventPlacer::Withdraw(const EngineEvent& event, std::span<const EngineHash> names, Tier from,
                           RankMemory& memory, PlacementBatch& out) {
  for (auto tier = static_cast<std::size_t>(from); tier < kTierCount && !names.empty(); ++tier) {
    const std::size_t before = out.removed.size();
    for (const EngineHash name : names) {
      const BlockRecord* record = memory.blocks.Find(name);
      if (record != nullptr && record->copies[tier] > 0)
        out.removed.insert(out.removed.end(), std::size_t{1} + record->twins, name);
    }
    if (out.removed.size() == before) continue;
    Emit(event, PlacementKind::kRemoved, static_cast<Tier>(tier), memory, out);
    ends_.push_back(out.removed.size());
  }
}

// False when none of its blocks is known.
bool EventPlacer::StoreChunk(const EngineEvent& event, const EventBatch& batch, Tier tier,
                             std::uint32_t block_size, RankMemory& memory, PlacementBatch& out) {
  memory.chunks.Begin();
  const std::uint32_t tokens = std::min(event.tokens.count, event.block_size);
  const auto blocks = hasher_.TokenHashes(batch, event, block_size);
  bool repeated = false;
  const ChunkBook::Chunk* chunk = memory.chunks.Store(
      batch.HashesOf(event).front(), event.parent, blocks.first(tokens / block_size),
      tokens % block_size == 0, tier, batch.ts, repeated);
  if (chunk == nullptr) return false;
  if (repeated) return true;
  const std::size_t before = out.blocks.size();
  hasher_.AppendNames(chunk->names, out.blocks);
  CountCopies(std::span(out.blocks).subspan(before), {tier, false, std::nullopt, nullptr, {}},
              memory);
  memory.numberless = true;  // whatever the event says: a chunk's blocks are of no group
  if (found_.refuse) {
    out.blocks.resize(before);
    return true;
  }
  Emit(event, PlacementKind::kStored, tier, memory, out).hash_only = true;
  ends_.push_back(out.blocks.size());
  stats_.stored_blocks += chunk->names.size();
  return true;
}

void EventPlacer::CountCopies(std::span<const PlacedBlock> stored, const StoreFacts& facts,
                              RankMemory& memory) {
  found_.Clear();
  AddCopies(stored, facts, memory, found_, stats_);
}

void EventPlacer::ExpireChunks(EventBatch& batch, RankMemory& memory, PlacementBatch& out) {
  while (const auto chunk = memory.chunks.Expire(batch.ts)) {
    if (chunk->expires > batch.ts) ++stats_.crowded_chunks;
    EngineEvent event;
    event.type = EventType::kRemoved;
    event.index = batch.events.empty() ? 0 : batch.events.back().index;
    event.hashes = Append(batch.hashes, chunk->names);
    Remove(event, batch, chunk->tier, memory, out);
  }
}

void EventPlacer::End(PlacementBatch& out) const {
  out.SetEventSpans(ends_);
  std::size_t copy = 0;
  for (std::size_t i = 0; i < out.side.size(); ++i) {
    out.side[i].copies = std::span(out.side_copies).subspan(copy, side_ends_[i] - copy);
    copy = side_ends_[i];
  }
}

}  // namespace kvr::placement
