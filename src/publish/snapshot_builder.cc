#include "publish/snapshot_builder.h"

#include <utility>

namespace kvr::publish {
namespace {

bool HeldAlike(const BlockEntry& a, const BlockEntry& b) {
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if ((a.holders[tier] != 0) != (b.holders[tier] != 0)) return false;
  }
  return a.eligible == b.eligible;
}

}  // namespace

Snapshot SnapshotBuilder::Build() {
  const auto& entries = table_.entries();
  for (std::size_t place = 0; place < entries.size(); ++place) {
    if (entries[place].used && entries[place].held() && !seen_[place]) Emit(place);
  }
  EndStretch();
  return std::move(snapshot_);
}

void SnapshotBuilder::Emit(std::size_t place) {
  const auto& entries = table_.entries();
  chain_.clear();
  // A ring of parents, which only a broken engine can tell of, ends where it was entered.
  while (!seen_[place]) {
    seen_[place] = true;
    chain_.push_back(place);
    const BlockEntry& entry = entries[place];
    const BlockEntry* const parent = entry.has_parent ? table_.Find(entry.parent) : nullptr;
    if (parent == nullptr || !parent->held()) break;
    place = static_cast<std::size_t>(parent - entries.data());
  }
  for (std::size_t i = chain_.size(); i-- > 0;)
    Add(entries[chain_[i]]);
}

void SnapshotBuilder::Add(const BlockEntry& entry) {
  const bool goes_on = !stretch_.empty() && entry.has_parent &&
                       stretch_.back()->name == entry.parent &&
                       HeldAlike(*stretch_.back(), entry) && stretch_.size() < run_blocks_max_;
  if (!goes_on) EndStretch();
  stretch_.push_back(&entry);
}

void SnapshotBuilder::EndStretch() {
  if (stretch_.empty()) return;
  const BlockEntry& first = *stretch_.front();
  const std::size_t begin = snapshot_.blocks.size();
  for (const BlockEntry* const entry : stretch_)
    snapshot_.blocks.push_back({entry->name, entry->local});
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (first.holders[tier] == 0) continue;
    Snapshot::Run run;
    run.tier = static_cast<Tier>(tier);
    run.eligible = first.eligible;
    if (first.has_parent) run.parent = first.parent;
    run.begin = begin;
    run.count = stretch_.size();
    snapshot_.runs.push_back(run);
  }
  stretch_.clear();
}

}  // namespace kvr::publish
