#include "placement/rank_memory.h"

#include <algorithm>

namespace kvr::placement {

void GroupTable::Learn(std::uint32_t group, wire::GroupKind kind) {
  for (Entry& entry : entries_) {
    if (entry.group == group) {
      entry.kind = kind;
      return;
    }
  }
  if (entries_.size() < kGroupsMax) entries_.push_back(Entry{group, kind});
}

wire::GroupKind GroupTable::KindOf(std::uint32_t group) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.group == group; });
  return found == entries_.end() ? wire::GroupKind::kAbsent : found->kind;
}

}  // namespace kvr::placement
