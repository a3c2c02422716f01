#include "publish/block_book.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "publish/snapshot_builder.h"

namespace kvr::publish {
namespace {

SourceSet BitOf(std::size_t source) {
  return static_cast<SourceSet>(1u << source);
}

SourceSet Without(SourceSet set, SourceSet other) {
  return static_cast<SourceSet>(set & ~other);
}

bool SameBlock(const BlockEntry& entry, const PlacedBlock& block,
               std::optional<EngineHash> parent) {
  return entry.has_parent == parent.has_value() && entry.parent == parent.value_or(EngineHash{}) &&
         entry.local == block.local;
}

// Of the i-th block of a store.
std::optional<std::uint32_t> PositionOf(const Mutation& store, std::size_t i) {
  if (!store.start_position) return std::nullopt;
  return *store.start_position + static_cast<std::uint32_t>(i);
}

// Consecutive blocks of a store that are told, as one store.
class Piece {
 public:
  Piece(const Mutation& of, std::vector<PlacedBlock>& blocks, MutationSink& out)
      : told_(of), blocks_(blocks), out_(out) {
    blocks_.clear();
    told_.event.hash_only = false;
  }

  void Begin(std::optional<EngineHash> parent, bool eligible,
             std::optional<std::uint32_t> start_position) {
    told_.event.parent = parent;
    told_.event.eligible = eligible;
    told_.start_position = start_position;
  }
  void Add(const PlacedBlock& block) { blocks_.push_back(block); }
  [[nodiscard]] bool empty() const { return blocks_.empty(); }
  [[nodiscard]] bool Ends(EngineHash name, bool eligible) const {
    return !empty() && blocks_.back().engine == name && told_.event.eligible == eligible;
  }
  void Tell() {
    if (blocks_.empty()) return;
    told_.event.blocks = blocks_;
    out_.Take(told_);
    blocks_.clear();
  }

 private:
  Mutation told_;
  std::vector<PlacedBlock>& blocks_;
  MutationSink& out_;
};

}  // namespace

Result<void> BlockBook::Options::Validate() const {
  if (blocks_max == 0 || run_blocks_max == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "the book of a rank needs room for at least one block, and so do its runs");
  }
  return {};
}

BlockBook::BlockBook(const Options& options)
    : options_(options), table_(options.blocks_max), remembered_(options.remembered_max) {}

void BlockBook::Apply(std::size_t source, const Mutation& mutation, MutationSink& out) {
  KVR_CHECK(source < kSourcesMax);
  switch (mutation.event.kind) {
    case PlacementKind::kStored:
      sources_ = static_cast<SourceSet>(sources_ | BitOf(source));
      return mutation.event.hash_only ? StoreNames(source, mutation, out)
                                      : Store(source, mutation, out);
    case PlacementKind::kRemoved:
      return Remove(source, mutation, out);
    case PlacementKind::kCleared:
      return Clear(source, mutation, out);
  }
}

void BlockBook::Store(std::size_t source, const Mutation& mutation, MutationSink& out) {
  const PlacementEvent& event = mutation.event;
  Piece piece(mutation, blocks_, out);
  std::optional<EngineHash> parent = event.parent;
  for (std::size_t i = 0; i < event.blocks.size(); ++i) {
    const PlacedBlock& block = event.blocks[i];
    BlockEntry* const entry = table_.Add(block.engine, remembered_);
    if (entry == nullptr) {
      missing_ += event.blocks.size() - i;
      stats_.uncounted += event.blocks.size() - i;
      break;
    }
    if (!SameBlock(*entry, block, parent)) {
      if (entry->held()) {
        piece.Tell();
        TellGone(mutation, *entry, out);
      }
      entry->parent = parent.value_or(EngineHash{});
      entry->has_parent = parent.has_value();
      entry->local = block.local;
    }
    if (Hold(source, mutation.event.tier, event.eligible, *entry)) {
      if (piece.empty()) piece.Begin(parent, event.eligible, PositionOf(mutation, i));
      piece.Add(block);
    } else {
      ++stats_.shared_stores;
      piece.Tell();
    }
    parent = block.engine;
  }
  piece.Tell();
}

