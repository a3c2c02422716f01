#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "index/run_store.h"

namespace kvr::index {
namespace {

constexpr std::uint32_t kDepthEnd = std::numeric_limits<std::uint32_t>::max();

}  // namespace

std::uint64_t RunStore::ChildHash(RunId run) const {
  const Meta& meta = At(run);
  return directory_.children.Hash(meta.parent, meta.blocks.begin,
                                  static_cast<BlockHash>(meta.columns[0]));
}

void RunStore::Link(RunId run) {
  Hang(run);
  RetireTable(directory_.children.Insert(ChildHash(run), run));
}

void RunStore::Hang(RunId run) {
  Meta& meta = At(run);
  RunCell& cell = directory_.runs[run];
  const RunId first = directory_.FirstChild(meta.parent);
  meta.previous_sibling = kRootRun;
  if (first != kRootRun) At(first).previous_sibling = run;
  cell.next_sibling.store(first, std::memory_order_seq_cst);
  directory_.runs[meta.parent].first_child.store(run, std::memory_order_seq_cst);
  NoteChild(meta.parent, meta.blocks.begin);
}

void RunStore::RetireTable(ChildTable::TablePtr table) {
  if (table == nullptr) return;
  const std::size_t bytes = table->bytes();
  retired_.Add(std::move(table), bytes);
}

void RunStore::Unlink(RunId run) {
  RetireTable(directory_.children.Erase(ChildHash(run), run));
  Unhang(run, At(run).blocks.begin);
}

void RunStore::Unhang(RunId run, std::uint32_t begin) {
  const Meta& meta = At(run);
  const RunId next = directory_.NextOf(run);
  if (next != kRootRun) At(next).previous_sibling = meta.previous_sibling;
  (meta.previous_sibling != kRootRun ? directory_.runs[meta.previous_sibling].next_sibling
                                     : directory_.runs[meta.parent].first_child)
      .store(next, std::memory_order_seq_cst);
  NoteChildGone(meta.parent, begin);
}

void RunStore::NoteChild(RunId parent, std::uint32_t begin) {
  Meta& meta = At(parent);
  ++meta.children;
  if (parent == kRootRun) return;
  meta.deepest_child = std::max(meta.deepest_child, begin);
  if (meta.children <= kFewChildren / 2) return;
  auto at = child_depths_.find(parent);
  if (at == child_depths_.end()) {
    if (meta.children <= kFewChildren) return;
    at = child_depths_.try_emplace(parent).first;
    for (RunId child = directory_.FirstChild(parent); child != kRootRun;
         child = directory_.NextOf(child))
      at->second.Add(At(child).blocks.begin);
  } else {
    child_depth_bytes_ -= at->second.bytes();
    at->second.Add(begin);
  }
  child_depth_bytes_ += at->second.bytes();
}

void RunStore::NoteChildGone(RunId parent, std::uint32_t begin) {
  Meta& meta = At(parent);
  --meta.children;
  if (parent == kRootRun) return;
  // Kept until there are few enough, so that a child that comes and goes does not have it made
  // anew.
  if (meta.children >= kFewChildren / 2) {
    if (const auto at = child_depths_.find(parent); at != child_depths_.end()) {
      ChildDepths& depths = at->second;
      child_depth_bytes_ -= depths.bytes();
      depths.Remove(begin);
      meta.deepest_child = depths.deepest();
      if (meta.children == kFewChildren / 2) {
        child_depths_.erase(at);
      } else {
        child_depth_bytes_ += depths.bytes();
      }
      return;
    }
  }
  if (begin < meta.deepest_child) return;
  meta.deepest_child = 0;
  for (RunId child = directory_.FirstChild(parent); child != kRootRun;
       child = directory_.NextOf(child))
    meta.deepest_child = std::max(meta.deepest_child, At(child).blocks.begin);
}

std::uint32_t RunStore::ChildrenBehind(RunId run, std::uint32_t depth) const {
  if (const auto at = child_depths_.find(run); at != child_depths_.end())
    return at->second.CountBehind(depth);
  std::uint32_t behind = 0;
  for (RunId child = directory_.FirstChild(run); child != kRootRun;
       child = directory_.NextOf(child)) {
    if (At(child).blocks.begin > depth) ++behind;
  }
  return behind;
}

std::span<const RunId> RunStore::ChildrenAt(RunId run, Stretch where) {
  adopted_.clear();
  for (RunId child = directory_.FirstChild(run); child != kRootRun;
       child = directory_.NextOf(child)) {
    if (where.Has(At(child).blocks.begin)) adopted_.push_back(child);
  }
  return adopted_;
}

void RunStore::AdoptChildren(std::span<const RunId> children, RunId to) {
  for (const RunId child : children) {
    Unlink(child);
    At(child).parent = to;
    At(child).parent_generation = At(to).generation;
    Edit(child);
    Link(child);
    Publish(child);
  }
}

void RunStore::EraseCommon(RunId run, Stretch blocks) {
  const NameAt name_at(*this);
  Meta& meta = At(run);
  const std::uint32_t first = blocks.begin - meta.blocks.begin;
  ForEachKey(NamesOf(meta, blocks), [&](EngineTable::Key key, std::uint32_t i) {
    if (!names_.Erase(key, {run, first + i}, name_at)) --meta.strange;
  });
}

void RunStore::MoveCommon(RunId from, RunId to, Stretch blocks) {
  Meta& source = At(from);
  Meta& target = At(to);
  const std::uint32_t from_first = blocks.begin - source.blocks.begin;
  const std::uint32_t to_first = blocks.begin - target.blocks.begin;
  ForEachKey(NamesOf(source, blocks), [&](EngineTable::Key key, std::uint32_t i) {
    if (names_.Move(key, {from, from_first + i}, {to, to_first + i})) return;
    --source.strange;
    ++target.strange;
  });
}

void RunStore::CopyColumns(RunId from, RunId to, Stretch blocks) {
  const Meta& source = At(from);
  Meta& target = At(to);
  target.room = RoomFor(blocks.size());
  target.columns = std::make_unique_for_overwrite<std::uint64_t[]>(target.room * 2u);
  column_bytes_ += ColumnBytes(target.room);
  const std::uint32_t offset = blocks.begin - source.blocks.begin;
  std::copy_n(source.columns.get() + offset, blocks.size(), target.columns.get());
  std::copy_n(source.columns.get() + source.room + offset, blocks.size(),
              target.columns.get() + target.room);
  target.blocks = blocks;
  target.written = blocks.size();
}

void RunStore::MoveBegin(RunId run, std::uint32_t begin) {
  Meta& meta = At(run);
  const Stretch kept{std::max(begin, meta.blocks.begin), meta.blocks.end};
  const std::uint32_t from = kept.begin - meta.blocks.begin;
  const std::uint32_t to = kept.begin - begin;
  const std::span<const std::uint64_t> names = NamesOf(meta, kept);
  // Towards where they go, so that no two are at one place meanwhile.
  constexpr std::uint32_t kAhead = 16;
  const auto key_of = [&](std::uint32_t turn) {
    const std::uint32_t i = to < from ? turn : kept.size() - 1 - turn;
    return std::pair(names_.KeyOf(EngineHash{names[i]}), i);
  };
  for (std::uint32_t turn = 0; turn < kept.size(); ++turn) {
    if (turn + kAhead < kept.size()) names_.Prefetch(key_of(turn + kAhead).first);
    const auto [key, i] = key_of(turn);
    names_.Move(key, {run, from + i}, {run, to + i});  // a strange one is not there
  }
  const std::uint32_t size = kept.end - begin;
  const std::uint32_t room = RoomFor(size);
  auto columns = std::make_unique_for_overwrite<std::uint64_t[]>(std::size_t{room} * 2);
  std::copy_n(meta.columns.get() + from, kept.size(), columns.get() + to);
  std::copy_n(names.data(), kept.size(), columns.get() + room + to);
  column_bytes_ += ColumnBytes(room);
  Retire(std::exchange(meta.columns, std::move(columns)), ColumnBytes(meta.room), column_bytes_);
  meta.room = room;
  meta.blocks.begin = begin;
  meta.written = size;
}

void RunStore::CopyAliases(RunId from, RunId to, Stretch blocks) {
  const Meta& source = At(from);
  if (source.aliases == nullptr) return;
  for (const auto& column : source.aliases->columns) {
    for (std::uint32_t depth = blocks.begin; depth < blocks.end; ++depth) {
      if (const auto name = column->At(depth)) SetAlias({to, depth}, column->slot(), *name);
    }
  }
}

void RunStore::ShrinkAliases(RunId run) {
  Meta& meta = At(run);
  if (meta.aliases == nullptr) return;
  for (auto it = meta.aliases->columns.begin(); it != meta.aliases->columns.end();) {
    auto column = std::make_unique<AliasColumn>(
        (*it)->slot(), Stretch{meta.blocks.begin, meta.blocks.begin + meta.room});
    column->CopyFrom(**it, meta.blocks);  // the names behind its end went with their blocks
    RetireAliases(std::exchange(*it, nullptr));
    if (column->used() == 0) {
      it = meta.aliases->columns.erase(it);
      continue;
    }
    alias_bytes_ += column->bytes();
    *it++ = std::move(column);
  }
  PublishAliases(run);
}

void RunStore::Queue(RunId run) {
  Meta& meta = At(run);
  if (run == kRootRun || meta.queued) return;
  meta.queued = true;
  queue_.push_back(run);
}

std::uint32_t RunStore::KnownEnd(RunId run) const {
  const Stretch blocks = BlocksOf(run);
  const Planes planes = ViewOf(run);
  std::uint32_t end = blocks.begin;
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    if (plane == kEligiblePlane) continue;
    const PlaneView view = planes(plane);
    if (view.AnyWhole()) return blocks.end;
    for (const Partial& part : view.parts)
      end = std::max(end, part.held.end);
  }
  return end;
}

