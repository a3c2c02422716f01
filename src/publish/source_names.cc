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
      return out.Take(mutation);
  }
}

void SourceNames::PassStore(const Mutation& store, MutationSink& out) {
  const PlacementEvent& event = store.event;
  Mutation renamed = store;
  if (event.parent) {
    const BlockEntry* const parent = table_.Find(*event.parent);
    if (parent == nullptr) {
      unplaced_ += event.blocks.size();
      return out.Take(store);
    }
    renamed.event.parent = parent->parent;
  }
  blocks_.clear();
  std::optional<EngineHash> above = renamed.event.parent;
  for (const PlacedBlock& block : event.blocks) {
    BlockEntry* const entry = table_.Add(block.engine);
    if (entry == nullptr) break;
    const EngineHash name = NameOf(Behind(above, block.local));
    if (entry->held() && entry->parent != name) TellGone(store, *entry, out);
    entry->parent = name;
    entry->holders[static_cast<std::size_t>(event.tier)] = 1;
    blocks_.push_back({name, block.local});
    above = name;
  }
  const auto rest = event.blocks.subspan(blocks_.size());
  renamed.event.blocks = blocks_;
  if (!blocks_.empty()) out.Take(renamed);
  if (rest.empty()) return;
  unplaced_ += rest.size();
  renamed.event.parent = above;
  renamed.event.blocks = rest;
  if (renamed.start_position) {
    *renamed.start_position += static_cast<std::uint32_t>(blocks_.size());
  }
  out.Take(renamed);
}

void SourceNames::PassNames(const Mutation& store, MutationSink& out) {
  blocks_.assign(store.event.blocks.begin(), store.event.blocks.end());
  for (PlacedBlock& block : blocks_) {
    BlockEntry* const entry = table_.Find(block.engine);
    if (entry == nullptr) continue;
    entry->holders[static_cast<std::size_t>(store.event.tier)] = 1;
    block.engine = entry->parent;
  }
  Mutation renamed = store;
  renamed.event.blocks = blocks_;
  out.Take(renamed);
}

void SourceNames::PassRemoval(const Mutation& removal, MutationSink& out) {
  removed_.assign(removal.event.removed.begin(), removal.event.removed.end());
  for (EngineHash& name : removed_) {
    BlockEntry* const entry = table_.Find(name);
    if (entry == nullptr) continue;
    const bool held = entry->held();
    entry->holders[static_cast<std::size_t>(removal.event.tier)] = 0;
    const EngineHash own = std::exchange(name, entry->parent);
    if (held && !entry->held()) table_.LetGo(own, remembered_);
  }
  Mutation renamed = removal;
  renamed.event.removed = removed_;
  out.Take(renamed);
}

void SourceNames::TellGone(const Mutation& store, BlockEntry& entry, MutationSink& out) {
  Mutation removal = store;
  removal.event.kind = PlacementKind::kRemoved;
  removal.event.removed = std::span(&entry.parent, 1);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (entry.holders[tier] == 0) continue;
    removal.event.tier = static_cast<Tier>(tier);
    out.Take(removal);
    entry.holders[tier] = 0;
  }
}

}  // namespace kvr::publish
