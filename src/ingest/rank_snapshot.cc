#include "ingest/rank_snapshot.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <utility>

namespace kvr::ingest {
namespace {

constexpr std::size_t kEventBlocks = 1'024;
constexpr std::size_t kFirstEntries = 64;

// Whether the rank has blocks that `known`, which was copied just now, does not tell of: behind one
// that it does not hold, or waiting for their place.
bool HidesBlocks(const index::PrefixIndex& index, RankSlot slot, const index::RankCopy& known) {
  const index::RankStats stats = index.StatsOf(slot);
  if (stats.pending_blocks > 0) return true;
  std::array<std::uint64_t, kTierCount> told{};
  for (const index::RankCopy::Run& run : known.runs) {
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      if ((run.tiers >> tier & 1u) != 0) told[tier] += run.end - run.begin;
    }
  }
  return told != stats.blocks;
}

}  // namespace

// What has to be told to the index, in events of some size.
class RankSnapshot::Changes {
 public:
  Changes(index::PrefixIndex& index, RankSlot slot, Rank rank, const Applied& applied)
      : index_(index), slot_(slot), applied_(applied) {
    event_.rank = rank;
  }

  void Remove(EngineHash name, unsigned tiers) {
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      if ((tiers >> tier & 1u) == 0) continue;
      gone_[tier].push_back(name);
      if (gone_[tier].size() == kEventBlocks) TellGone(tier);
    }
  }
  void Clear() {
    event_.kind = PlacementKind::kCleared;
    Tell(Tier::kDevice);
  }
  void EndRemovals() {
    for (std::size_t tier = 0; tier < kTierCount; ++tier)
      TellGone(tier);
  }

  void Store(const Entry& entry, unsigned tiers, bool by_name = false) {
    if (tiers == 0) return;
    const std::optional<EngineHash> parent =
        entry.has_parent ? std::optional(entry.parent) : std::nullopt;
    const bool goes_on = !stored_.empty() && parent == stored_.back().engine && tiers == tiers_ &&
                         entry.eligible == event_.eligible && by_name == event_.hash_only &&
                         stored_.size() < kEventBlocks;
    if (!goes_on) {
      EndStores();
      event_.parent = parent;
      event_.eligible = entry.eligible;
      event_.hash_only = by_name;
      tiers_ = tiers;
    }
    stored_.push_back({entry.name, entry.local});
  }
  void EndStores() {
    if (stored_.empty()) return;
    event_.kind = PlacementKind::kStored;
    event_.blocks = stored_;
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      if ((tiers_ >> tier & 1u) != 0) Tell(static_cast<Tier>(tier));
    }
    stored_.clear();
    event_.blocks = {};
    event_.hash_only = false;
  }

 private:
  void TellGone(std::size_t tier) {
    if (gone_[tier].empty()) return;
    event_.kind = PlacementKind::kRemoved;
    event_.parent.reset();
    event_.removed = gone_[tier];
    Tell(static_cast<Tier>(tier));
    gone_[tier].clear();
    event_.removed = {};
  }
  void Tell(Tier tier) {
    event_.tier = tier;
    applied_(event_, index_.Apply(slot_, event_));
  }

  index::PrefixIndex& index_;
  const RankSlot slot_;
  const Applied& applied_;
  PlacementEvent event_;
  std::array<std::vector<EngineHash>, kTierCount> gone_;
  std::vector<PlacedBlock> stored_;
  unsigned tiers_ = 0;  // of stored_
};

bool RankSnapshot::Reserve(std::uint64_t blocks) {
  return blocks <= bytes_max_ && Grow(static_cast<std::size_t>(blocks));
}

bool RankSnapshot::Add(const PlacementEvent& event) {
  switch (event.kind) {
    case PlacementKind::kStored:
      return Store(event);
    case PlacementKind::kRemoved:
      Remove(event);
      return true;
    case PlacementKind::kCleared:
      Clear();
      return true;
  }
  return true;
}

std::size_t RankSnapshot::bytes() const {
  return entries_.capacity() * sizeof(Entry) + places_.capacity() * sizeof(Place);
}

bool RankSnapshot::Store(const PlacementEvent& event) {
  if (!Grow(entries_.size() + event.blocks.size())) return false;
  const auto tier = static_cast<std::uint8_t>(index::TierBit(event.tier));
  std::optional<EngineHash> parent = event.parent;
  for (const PlacedBlock& block : event.blocks) {
    Place& place = places_[CellOf(block.engine)];
    Entry* entry = place == 0 ? nullptr : &entries_[place - 1];
    if (entry != nullptr && entry->Is(block.local, parent)) {
      entry->tiers |= tier;
      entry->eligible = entry->eligible && event.eligible;
    } else {
      // Behind its parent, whatever was there of this name.
      if (entry != nullptr && entry->tiers != 0) {
        entry->tiers = 0;
        --held_;
      }
      entry = &entries_.emplace_back();
      place = static_cast<Place>(entries_.size());
      entry->name = block.engine;
      entry->local = block.local;
      entry->parent = parent.value_or(EngineHash{});
      entry->has_parent = parent.has_value();
      entry->tiers = tier;
      entry->eligible = event.eligible;
      ++held_;
    }
    parent = block.engine;
  }
  return true;
}