void RunStore::CountHeldAgain(RunId run) {
  Meta& meta = At(run);
  held_ -= meta.held;
  meta.held = meta.blocks.size();
  held_ += meta.held;
  stretches_.clear();
  const Planes planes = ViewOf(run);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    const PlaneView view = planes(tier);
    if (view.AnyWhole()) return;
    for (const Partial& part : view.parts)
      stretches_.push_back(part.held);
  }
  std::sort(stretches_.begin(), stretches_.end(),
            [](Stretch a, Stretch b) { return a.begin < b.begin; });
  std::uint32_t held = 0;
  std::uint32_t end = 0;
  for (const Stretch stretch : stretches_) {
    held += std::max(end, stretch.end) - std::max(end, stretch.begin);
    end = std::max(end, stretch.end);
  }
  held_ = held_ - meta.held + held;
  meta.held = held;
}

std::optional<std::uint32_t> RunStore::WhereToSplit(RunId run) const {
  const Stretch blocks = BlocksOf(run);
  if (metas_.size() >= kRunsMax) return std::nullopt;
  std::vector<std::uint32_t> borders;
  const Planes planes = ViewOf(run);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    const PlaneView view = planes(plane);
    if (view.parts.size() <= kPartsMax) continue;
    for (const Partial& part : view.parts) {
      if (part.held.begin > blocks.begin) borders.push_back(part.held.begin);
      if (part.held.end < blocks.end) borders.push_back(part.held.end);
    }
  }
  if (borders.empty()) return std::nullopt;
  const auto middle = borders.begin() + static_cast<std::ptrdiff_t>(borders.size() / 2);
  std::nth_element(borders.begin(), middle, borders.end());
  return *middle;
}