void BlockBook::StoreNames(std::size_t source, const Mutation& mutation, MutationSink& out) {
  Piece piece(mutation, blocks_, out);
  for (const PlacedBlock& named : mutation.event.blocks) {
    BlockEntry* const known = table_.Find(named.engine);
    if (known == nullptr) {
      ++stats_.unknown_content;
      continue;
    }
    const PlacedBlock block{named.engine, known->local};
    const auto parent = known->has_parent ? std::optional(known->parent) : std::nullopt;
    const bool eligible = known->eligible;  // as good as what told of the content
    if (!Hold(source, mutation.event.tier, eligible, *known)) {
      ++stats_.shared_stores;
      continue;
    }
    if (!parent || !piece.Ends(*parent, eligible)) {
      piece.Tell();
      piece.Begin(parent, eligible, std::nullopt);  // names come in any order
    }
    piece.Add(block);
  }
  piece.Tell();
}

void BlockBook::TellGone(const Mutation& store, BlockEntry& entry, MutationSink& out) {
  ++stats_.renamed;
  names_.assign(1, entry.name);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (entry.holders[tier] == 0) continue;
    entry.holders[tier] = 0;
    --held_in_[tier];
    TellRemoved(store, static_cast<Tier>(tier), out);
  }
  --held_;
}

bool BlockBook::Hold(std::size_t source, Tier tier, bool eligible, BlockEntry& entry) {
  const bool held = entry.held();
  const bool was_eligible = !held || entry.eligible;
  const bool news = was_eligible && !eligible;
  entry.eligible = was_eligible && eligible;
  if (!held) ++held_;
  SourceSet& holders = entry.holders[static_cast<std::size_t>(tier)];
  if (holders == 0) ++held_in_[static_cast<std::size_t>(tier)];
  const bool others = Without(holders, BitOf(source)) != 0;
  holders = static_cast<SourceSet>(holders | BitOf(source));
  return !others || news;
}

void BlockBook::Remove(std::size_t source, const Mutation& mutation, MutationSink& out) {
  names_.clear();
  for (const EngineHash name : mutation.event.removed) {
    if (Release(source, mutation.event.tier, name)) names_.push_back(name);
  }
  if (names_.empty()) return;
  Mutation told = mutation;
  told.event.removed = names_;
  out.Take(told);
}

bool BlockBook::Release(std::size_t source, Tier tier, EngineHash name) {
  BlockEntry* const entry = table_.Find(name);
  if (entry == nullptr) {
    ++stats_.unknown_removals;
    return true;
  }
  SourceSet& holders = entry->holders[static_cast<std::size_t>(tier)];
  const bool held = holders != 0;
  holders = Without(holders, BitOf(source));
  if (holders != 0) {
    ++stats_.held_removals;
    return false;
  }
  if (!held) {
    ++stats_.unknown_removals;
    return true;
  }
  --held_in_[static_cast<std::size_t>(tier)];
  if (!entry->held()) {
    --held_;
    table_.LetGo(name, remembered_);
  }
  return true;
}

void BlockBook::Clear(std::size_t source, const Mutation& mutation, MutationSink& out) {
  const SourceSet bit = BitOf(source);
  if (Without(sources_, bit) == 0) {
    sources_ = 0;
    table_.Clear();
    held_ = 0;
    held_in_ = {};
    missing_ = 0;
    remembered_.Clear();
    out.Take(mutation);
    return;
  }
  sources_ = Without(sources_, bit);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    names_.clear();
    for (BlockEntry& entry : table_.entries()) {
      if (!entry.used || (entry.holders[tier] & bit) == 0) continue;
      entry.holders[tier] = Without(entry.holders[tier], bit);
      if (entry.holders[tier] == 0) names_.push_back(entry.name);
      if (!entry.held()) --held_;
    }
    held_in_[tier] -= names_.size();
    TellRemoved(mutation, static_cast<Tier>(tier), out);
    for (const EngineHash name : names_) {
      const BlockEntry* const entry = table_.Find(name);
      if (entry != nullptr && !entry->held()) table_.LetGo(name, remembered_);
    }
  }
}

void BlockBook::TellRemoved(const Mutation& cause, Tier tier, MutationSink& out) {
  Mutation removal = cause;
  removal.event.kind = PlacementKind::kRemoved;
  removal.event.tier = tier;
  removal.event.blocks = {};
  removal.event.eligible = false;
  removal.event.hash_only = false;
  removal.start_position.reset();
  for (std::span<const EngineHash> left = names_; !left.empty();) {
    const std::size_t count = std::min(left.size(), options_.run_blocks_max);
    removal.event.removed = left.first(count);
    out.Take(removal);
    left = left.subspan(count);
  }
}

Snapshot BlockBook::Build() const {
  Snapshot snapshot = SnapshotBuilder(table_, options_.run_blocks_max).Build();
  snapshot.complete = complete();
  return snapshot;
}

}  // namespace kvr::publish