void RankSnapshot::Remove(const PlacementEvent& event) {
  for (const EngineHash name : event.removed) {
    Entry* const entry = Find(name);
    if (entry == nullptr || entry->tiers == 0) continue;
    entry->tiers = static_cast<std::uint8_t>(entry->tiers & ~index::TierBit(event.tier));
    if (entry->tiers == 0) --held_;
  }
}

void RankSnapshot::Clear() {
  entries_.clear();
  std::ranges::fill(places_, Place{0});
  held_ = 0;
}

RankSnapshot::Entry* RankSnapshot::Find(EngineHash name) {
  if (places_.empty()) return nullptr;
  const Place place = places_[CellOf(name)];
  return place == 0 ? nullptr : &entries_[place - 1];
}

std::size_t RankSnapshot::CellOf(EngineHash name) const {
  // The upper bits of the product depend on all of the name.
  const int shift = 64 - std::countr_zero(places_.size());
  std::size_t cell = static_cast<std::size_t>(Raw(name) * 0x9E3779B97F4A7C15u >> shift);
  while (places_[cell] != 0 && entries_[places_[cell] - 1].name != name)
    cell = (cell + 1) & (places_.size() - 1);
  return cell;
}

bool RankSnapshot::Grow(std::size_t entries) {
  if (entries > std::numeric_limits<Place>::max()) return false;
  const std::size_t wanted = std::max(kFirstEntries, std::bit_ceil(entries));
  const std::size_t cells = std::max(places_.size(), wanted * 2);
  std::size_t room = entries_.capacity();
  if (entries > room) room = std::max({entries, kFirstEntries, room + room / 2});
  if (room * sizeof(Entry) + cells * sizeof(Place) > bytes_max_) {
    room = std::max(entries, entries_.capacity());
    if (room * sizeof(Entry) + cells * sizeof(Place) > bytes_max_) return false;
  }
  entries_.reserve(room);
  if (cells == places_.size()) return true;
  places_.assign(cells, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    // Of several with one name the last counts, and is found in the cell of the first.
    places_[CellOf(entries_[i].name)] = static_cast<Place>(i + 1);
  }
  return true;
}

void RankSnapshot::ReplaceIn(index::PrefixIndex& index, RankSlot slot, Rank rank,
                             const Applied& applied) {
  Changes changes(index, slot, rank, applied);
  {
    index::RankCopy known;
    index.CopyRank(rank, known);
    if (HidesBlocks(index, slot, known)) {
      changes.Clear();
      known = {};
    }
    MarkKept(known);
    // A block that changes its tier is never in none.
    StoreInKept(changes);
    RemoveOthers(known, changes);
  }
  StoreOthers(changes);
}

void RankSnapshot::MarkKept(const index::RankCopy& known) {
  for (const index::RankCopy::Run& run : known.runs) {
    std::optional<EngineHash> parent = run.parent;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const PlacedBlock& block = known.blocks[i];
      const std::optional<EngineHash> before = std::exchange(parent, block.engine);
      Entry* const entry = Find(block.engine);
      if (entry == nullptr) continue;
      if (entry->kept) {
        entry->kept = false;  // two blocks of that name: which of them goes, nobody could say
        continue;
      }
      const auto parent_kept = [&] {
        const Entry* const above = Find(*before);
        return above != nullptr && above->kept;
      };
      entry->kept = entry->Is(block.local, before) && (!before || parent_kept());
      entry->known_tiers = static_cast<std::uint8_t>(run.tiers);
      entry->known_eligible = run.eligible;
    }
  }
}

void RankSnapshot::RemoveOthers(const index::RankCopy& known, Changes& changes) {
  for (const index::RankCopy::Run& run : known.runs) {
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const EngineHash name = known.blocks[i].engine;
      const Entry* const entry = Find(name);
      const unsigned stay = entry != nullptr && entry->kept ? entry->tiers : 0;
      changes.Remove(name, run.tiers & ~stay);
    }
  }
  changes.EndRemovals();
}

void RankSnapshot::StoreInKept(Changes& changes) {
  for (const Entry& entry : entries_) {
    if (!entry.kept) continue;
    // A store by name makes a block eligible whatever was said before; see PrefixIndex.
    const bool raised = entry.eligible && !entry.known_eligible;
    const bool same = entry.eligible == entry.known_eligible;
    changes.Store(entry, same ? entry.tiers & ~entry.known_tiers : entry.tiers, raised);
  }
  changes.EndStores();
}

void RankSnapshot::StoreOthers(Changes& changes) {
  for (const Entry& entry : entries_) {
    if (!entry.kept) changes.Store(entry, entry.tiers);
  }
  changes.EndStores();
}

}  // namespace kvr::ingest
