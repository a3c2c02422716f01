// The runs of an index: their blocks, their tree, and how it keeps its shape.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "index/alias_column.h"
#include "index/child_depths.h"
#include "index/engine_table.h"
#include "index/prefetch.h"
#include "index/retired.h"
#include "index/run_planes.h"
#include "index/run_state.h"
#include "index/slab.h"
#include "model/ids.h"
#include "model/placement_event.h"

namespace kvr::index {

// A block by its run and its number from the root.
struct BlockPlace {
  RunId run = kRootRun;
  std::uint32_t depth = 0;

  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

struct RunDraft {
  std::array<PlaneDraft, kPlaneCount> planes;
  std::uint64_t used_at = 0;  // see RunState

  [[nodiscard]] std::size_t bytes() const {
    std::size_t bytes = HeapBytes(sizeof(RunDraft));
    for (const PlaneDraft& plane : planes)
      bytes += plane.bytes();
    return bytes;
  }
};

// Heap in use, by what for.
struct RunStoreBytes {
  std::size_t columns = 0;  // block hashes and names
  std::size_t states = 0;   // who holds what, as queries see it
  std::size_t aliases = 0;  // names of single ranks
  std::size_t names = 0;    // the table of common names
  std::size_t tree = 0;     // runs, and the tables that find them
  std::size_t retired = 0;  // freed once the queries under way are done

  [[nodiscard]] std::size_t total() const {
    return columns + states + aliases + names + tree + retired;
  }
};

// Not thread-safe but for RunDirectory, which queries read at any time. An event works on drafts;
// Commit tidies the runs it touched and then publishes each as one new state. Until then a place
// stays valid: only Commit splits, joins and cuts runs.
//
// A run is split when more than kPartsMax stretches in one plane do not cover it, joined with its
// only child when hardly any slot tells them apart, cut when nobody knows its tail, and freed with
// its last block. Blocks that nobody knows stay as the way to others.
class RunStore {
 public:
  static constexpr std::uint32_t kRunBlocksMax = 1u << EngineTable::kOffsetBits;
  static constexpr std::uint32_t kRunsMax = (1u << EngineTable::kRunBits) - 2;
  static constexpr std::size_t kPartsMax = 16;
  static constexpr std::size_t kPartsMaxJoined = 4;
  static constexpr std::size_t kDraftsMax = 256;  // beyond it Commit publishes as it goes
  static constexpr std::size_t kSpareDraftsMax = 16;
  static constexpr std::size_t kWorkListMax = 4'096;  // runs a list to work in keeps room for
  static constexpr std::uint32_t kFewChildren = 32;

  // `moved(from, to, blocks)` is called for blocks that change their run; they are in both then.
  using Moved = std::function<void(RunId from, RunId to, Stretch blocks)>;

  // `directory` and `epoch` must outlive the store.
  RunStore(std::uint64_t seed, RunDirectory& directory, Epoch& epoch, Moved moved);
  ~RunStore();

  // Shape. Blocks of the root do not exist: it ends at depth 0.
  [[nodiscard]] Stretch BlocksOf(RunId run) const { return At(run).blocks; }
  [[nodiscard]] RunId ParentOf(RunId run) const { return At(run).parent; }
  [[nodiscard]] bool InUse(RunId run) const {
    return metas_.Has(run) && At(run).columns != nullptr;
  }
  [[nodiscard]] std::size_t runs() const { return metas_.size(); }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }     // in all runs
  [[nodiscard]] std::uint64_t held_blocks() const { return held_; }  // that a tier of a rank holds
  [[nodiscard]] std::uint64_t splits() const { return splits_; }     // since the start
  [[nodiscard]] std::uint64_t joins() const { return joins_; }
  [[nodiscard]] RunId FindChild(BlockPlace at, BlockHash local) const;  // kRootRun: none
  // How many of `blocks` continue the run from `at` on.
  [[nodiscard]] std::uint32_t CommonLength(BlockPlace at,
                                           std::span<const PlacedBlock> blocks) const;