void RunStore::Tidy(RunId run) {
  if (!InUse(run)) return;
  Meta& meta = At(run);
  const std::uint32_t end = std::max(KnownEnd(run), meta.children > 0 ? meta.deepest_child : 0);
  if (end == meta.blocks.begin) {
    const RunId parent = meta.parent;
    EraseCommon(run, meta.blocks);
    blocks_ -= meta.blocks.size();
    Free(run);
    Queue(parent);
    return;
  }
  if (end < meta.blocks.end) Cut(run, end);
  if (const auto at = WhereToSplit(run)) {
    Split(run, *at);
    Queue(run);
    return;
  }
  if (const RunId joined = JoinWithChild(run); joined != kRootRun) return Queue(joined);
  CountHeldAgain(run);
  if (meta.parent != kRootRun) Queue(JoinWithChild(meta.parent));
}

void RunStore::Cut(RunId run, std::uint32_t end) {
  Meta& meta = At(run);
  RunDraft& draft = Edit(run);
  EraseCommon(run, {end, meta.blocks.end});
  blocks_ -= meta.blocks.end - end;
  meta.blocks.end = end;
  ++meta.generation;
  for (PlaneDraft& plane : draft.planes)
    plane.Shorten(meta.blocks);
  const std::uint32_t size = meta.blocks.size();
  if (size < meta.room / 2) {
    MakeRoom(meta, RoomFor(size));
    ShrinkAliases(run);
  }
}

// Whichever half has more children keeps the run's number, so that they stay where they are: those
// of a prompt that all conversations begin with are many.
void RunStore::Split(RunId run, std::uint32_t at) {
  ++splits_;
  const std::uint32_t behind = ChildrenBehind(run, at);
  if (2 * behind > At(run).children) {
    SplitHeadOff(run, at);
  } else {
    SplitTailOff(run, at);
  }
}

RunId RunStore::TakeOff(RunId run, BlockPlace at, Stretch blocks) {
  const RunId made = NewRun(at);
  CopyColumns(run, made, blocks);
  MoveCommon(run, made, blocks);
  RunDraft& made_draft = Edit(made);
  const RunDraft& draft = Edit(run);
  made_draft.used_at = UsedAt(run);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane)
    draft.planes[plane].CopyStretch(blocks, made_draft.planes[plane]);
  CopyAliases(run, made, blocks);
  moved_(run, made, blocks);
  return made;
}

