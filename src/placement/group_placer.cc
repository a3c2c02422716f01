// Which cache group an event is of, and what happens when the main group turns out to be another.
// See EventTranslator for the rules.
#include <array>
#include <span>

#include "placement/event_placer.h"

namespace kvr::placement {

using wire::EngineEvent;
using wire::EventBatch;
using wire::EventType;
using wire::GroupKind;

namespace {

constexpr std::array<Tier, 2> kPathTiers = {Tier::kDevice, Tier::kHostPinned};

DropReason ReasonOf(GroupKind kind) {
  switch (kind) {
    case GroupKind::kMain:
      return DropReason::kFurtherMainGroup;
    case GroupKind::kOther:
      return DropReason::kNonMainGroup;
    case GroupKind::kUnknown:
      return DropReason::kUnknownKind;
    case GroupKind::kAbsent:
      break;
  }
  return DropReason::kUnlearnedGroup;
}

// What a rank has beside its groups while something of them is unclear, and afterwards: a window of
// one token needs no block.
constexpr SideGroup kUnclear = {.group = GroupTable::kNoNumber, .rule = SideRule::kNever};
constexpr SideGroup kClear = {
    .group = GroupTable::kNoNumber, .rule = SideRule::kWindow, .window = 1};

}  // namespace

// None when the event, which is on the path, is the main group's.
std::optional<DropReason> EventPlacer::Sort(const EngineEvent& event, const EventBatch& batch,
                                            Tier tier, RankMemory& memory, PlacementBatch& out) {
  if (event.group.value_or(GroupTable::kNoNumber) == GroupTable::kNoNumber) {
    return SortNumberless(event, memory);
  }
  GroupTable& groups = memory.groups;
  const std::uint32_t number = *event.group;
  const bool stored = event.type == EventType::kStored;
  GroupTable::Group* group = stored ? groups.FindOrAdd(number) : groups.Find(number);
  if (stored && group == nullptr) return DropReason::kTooManyGroups;
  if (stored && event.kind != GroupKind::kAbsent) {
    const std::optional<std::uint32_t> before = groups.main();
    if (groups.Learn(*group, event, tier == Tier::kDevice)) {
      FollowMain(event, before, memory, out);
      told_ = group;
    }
  }
  const GroupKind told = group == nullptr ? GroupKind::kAbsent : group->kind;
  // Removals teach nothing, but what one says of itself counts for it.
  const GroupKind kind = told == GroupKind::kAbsent ? event.kind : told;
  const bool is_main = groups.main() == number ||
                       (kind == GroupKind::kMain && told != kind && !groups.main_is_told());
  if (is_main && (kind == GroupKind::kMain || kind == GroupKind::kAbsent)) {
    if (stored) memory.owner = number;
    return std::nullopt;
  }
  if (group != nullptr && !is_main) {
    if (told == GroupKind::kAbsent) {
      Hold(event, batch, tier, *group, memory);
    } else {
      NoteSide(event, batch, tier, *group, out);
    }
  }
  return ReasonOf(kind);
}

// An event that names no group is the main one's, unless its kind says otherwise.
std::optional<DropReason> EventPlacer::SortNumberless(const EngineEvent& event,
                                                      RankMemory& memory) {
  const bool stored = event.type == EventType::kStored;
  const bool of_main = event.kind == GroupKind::kMain || event.kind == GroupKind::kAbsent;
  if (event.group || event.kind == GroupKind::kUnknown) {
    if (stored) memory.groups.NoteUnknownKind();
    return DropReason::kUnknownKind;
  }
  if (!of_main) return DropReason::kNonMainGroup;
  if (memory.groups.main_is_unclear()) return DropReason::kUnknownKind;
  memory.numberless = memory.numberless || stored;
  return std::nullopt;
}

// What is known of groups has changed; `before` was the main one's number.
void EventPlacer::FollowMain(const EngineEvent& event, std::optional<std::uint32_t> before,
                             RankMemory& memory, PlacementBatch& out) {
  const std::optional<std::uint32_t> main = memory.groups.main();
  if (main != before) {
    memory.size_confirmed = false;
    memory.wrong_block_size = 0;
    // A prefix needs the former group from now on, also where it has no copy left.
    const GroupTable::Group* former = before ? memory.groups.Find(*before) : nullptr;
    if (former != nullptr && former->kind != GroupKind::kAbsent && !former->never_matters()) {
      AddSide(former->side, Tier::kDevice, out);
    }
  }
  const bool others = memory.owner && memory.owner != main;
  if (others || (memory.groups.main_is_unclear() && memory.numberless)) {
    TakeBack(event, memory, out);
  }
}

// What is in the index is not the main group's: it becomes the side group's that it is of.
void EventPlacer::TakeBack(const EngineEvent& event, RankMemory& memory, PlacementBatch& out) {
  ++stats_.main_changes;
  GroupTable::Group* former = memory.owner ? memory.groups.Find(*memory.owner) : nullptr;
  if (former == nullptr || memory.numberless || !memory.blocks.complete()) {
    return TakeAllBack(event, memory, out);
  }
  for (const Tier tier : kPathTiers) {
    const std::size_t before = out.removed.size();
    memory.blocks.ForEach([&](EngineHash name, const BlockRecord& record) {
      const std::uint32_t copies = record.copies[static_cast<std::size_t>(tier)];
      if (copies == 0) return;
      out.removed.insert(out.removed.end(), 1u + record.twins, name);
      if (former->kind == GroupKind::kAbsent) {
        memory.groups.Hold(*former, name, tier, copies, stats_);
      } else if (!former->never_matters()) {
        out.side_copies.insert(out.side_copies.end(), copies, SideCopy{name});
      }
    });
    if (out.removed.size() == before) continue;
    stats_.removed_blocks += out.removed.size() - before;
    Emit(event, PlacementKind::kRemoved, tier, memory, out);
    ends_.push_back(out.removed.size());
    if (former->kind != GroupKind::kAbsent && !former->never_matters()) {
      AddSide(former->side, tier, out);
    }
  }
  // Copies in deeper tiers are of no group, and their stores said less of a block.
  memory.blocks.EraseIf([](BlockRecord& record) {
    const BlockRecord old = record;
    record = BlockRecord{.misplaced = old.misplaced, .epoch = old.epoch, .place = old.place};
    record.copies[2] = old.copies[2];
    record.copies[3] = old.copies[3];
    return !record.held();
  });
  memory.owner.reset();
}

// Which copies are whose nobody can tell any more.
void EventPlacer::TakeAllBack(const EngineEvent& event, RankMemory& memory, PlacementBatch& out) {
  memory.ForgetCopies();
  out.lost_copies = true;
  Emit(event, PlacementKind::kCleared, Tier::kDevice, memory, out);
  ends_.push_back(0);
}

void EventPlacer::ChangeMain(std::uint32_t index, RankMemory& memory, PlacementBatch& out) {
  if (memory.blocks.size() == 0 && memory.blocks.complete()) return;
  ++stats_.main_changes;
  EngineEvent event;
  event.index = index;
  TakeAllBack(event, memory, out);
}

// After a store that told something new of a group.
void EventPlacer::Settle(const EngineEvent& event, GroupTable::Group& group, RankMemory& memory,
                         PlacementBatch& out) {
  if (group.held && !group.never_matters()) {
    const bool is_main = memory.groups.main() == group.side.group;
    for (const Tier tier : kPathTiers) {
      if (is_main) {
        StoreHeld(event, group, tier, memory, out);
      } else {
        NoteHeld(group, tier, out);
      }
    }
    out.lost_copies =
        out.lost_copies || group.overflowed || (is_main && group.held->contradicted());
  }
  memory.groups.Release(group);
}

// What is held, now of a side group.
void EventPlacer::NoteHeld(const GroupTable::Group& group, Tier tier, PlacementBatch& out) {
  group.held->records().ForEach([&](EngineHash name, const BlockRecord& record) {
    const std::uint32_t copies = record.copies[static_cast<std::size_t>(tier)];
    out.side_copies.insert(out.side_copies.end(), copies, SideCopy{name});
  });
  AddSide(group.side, tier, out);
}

void EventPlacer::NoteSide(const EngineEvent& event, const EventBatch& batch, Tier tier,
                           const GroupTable::Group& group, PlacementBatch& out) {
  if (group.never_matters()) return;
  const auto hashes = batch.HashesOf(event);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    SideCopy& copy = out.side_copies.emplace_back(SideCopy{hashes[i]});
    const std::uint32_t left = batch.CopiesLeftOf(event, i);
    if (left != wire::kCopiesUnknown) copy.left = left;
  }
  AddSide(group.side, tier, out).removed = event.type == EventType::kRemoved;
  // One that names no tier comes as of the device.
  if (event.every_tier && tier == Tier::kDevice) {
    NoteSide(event, batch, Tier::kHostPinned, group, out);
  }
}

// What is in `out.side_copies` behind the copies of earlier side events is this one's.
SideEvent& EventPlacer::AddSide(const SideGroup& group, Tier tier, PlacementBatch& out) {
  SideEvent& side = out.side.emplace_back();
  side.before = static_cast<std::uint32_t>(out.events.size());
  side.group = group;
  side.tier = tier;
  side_ends_.push_back(out.side_copies.size());
  return side;
}

// Says of the rank as a whole what the events of this batch have made of it.
void EventPlacer::NoteRank(RankMemory& memory, PlacementBatch& out) {
  out.wrong_block_size = memory.wrong_block_size;
  out.unclear_group = memory.groups.unclear();
  const bool unclear = out.unclear_group.has_value();
  if (unclear == memory.said_unclear) return;
  memory.said_unclear = unclear;
  AddSide(unclear ? kUnclear : kClear, Tier::kDevice, out);
}

}  // namespace kvr::placement