  // Blocks. The first to append to a run, or hang behind it, chooses the names.
  RunId AddRun(BlockPlace at, std::span<const PlacedBlock> blocks);
  void Append(RunId run, std::span<const PlacedBlock> blocks);
  // Whether a run that `slot` extends should grow; otherwise the blocks make a run of their own.
  [[nodiscard]] bool MayAppend(RunId run, std::uint32_t slot) const;

  // Names.
  [[nodiscard]] BlockHash LocalAt(BlockPlace at) const;
  [[nodiscard]] EngineHash CommonNameAt(BlockPlace at) const;
  // Of blocks of one run, until it changes.
  [[nodiscard]] std::span<const std::uint64_t> CommonNames(RunId run, Stretch blocks) const {
    return NamesOf(At(run), blocks);
  }
  [[nodiscard]] std::optional<BlockPlace> FindCommon(EngineHash name) const;
  // Whether each block of the run is the one its common name leads to.
  [[nodiscard]] bool AllCommon(RunId run) const { return At(run).strange == 0; }
  // Makes the common name lead there; false when it leads elsewhere.
  bool ClaimCommon(BlockPlace at);
  void Prefetch(EngineHash name) const { names_.Prefetch(names_.KeyOf(name)); }

  [[nodiscard]] const AliasList* AliasesOf(RunId run) const {
    return At(run).aliases ? At(run).aliases->list.get() : nullptr;
  }
  [[nodiscard]] const AliasColumn* AliasesOf(RunId run, std::uint32_t slot) const {
    const AliasList* const all = AliasesOf(run);
    return all ? all->Find(slot) : nullptr;
  }
  [[nodiscard]] std::optional<EngineHash> AliasAt(BlockPlace at, std::uint32_t slot) const;
  void SetAlias(BlockPlace at, std::uint32_t slot, EngineHash name);
  void ClearAlias(BlockPlace at, std::uint32_t slot);
  void DropAliases(RunId run, std::uint32_t slot);

  // Holders.
  [[nodiscard]] PlaneView View(RunId run, std::size_t plane) const { return ViewOf(run)(plane); }
  // The same for several planes.
  class Planes {
   public:
    Planes(const RunDraft* draft, const RunState* state) : draft_(draft), state_(state) {}

    PlaneView operator()(std::size_t plane) const {
      if (draft_) return draft_->planes[plane].view();
      return state_ ? state_->View(plane) : PlaneView{};
    }

   private:
    const RunDraft* draft_;
    const RunState* state_;
  };
  [[nodiscard]] Planes ViewOf(RunId run) const {
    const Meta& meta = At(run);
    const bool published = !meta.draft && run != kRootRun;
    return {meta.draft.get(), published ? directory_.StateOf(run) : nullptr};
  }
  RunDraft& Edit(RunId run);

  // Use and eviction.
  [[nodiscard]] bool IsHeld(RunId run) const { return At(run).held > 0; }  // in a tier of somebody
  [[nodiscard]] std::uint64_t UsedAt(RunId run) const;
  // It was used then, if not later.
  void NoteUse(RunId run, std::uint64_t used_at);
  // The last blocks of a run, up to `most`, that no other run hangs on; may be none.
  [[nodiscard]] Stretch Leaf(RunId run, std::uint32_t most) const;
  // Takes blocks that Leaf gave from whoever holds them. No alias of them may be left.
  void DropLeaf(RunId run, Stretch leaf);

  void Commit();
  // Frees what queries can no longer read now, and not only when it is worth the look at them.
  void FreeRetired();

  [[nodiscard]] RunStoreBytes bytes() const;

