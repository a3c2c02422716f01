#include "publish/source_names.h"

#include <optional>
#include <span>

#include "base/check.h"
#include "hashing/block_hash.h"

namespace kvr::publish {
namespace {

EngineHash NameOf(SequenceHash hash) {
  return EngineHash{Raw(hash)};
}

unsigned BitOf(Tier tier) {
  return 1u << static_cast<unsigned>(tier);
}

SequenceHash Behind(std::optional<EngineHash> parent, BlockHash local) {
  if (!parent) return hashing::FirstSequenceHash(local);
  return hashing::NextSequenceHash(SequenceHash{Raw(*parent)}, local);
}

}  // namespace

void SourceNames::Pass(const Mutation& mutation, MutationSink& out) {
  switch (mutation.event.kind) {
    case PlacementKind::kStored:
      return mutation.event.hash_only ? PassNames(mutation, out) : PassStore(mutation, out);
    case PlacementKind::kRemoved:
      return PassRemoval(mutation, out);
    case PlacementKind::kCleared:
      table_.Clear();
      remembered_.Clear();
      meanings_.Clear();
      missing_ = 0;
      return out.Take(mutation);
  }
}

void SourceNames::PassStore(const Mutation& store, MutationSink& out) {
  const PlacementEvent& event = store.event;
  Mutation renamed = store;
  bool placed = true;
  if (event.parent) {
    const NameEntry* const parent = table_.Find(*event.parent);
    placed = parent != nullptr && parent->placed;
    if (parent != nullptr) renamed.event.parent = parent->told;
  }
  blocks_.clear();
  std::optional<EngineHash> above = renamed.event.parent;
  std::size_t passed = 0;
  for (const PlacedBlock& block : event.blocks) {
    NameEntry* const entry = table_.Add(block.engine, remembered_);
    if (entry == nullptr) break;
    const EngineHash name = placed ? NameOf(Behind(above, block.local)) : block.engine;
    if (entry->held() && entry->told != name) {
      TellStored(renamed, out);
      TellGone(store, *entry, out);
    }
    if (blocks_.empty()) renamed.event.parent = above;
    entry->told = name;
    entry->placed = placed;
    Hold(*entry, event.tier);
    blocks_.push_back({name, block.local});
    above = name;
    ++passed;
  }
  TellStored(renamed, out);
  if (!placed) unplaced_ += passed;
  refused_ += event.blocks.size() - passed;
  missing_ += event.blocks.size() - passed;
}

void SourceNames::TellStored(Mutation& renamed, MutationSink& out) {
  if (blocks_.empty()) return;
  renamed.event.blocks = blocks_;
  out.Take(renamed);
  if (renamed.start_position) {
    *renamed.start_position += static_cast<std::uint32_t>(blocks_.size());
  }
  blocks_.clear();
}

void SourceNames::PassNames(const Mutation& store, MutationSink& out) {
  blocks_.clear();
  for (const PlacedBlock& block : store.event.blocks) {
    NameEntry* const entry = table_.Find(block.engine);
    if (entry == nullptr) {
      ++unknown_;
      continue;
    }
    Hold(*entry, store.event.tier);
    blocks_.push_back({entry->told, block.local});
  }
  if (blocks_.empty()) return;
  Mutation renamed = store;
  renamed.event.blocks = blocks_;
  out.Take(renamed);
}

void SourceNames::PassRemoval(const Mutation& removal, MutationSink& out) {
  removed_.clear();
  for (const EngineHash name : removal.event.removed) {
    NameEntry* const entry = table_.Find(name);
    const EngineHash told = entry == nullptr ? name : entry->told;
    if (entry != nullptr && entry->held()) {
      Release(*entry, removal.event.tier);
      if (!entry->held()) table_.LetGo(name, remembered_);
    }
    if (!IsHeld(told, removal.event.tier)) removed_.push_back(told);
  }
  if (removed_.empty()) return;
  Mutation renamed = removal;
  renamed.event.removed = removed_;
  out.Take(renamed);
}

void SourceNames::TellGone(const Mutation& store, NameEntry& entry, MutationSink& out) {
  Mutation removal = store;
  removal.event.kind = PlacementKind::kRemoved;
  removal.event.blocks = {};
  removal.event.eligible = false;
  removal.start_position.reset();
  removal.event.removed = std::span(&entry.told, 1);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    removal.event.tier = static_cast<Tier>(tier);
    if ((entry.tiers & BitOf(removal.event.tier)) == 0) continue;
    Release(entry, removal.event.tier);
    if (!IsHeld(entry.told, removal.event.tier)) out.Take(removal);
  }
}

void SourceNames::Hold(NameEntry& entry, Tier tier) {
  if ((entry.tiers & BitOf(tier)) != 0) return;
  entry.tiers = static_cast<std::uint8_t>(entry.tiers | BitOf(tier));
  RecentNames none(0);
  MeaningEntry* const meaning = meanings_.Add(entry.told, none);
  KVR_CHECK(meaning != nullptr);
  ++meaning->names[static_cast<std::size_t>(tier)];
}

void SourceNames::Release(NameEntry& entry, Tier tier) {
  if ((entry.tiers & BitOf(tier)) == 0) return;
  entry.tiers = static_cast<std::uint8_t>(entry.tiers & ~BitOf(tier));
  MeaningEntry* const meaning = meanings_.Find(entry.told);
  KVR_CHECK(meaning != nullptr);
  --meaning->names[static_cast<std::size_t>(tier)];
  if (!meaning->held()) meanings_.Erase(meaning);
}

bool SourceNames::IsHeld(EngineHash told, Tier tier) const {
  const MeaningEntry* const meaning = meanings_.Find(told);
  return meaning != nullptr && meaning->names[static_cast<std::size_t>(tier)] != 0;
}

}  // namespace kvr::publish
