#include "publish/source_names.h"

#include <optional>
#include <span>
#include <utility>

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
    entry->tiers = static_cast<std::uint8_t>(entry->tiers | BitOf(event.tier));
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
    entry->tiers = static_cast<std::uint8_t>(entry->tiers | BitOf(store.event.tier));
    blocks_.push_back({entry->told, block.local});
  }
  if (blocks_.empty()) return;
  Mutation renamed = store;
  renamed.event.blocks = blocks_;
  out.Take(renamed);
}

void SourceNames::PassRemoval(const Mutation& removal, MutationSink& out) {
  removed_.assign(removal.event.removed.begin(), removal.event.removed.end());
  for (EngineHash& name : removed_) {
    NameEntry* const entry = table_.Find(name);
    if (entry == nullptr) continue;
    const bool held = entry->held();
    entry->tiers = static_cast<std::uint8_t>(entry->tiers & ~BitOf(removal.event.tier));
    const EngineHash own = std::exchange(name, entry->told);
    if (held && !entry->held()) table_.LetGo(own, remembered_);
  }
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
    if ((entry.tiers & BitOf(removal.event.tier)) != 0) out.Take(removal);
  }
  entry.tiers = 0;
}

}  // namespace kvr::publish