 private:
  struct RunAliases {
    std::vector<std::unique_ptr<AliasColumn>> columns;
    std::unique_ptr<AliasList> list;  // of the same, for queries
  };
  static std::size_t ColumnBytes(std::uint32_t room) {
    return HeapBytes(std::size_t{room} * 2 * sizeof(std::uint64_t));
  }
  struct Meta {
    std::unique_ptr<std::uint64_t[]> columns;  // block hashes, then names; null: not in use
    std::unique_ptr<RunDraft> draft;
    std::unique_ptr<RunAliases> aliases;
    Stretch blocks;
    std::uint32_t room = 0;     // blocks the columns have room for
    std::uint32_t written = 0;  // blocks ever written there, which a query may still read
    RunId parent = kRootRun;
    std::uint32_t generation = 0;
    std::uint32_t parent_generation = 0;
    RunId previous_sibling = kRootRun;  // the other direction is in the directory
    std::uint32_t children = 0;
    std::uint32_t deepest_child = 0;  // where the last one hangs
    std::uint32_t held = 0;           // blocks in a tier of somebody
    std::uint32_t strange = 0;        // blocks that their common name does not lead to
    bool queued = false;              // for Tidy
  };

  [[nodiscard]] Meta& At(RunId run) { return run == kRootRun ? root_ : metas_[run]; }
  [[nodiscard]] const Meta& At(RunId run) const { return run == kRootRun ? root_ : metas_[run]; }

  // Tree.
  [[nodiscard]] std::uint64_t ChildHash(RunId run) const;
  void Link(RunId run);
  void Unlink(RunId run);
  // The same but for the table that queries read.
  void Hang(RunId run);
  // Off the list of the parent, where it hung at `begin`.
  void Unhang(RunId run, std::uint32_t begin);
  // Keeps Meta::deepest_child.
  void NoteChild(RunId parent, std::uint32_t begin);
  void NoteChildGone(RunId parent, std::uint32_t begin);
  void RetireTable(ChildTable::TablePtr table);
  // How many children hang deeper.
  [[nodiscard]] std::uint32_t ChildrenBehind(RunId run, std::uint32_t depth) const;
  // The children that hang at `where`. Valid until the next call.
  [[nodiscard]] std::span<const RunId> ChildrenAt(RunId run, Stretch where);
  // Hangs runs on another one; their states are published.
  void AdoptChildren(std::span<const RunId> children, RunId to);

  // Columns.
  static std::uint32_t RoomFor(std::uint32_t blocks) { return blocks + blocks / 8 + 1; }
  void MakeRoom(Meta& meta, std::uint32_t room);
  void WriteBlocks(RunId run, std::span<const PlacedBlock> blocks);
  [[nodiscard]] static std::span<const std::uint64_t> NamesOf(const Meta& meta, Stretch blocks) {
    return {meta.columns.get() + meta.room + (blocks.begin - meta.blocks.begin), blocks.size()};
  }
  // `f(key, i)` for one name after the other, whose places in the table are on their way.
  template <typename F>
  void ForEachKey(std::span<const std::uint64_t> names, F&& f) {
    constexpr std::size_t kAhead = 16;
    std::array<EngineTable::Key, kAhead> keys;
    const auto fetch = [&](std::size_t i) {
      keys[i % kAhead] = names_.KeyOf(EngineHash{names[i]});
      names_.Prefetch(keys[i % kAhead]);
    };
    for (std::size_t i = 0; i < std::min(names.size(), kAhead); ++i)
      fetch(i);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const EngineTable::Key key = keys[i % kAhead];
      if (i + kAhead < names.size()) fetch(i + kAhead);
      f(key, static_cast<std::uint32_t>(i));
    }
  }
  void EraseCommon(RunId run, Stretch blocks);
  void MoveCommon(RunId from, RunId to, Stretch blocks);
  // Of a run that has none yet.
  void CopyColumns(RunId from, RunId to, Stretch blocks);
  // The run's blocks begin at `begin` from now on; what comes before its own has to be written.
  void MoveBegin(RunId run, std::uint32_t begin);
  // Copies aliases of `blocks` to a run that has these blocks now.
  void CopyAliases(RunId from, RunId to, Stretch blocks);
  void ShrinkAliases(RunId run);
  // The slot's column, or a copy that takes its place, where no query reads the name of the block.
  [[nodiscard]] AliasColumn& EditAliases(BlockPlace at, std::uint32_t slot);
  // A new column of the slot, with the names of the one it has, if any. For PublishAliases.
  AliasColumn& ReplaceAliases(Meta& meta, std::uint32_t slot, const AliasColumn* known);
  // Where the blocks end whose names queries may ask for by the draft of the run.
  [[nodiscard]] static std::uint32_t ReadEnd(const Meta& meta, std::uint32_t slot);
  void PublishAliases(RunId run);
  template <typename T, typename Deleter>
  void Retire(std::unique_ptr<T, Deleter> object, std::size_t bytes, std::size_t& counter) {
    counter -= bytes;
    retired_.Add(std::move(object), bytes);
  }
  void RetireAliases(std::unique_ptr<AliasColumn> column) {
    const std::size_t bytes = column->bytes();
    Retire(std::move(column), bytes, alias_bytes_);
  }
  void RetireAliases(AliasColumn::Names chunk, std::uint32_t size) {
    if (chunk == nullptr) return;
    Retire(std::make_unique<AliasColumn::Names>(std::move(chunk)), AliasColumn::ChunkBytes(size),
           alias_bytes_);
  }
  void RetireAliases(std::unique_ptr<AliasList> list) {
    const std::size_t bytes = list->bytes();
    Retire(std::move(list), bytes, alias_bytes_);
  }
  void RetireState(RunState::Ptr state) {
    if (state == nullptr) return;
    const std::size_t bytes = state->bytes();
    Retire(std::move(state), bytes, state_bytes_);
  }