void RunStore::SplitTailOff(RunId run, std::uint32_t at) {
  Meta& meta = At(run);
  ++meta.generation;
  const RunId tail = TakeOff(run, {run, at}, {at, meta.blocks.end});

  meta.blocks.end = at;
  for (PlaneDraft& plane : Edit(run).planes)
    plane.Shorten(meta.blocks);
  MakeRoom(meta, RoomFor(meta.blocks.size()));
  ShrinkAliases(run);

  const std::span<const RunId> children = ChildrenAt(run, {at + 1, kDepthEnd});
  const Reshapes::Under under(directory_.reshapes);
  AdoptChildren(children, tail);
  Link(tail);
  Publish(tail);
  Publish(run);
}

void RunStore::SplitHeadOff(RunId run, std::uint32_t at) {
  Meta& meta = At(run);
  const std::uint64_t hung_by = ChildHash(run);
  const std::uint32_t begin = meta.blocks.begin;
  const RunId head = TakeOff(run, {meta.parent, begin}, {begin, at});
  Meta& head_meta = At(head);
  head_meta.parent_generation = meta.parent_generation;

  MoveBegin(run, at);
  for (PlaneDraft& plane : Edit(run).planes)
    plane.Shorten(meta.blocks);
  ShrinkAliases(run);

  const std::span<const RunId> children = ChildrenAt(run, {0, at + 1});
  const Reshapes::Under under(directory_.reshapes);
  AdoptChildren(children, head);
  RetireTable(directory_.children.Erase(hung_by, run));
  Unhang(run, begin);
  meta.parent = head;
  meta.parent_generation = head_meta.generation;
  Link(run);
  Link(head);
  Publish(head);
  Publish(run);
}

RunId RunStore::JoinWithChild(RunId run) {
  const Meta& meta = At(run);
  if (meta.children != 1) return kRootRun;
  const RunId child = directory_.FirstChild(run);
  const Meta& child_meta = At(child);
  const Stretch joined{meta.blocks.begin, child_meta.blocks.end};
  if (run == kRootRun || child_meta.blocks.begin != meta.blocks.end ||
      joined.size() > kRunBlocksMax)
    return kRootRun;
  const Planes head = ViewOf(run);
  const Planes tail = ViewOf(child);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    if (PlaneDraft::PartsOfJoin(head(plane), tail(plane)) > kPartsMaxJoined) return kRootRun;
  }
  ++joins_;
  if (child_meta.children > 1) {
    JoinIntoChild(run, child);  // its children stay where they are
    return child;
  }
  JoinInto(run, child);
  return run;
}

void RunStore::JoinInto(RunId run, RunId child) {
  Meta& meta = At(run);
  const Meta& child_meta = At(child);
  const Stretch moving = child_meta.blocks;
  const Stretch joined{meta.blocks.begin, moving.end};
  RunDraft& draft = Edit(run);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane)
    draft.planes[plane].Join(View(child, plane), meta.blocks.end, joined);
  if (joined.size() > meta.room || meta.written > meta.blocks.size())
    MakeRoom(meta, RoomFor(joined.size()));
  const std::uint32_t offset = meta.blocks.size();
  std::copy_n(child_meta.columns.get(), moving.size(), meta.columns.get() + offset);
  std::copy_n(child_meta.columns.get() + child_meta.room, moving.size(),
              meta.columns.get() + meta.room + offset);
  meta.blocks = joined;
  meta.written = joined.size();
  MoveCommon(child, run, moving);
  CopyAliases(child, run, moving);
  moved_(child, run, moving);

  const std::span<const RunId> children = ChildrenAt(child, {0, kDepthEnd});
  const Reshapes::Under under(directory_.reshapes);
  AdoptChildren(children, run);
  Free(child);
  Publish(run);
}

