#include "placement/group_table.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace kvr::placement {
namespace {

using wire::EngineEvent;
using wire::EventType;
using wire::GroupKind;

// Kinds by the name the engine gives them: what a prefix needs of a group of that kind. Blocks of
// the other known kinds are never looked for when a prefix is reused.
struct KindRule {
  std::string_view kind;
  SideRule rule;
};
constexpr std::array<KindRule, 7> kKindRules = {{
    {"full_attention", SideRule::kEvery},
    {"mla_attention", SideRule::kEvery},
    {"sink_full_attention", SideRule::kEvery},
    {"sliding_window", SideRule::kWindow},
    {"sliding_window_mla", SideRule::kWindow},
    {"chunked_local_attention", SideRule::kWindow},
    {"mamba", SideRule::kCheckpoint},
}};

SideRule RuleOf(const EngineEvent& event) {
  if (event.kind == GroupKind::kMain) return SideRule::kEvery;
  const auto found = std::find_if(kKindRules.begin(), kKindRules.end(),
                                  [&](const KindRule& row) { return row.kind == event.kind_name; });
  return found == kKindRules.end() ? SideRule::kNever : found->rule;
}

// The largest that was told: a prefix then needs more, whoever was right. On the device a block has
// the size that the engine reuses; in host memory that of a transfer.
void LearnSizes(GroupTable::Group& group, const EngineEvent& event, bool device) {
  if (event.window) group.side.window = std::max(group.side.window, *event.window);
  if (event.block_size == 0) return;
  if (device && !group.device_size) {
    group.device_size = true;
    group.side.block_size = event.block_size;
  } else if (device == group.device_size) {
    group.side.block_size = std::max(group.side.block_size, event.block_size);
  }
}

}  // namespace

GroupTable::Group* GroupTable::FindOrAdd(std::uint32_t number) {
  if (Group* known = Find(number)) return known;
  if (groups_.size() >= groups_max_) {
    full_ = true;
    unclear_ = FindUnclear();
    return nullptr;
  }
  groups_.emplace_back().side.group = number;
  Elect();
  return &groups_.back();
}

bool GroupTable::Learn(Group& group, const EngineEvent& event, bool device) {
  LearnSizes(group, event, device);
  const bool first_of_main = event.kind == GroupKind::kMain && !group.told_main;
  const SideRule rule = RuleOf(event);
  if (!first_of_main && group.kind == event.kind && group.side.rule == rule) return false;
  if (!first_of_main && group.kind == GroupKind::kUnknown) return false;
  group.told_main = group.told_main || first_of_main;
  if (group.kind == GroupKind::kAbsent) {
    group.kind = event.kind;
    group.side.rule = rule;
  } else {
    group.kind = GroupKind::kUnknown;
    group.side.rule = SideRule::kNever;
  }
  Elect();
  return true;
}

// Depends on what was told and not on the order in which it was.
void GroupTable::Elect() {
  const Group* lowest = nullptr;
  const Group* zero = nullptr;
  for (const Group& group : groups_) {
    if (group.side.group == 0) zero = &group;
    const bool lower = lowest == nullptr || group.side.group < lowest->side.group;
    if (group.told_main && lower) lowest = &group;
  }
  main_.reset();
  main_is_told_ = lowest != nullptr;
  if (lowest != nullptr) {
    if (lowest->kind == GroupKind::kMain) main_ = lowest->side.group;
  } else if (zero == nullptr || zero->kind == GroupKind::kAbsent) {
    main_ = 0;
  }
  unclear_ = FindUnclear();
}

// Of several that of the lowest number.
std::optional<UnclearGroup> GroupTable::FindUnclear() const {
  std::optional<UnclearGroup> found;
  const auto blame = [&](std::uint32_t number, DropReason why) {
    if (!found || number < found->group) found = UnclearGroup{number, why};
  };
  for (const Group& group : groups_) {
    if (group.kind == GroupKind::kUnknown) blame(group.side.group, DropReason::kUnknownKind);
    if (group.kind == GroupKind::kAbsent && main_ != group.side.group) {
      blame(group.side.group, DropReason::kUnlearnedGroup);
    }
  }
  if (full_) blame(kNoNumber, DropReason::kTooManyGroups);
  if (nameless_kind_) blame(kNoNumber, DropReason::kUnknownKind);
  return found;
}

void GroupTable::NoteUnknownKind() {
  nameless_kind_ = true;
  unclear_ = FindUnclear();
}

void GroupTable::Hold(Group& group, const wire::EventBatch& batch, const EngineEvent& event,
                      Tier tier, TranslatorStats& stats) {
  const auto names = batch.HashesOf(event);
  if (event.type == EventType::kStored) {
    for (const EngineHash name : names)
      Hold(group, name, tier, 1, stats);
    return;
  }
  if (!group.held) return;
  for (std::size_t i = 0; i < names.size(); ++i) {
    BlockRecord* record = group.held->records().Find(names[i]);
    if (record == nullptr) continue;
    std::uint32_t& copies = record->copies[static_cast<std::size_t>(tier)];
    const std::uint32_t left = batch.CopiesLeftOf(event, i);
    copies = left != wire::kCopiesUnknown ? std::min(left, copies) : copies - std::min(copies, 1u);
    if (record->held()) continue;
    group.held->Erase(record);
    --held_names_;
  }
}

void GroupTable::Hold(Group& group, EngineHash name, Tier tier, std::uint32_t copies,
                      TranslatorStats& stats) {
  if (!group.held) group.held = std::make_unique<HeldCopies>(held_names_max_);
  BlockRecord* record = group.held->records().Find(name);
  if (record == nullptr && held_names_ < held_names_max_) {
    record = group.held->Add(name);
    ++held_names_;
  }
  if (record == nullptr) {
    group.overflowed = true;
    ++stats.given_up_names;
    return;
  }
  record->copies[static_cast<std::size_t>(tier)] += copies;
}

void GroupTable::Release(Group& group) {
  if (group.held) held_names_ -= group.held->size();
  group.held.reset();
  group.overflowed = false;
}

void GroupTable::ForgetCopies() {
  for (Group& group : groups_)
    Release(group);
}

}  // namespace kvr::placement