  // Shape.
  void Queue(RunId run);
  void Tidy(RunId run);
  void Cut(RunId run, std::uint32_t end);
  void Split(RunId run, std::uint32_t at);
  // Makes a run of blocks of another, which has them, too, until it is shortened.
  RunId TakeOff(RunId run, BlockPlace at, Stretch blocks);
  void SplitTailOff(RunId run, std::uint32_t at);
  void SplitHeadOff(RunId run, std::uint32_t at);
  // The run that is both then; kRootRun when they stay apart.
  RunId JoinWithChild(RunId run);
  void JoinInto(RunId run, RunId child);
  void JoinIntoChild(RunId run, RunId child);
  RunId NewRun(BlockPlace at);
  void Free(RunId run);
  void Spare(std::unique_ptr<RunDraft> draft);
  void Publish(RunId run);
  void Publish();
  void CountHeldAgain(RunId run);
  [[nodiscard]] std::uint32_t KnownEnd(RunId run) const;
  [[nodiscard]] std::optional<std::uint32_t> WhereToSplit(RunId run) const;

  // What EngineTable asks for.
  class NameAt {
   public:
    explicit NameAt(const RunStore& store) : metas_(store.metas_) {}

    EngineHash operator()(EngineTable::Place place) const {
      const Meta& meta = metas_[place.run];
      return EngineHash{meta.columns[meta.room + place.offset]};
    }
    void PrefetchRun(EngineTable::Place place) const {
      if (place.run != kRootRun) index::Prefetch(&metas_[place.run]);
    }
    void PrefetchName(EngineTable::Place place) const {
      if (place.run == kRootRun) return;
      const Meta& meta = metas_[place.run];
      index::PrefetchAt(meta.columns.get(), meta.room + place.offset);
    }

   private:
    const Slab<Meta, 256>& metas_;
  };
  [[nodiscard]] EngineTable::Place PlaceOf(BlockPlace at) const {
    return {at.run, at.depth - At(at.run).blocks.begin};
  }

  RunDirectory& directory_;
  const Moved moved_;
  Retired retired_;
  EngineTable names_;
  Slab<Meta, 256> metas_;
  Meta root_;
  std::vector<RunId> queue_;
  std::vector<RunId> drafts_;
  std::vector<std::unique_ptr<RunDraft>> spare_drafts_;
  std::size_t spare_draft_bytes_ = 0;
  std::vector<Stretch> stretches_;  // to work in
  std::vector<RunId> adopted_;      // likewise
  // Of runs with more than a few children; the others' are looked at.
  std::unordered_map<RunId, ChildDepths> child_depths_;
  std::size_t child_depth_bytes_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t joins_ = 0;
  std::size_t column_bytes_ = 0;
  std::size_t state_bytes_ = 0;
  std::size_t alias_bytes_ = 0;
};

}  // namespace kvr::index