void RunStore::JoinIntoChild(RunId run, RunId child) {
  const Meta& meta = At(run);
  Meta& child_meta = At(child);
  const Stretch moving = meta.blocks;
  const Stretch joined{moving.begin, child_meta.blocks.end};
  const std::uint64_t hung_by = ChildHash(child);
  RunDraft& draft = Edit(child);
  draft.used_at = std::max(UsedAt(run), UsedAt(child));
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    PlaneDraft both;
    both.Assign(View(run, plane));
    both.Join(draft.planes[plane].view(), moving.end, joined);
    draft.planes[plane] = std::move(both);
  }
  MoveBegin(child, moving.begin);
  std::copy_n(meta.columns.get(), moving.size(), child_meta.columns.get());
  std::copy_n(meta.columns.get() + meta.room, moving.size(),
              child_meta.columns.get() + child_meta.room);
  MoveCommon(run, child, moving);
  ShrinkAliases(child);
  CopyAliases(run, child, moving);
  moved_(run, child, moving);

  const Reshapes::Under under(directory_.reshapes);
  RetireTable(directory_.children.Erase(hung_by, child));
  Unhang(child, moving.end);
  child_meta.parent = meta.parent;
  child_meta.parent_generation = meta.parent_generation;
  Link(child);
  Publish(child);
  Free(run);
}

void RunStore::Free(RunId run) {
  NoteUse(At(run).parent, UsedAt(run));  // what used a run used the way to it, too
  Unlink(run);
  Meta& meta = At(run);
  held_ -= meta.held;
  RetireState(directory_.runs[run].Exchange(nullptr));
  Retire(std::move(meta.columns), ColumnBytes(meta.room), column_bytes_);
  if (meta.aliases) {
    for (auto& column : meta.aliases->columns)
      RetireAliases(std::move(column));
    RetireAliases(std::move(meta.aliases->list));
    alias_bytes_ -= HeapBytes(sizeof(RunAliases));
  }
  if (meta.draft) Spare(std::move(meta.draft));
  meta = Meta{};
  retired_.Add(run);
}

void RunStore::NoteUse(RunId run, std::uint64_t used_at) {
  Meta& meta = At(run);
  const RunState* const state = directory_.StateOf(run);
  if (meta.draft) {
    meta.draft->used_at = std::max(meta.draft->used_at, used_at);
  } else if (state && state->used_at() < used_at) {
    state->SetUsedAt(used_at);
  }
}

void RunStore::DropLeaf(RunId run, Stretch leaf) {
  if (leaf.begin > At(run).blocks.begin) {
    Cut(run, leaf.begin);
    return;
  }
  for (PlaneDraft& plane : Edit(run).planes)
    plane.Clear();
}

std::uint32_t RunStore::ReadEnd(const Meta& meta, std::uint32_t slot) {
  std::uint32_t end = 0;
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    const PlaneView view = meta.draft->planes[tier].view();
    if (view.HasWhole(slot)) return meta.blocks.end;
    const auto parts = view.PartsOf(slot);
    if (!parts.empty()) end = std::max(end, parts.back().held.end);
  }
  return end;
}

void RunStore::Publish(RunId run) {
  Meta& meta = At(run);
  if (!InUse(run) || meta.draft == nullptr) return;
  RunState::Fields fields;
  fields.parent = meta.parent;
  fields.blocks = meta.blocks;
  fields.generation = meta.generation;
  fields.parent_generation = meta.parent_generation;
  fields.locals = meta.columns.get();
  fields.engines = meta.columns.get() + meta.room;
  if (meta.aliases) {
    fields.aliases = meta.aliases->list.get();
    for (AliasColumn* const column : meta.aliases->list->columns)
      column->SetPublished(ReadEnd(meta, column->slot()));
  }
  RunState::Ptr state = RunState::Make(fields, meta.draft->planes, UsedAt(run));
  state_bytes_ += state->bytes();
  RetireState(directory_.runs[run].Exchange(std::move(state)));
  Spare(std::move(meta.draft));
}

void RunStore::Spare(std::unique_ptr<RunDraft> draft) {
  spare_draft_bytes_ += draft->bytes();
  spare_drafts_.push_back(std::move(draft));
}

void RunStore::Publish() {
  for (; !drafts_.empty(); drafts_.pop_back())
    Publish(drafts_.back());
  for (; spare_drafts_.size() > kSpareDraftsMax; spare_drafts_.pop_back())
    spare_draft_bytes_ -= spare_drafts_.back()->bytes();
  retired_.Release([this](RunId run) { metas_.Free(run); });
}

void RunStore::Commit() {
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const RunId run = queue_[i];
    if (!metas_.Has(run)) continue;
    At(run).queued = false;
    Tidy(run);
    if (drafts_.size() > kDraftsMax) Publish();
  }
  queue_.clear();
  Publish();
  // What one large event needed is not kept.
  const auto trim = [](std::vector<RunId>& list) {
    if (list.capacity() > kWorkListMax) list = {};
  };
  trim(queue_);
  trim(drafts_);
  trim(adopted_);
}

void RunStore::FreeRetired() {
  retired_.Flush([this](RunId run) { metas_.Free(run); });
}

}  // namespace kvr::index
