#include "placement/rank_memory.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace kvr::placement {

namespace {

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

SideRule RuleOf(std::string_view kind) {
  const auto found = std::find_if(kKindRules.begin(), kKindRules.end(),
                                  [&](const KindRule& row) { return row.kind == kind; });
  return found == kKindRules.end() ? SideRule::kNever : found->rule;
}

}  // namespace

void GroupTable::Learn(const wire::EngineEvent& event) {
  const std::uint32_t group = event.group.value_or(0);
  Entry* entry = Find(group);
  if (entry == nullptr) {
    if (entries_.size() >= kGroupsMax) return;
    entry = &entries_.emplace_back();
    entry->side.group = group;
  }
  if (entry->kind != event.kind || event.kind != GroupKind::kMain) {
    entry->kind = event.kind;
    entry->side.rule = RuleOf(event.kind_name);
  }
  if (event.window) entry->side.window = *event.window;
  if (event.block_size != 0) entry->side.block_size = event.block_size;
  if (event.kind == GroupKind::kMain) {
    if (!main_) main_ = group;
  } else if (main_ == group) {
    main_.reset();
  }
}

}  // namespace kvr::placement
