#include "index/run_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvr::index {

RunStore::RunStore(std::uint64_t seed, RunDirectory& directory, Epoch& epoch, Moved moved)
    : directory_(directory), moved_(std::move(moved)), retired_(epoch), names_(seed) {}

RunStore::~RunStore() {
  for (RunId run = 1; run < metas_.end(); ++run) {
    if (InUse(run)) directory_.runs[run].Exchange(nullptr);
  }
}

RunId RunStore::FindChild(BlockPlace at, BlockHash local) const {
  RunId found = kRootRun;
  directory_.children.Probe(directory_.children.Hash(at.run, at.depth, local),
                            [&](RunId candidate) {
                              const Meta& meta = metas_[candidate];
                              if (meta.columns == nullptr || meta.parent != at.run ||
                                  meta.blocks.begin != at.depth || meta.columns[0] != Raw(local))
                                return false;
                              found = candidate;
                              return true;
                            });
  return found;
}

std::uint32_t RunStore::CommonLength(BlockPlace at, std::span<const PlacedBlock> blocks) const {
  const Meta& meta = At(at.run);
  const std::size_t most = std::min<std::size_t>(blocks.size(), meta.blocks.end - at.depth);
  const std::uint64_t* const locals = meta.columns.get() + (at.depth - meta.blocks.begin);
  std::size_t i = 0;
  while (i < most && locals[i] == Raw(blocks[i].local))
    ++i;
  return static_cast<std::uint32_t>(i);
}

RunId RunStore::NewRun(BlockPlace at) {
  const RunId run = metas_.Add();
  directory_.runs.Reserve(std::size_t{run} + 1);
  Meta& meta = At(run);
  meta.parent = at.run;
  meta.parent_generation = At(at.run).generation;
  meta.blocks = {at.depth, at.depth};
  return run;
}

RunId RunStore::AddRun(BlockPlace at, std::span<const PlacedBlock> blocks) {
  const RunId run = NewRun(at);
  const auto count = static_cast<std::uint32_t>(blocks.size());
  MakeRoom(At(run), RoomFor(count));
  WriteBlocks(run, blocks);
  Link(run);
  Edit(run);
  return run;
}

void RunStore::Append(RunId run, std::span<const PlacedBlock> blocks) {
  Meta& meta = At(run);
  RunDraft& draft = Edit(run);
  for (PlaneDraft& plane : draft.planes)
    plane.Lengthen(meta.blocks);
  const std::uint32_t size = meta.blocks.size() + static_cast<std::uint32_t>(blocks.size());
  // Queries may still read what was cut off, so it is not written over.
  if (size > meta.room || meta.written > meta.blocks.size()) MakeRoom(meta, RoomFor(size));
  WriteBlocks(run, blocks);
}

bool RunStore::MayAppend(RunId run, std::uint32_t slot) const {
  constexpr std::size_t kOthersMax = 4;  // they become parts
  if (BlocksOf(run).size() >= kRunBlocksMax) return false;
  const Planes planes = ViewOf(run);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane) {
    const PlaneView view = planes(plane);
    const std::size_t others = view.CountWhole() - (view.HasWhole(slot) ? 1 : 0);
    if (others > kOthersMax || others + view.parts.size() > kPartsMax / 2) return false;
  }
  return true;
}

void RunStore::MakeRoom(Meta& meta, std::uint32_t room) {
  auto columns = std::make_unique_for_overwrite<std::uint64_t[]>(std::size_t{room} * 2);
  const std::uint32_t size = meta.blocks.size();
  if (size > 0) {
    std::copy_n(meta.columns.get(), size, columns.get());
    std::copy_n(meta.columns.get() + meta.room, size, columns.get() + room);
  }
  column_bytes_ += ColumnBytes(room);
  Retire(std::exchange(meta.columns, std::move(columns)), ColumnBytes(meta.room), column_bytes_);
  meta.room = room;
  meta.written = size;
}

void RunStore::WriteBlocks(RunId run, std::span<const PlacedBlock> blocks) {
  Meta& meta = At(run);
  const std::uint32_t first = meta.blocks.size();
  std::uint64_t* const locals = meta.columns.get() + first;
  std::uint64_t* const engines = meta.columns.get() + meta.room + first;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    locals[i] = Raw(blocks[i].local);
    engines[i] = Raw(blocks[i].engine);
  }
  const NameAt name_at(*this);
  ForEachKey({engines, blocks.size()}, [&](EngineTable::Key key, std::uint32_t i) {
    if (!names_.Insert(key, EngineHash{engines[i]}, {run, first + i}, name_at)) ++meta.strange;
  });
  meta.blocks.end += static_cast<std::uint32_t>(blocks.size());
  meta.written = meta.blocks.size();
  blocks_ += blocks.size();
}

BlockHash RunStore::LocalAt(BlockPlace at) const {
  const Meta& meta = At(at.run);
  return static_cast<BlockHash>(meta.columns[at.depth - meta.blocks.begin]);
}

EngineHash RunStore::CommonNameAt(BlockPlace at) const {
  return NameAt(*this)(PlaceOf(at));
}

std::optional<BlockPlace> RunStore::FindCommon(EngineHash name) const {
  const auto place = names_.Find(name, NameAt(*this));
  if (!place) return std::nullopt;
  return BlockPlace{place->run, At(place->run).blocks.begin + place->offset};
}

bool RunStore::ClaimCommon(BlockPlace at) {
  const EngineHash name = CommonNameAt(at);
  if (const auto known = FindCommon(name)) return *known == at;
  names_.Insert(names_.KeyOf(name), name, PlaceOf(at), NameAt(*this));
  --At(at.run).strange;
  return true;
}

std::optional<EngineHash> RunStore::AliasAt(BlockPlace at, std::uint32_t slot) const {
  const AliasColumn* const column = AliasesOf(at.run, slot);
  return column ? column->At(at.depth) : std::nullopt;
}

void RunStore::SetAlias(BlockPlace at, std::uint32_t slot, EngineHash name) {
  EditAliases(at, slot).Set(at.depth, name);
}

void RunStore::ClearAlias(BlockPlace at, std::uint32_t slot) {
  AliasColumn& column = EditAliases(at, slot);
  column.Set(at.depth, std::nullopt);
  if (column.used() == 0) DropAliases(at.run, slot);
}

AliasColumn& RunStore::EditAliases(BlockPlace at, std::uint32_t slot) {
  Meta& meta = At(at.run);
  if (meta.aliases == nullptr) {
    meta.aliases = std::make_unique<RunAliases>();
    alias_bytes_ += HeapBytes(sizeof(RunAliases));
    PublishAliases(at.run);
  }
  AliasColumn* column = meta.aliases->list->Find(slot);
  if (column && column->MaySet(at.depth)) return *column;
  if (column == nullptr || column->is_published() || !column->room().Has(at.depth)) {
    column = &ReplaceAliases(meta, slot, column);
    PublishAliases(at.run);
  }
  if (!column->MaySet(at.depth)) {
    alias_bytes_ += AliasColumn::ChunkBytes(column->ChunkSize(at.depth));
    RetireAliases(column->Renew(at.depth), column->ChunkSize(at.depth));
  }
  return *column;
}

AliasColumn& RunStore::ReplaceAliases(Meta& meta, std::uint32_t slot, const AliasColumn* known) {
  // With the room of the columns, so that both grow equally seldom.
  auto column = std::make_unique<AliasColumn>(
      slot, Stretch{meta.blocks.begin, meta.blocks.begin + meta.room});
  AliasColumn& made = *column;
  alias_bytes_ += made.table_bytes();
  auto& columns = meta.aliases->columns;
  const auto where = std::lower_bound(
      columns.begin(), columns.end(), slot,
      [](const auto& other, std::uint32_t wanted) { return other->slot() < wanted; });
  if (known == nullptr) {
    columns.insert(where, std::move(column));
    return made;
  }
  if (known->room().begin != made.room().begin || known->room().size() > made.room().size()) {
    made.CopyFrom(*known, made.room());
    alias_bytes_ += made.bytes() - made.table_bytes();
    RetireAliases(std::exchange(*where, std::move(column)));
    return made;
  }
  made.ShareWith(*known);
  // The last chunk gets the new room.
  const std::uint32_t last = known->room().end - 1;
  const std::uint32_t old_size = known->ChunkSize(last);
  if (made.ChunkSize(last) > old_size && made.HasChunk(last)) {
    alias_bytes_ += AliasColumn::ChunkBytes(made.ChunkSize(last));
    RetireAliases(made.Renew(last, old_size), old_size);
  }
  const std::size_t bytes = known->table_bytes();
  Retire(std::exchange(*where, std::move(column)), bytes, alias_bytes_);
  return made;
}

void RunStore::DropAliases(RunId run, std::uint32_t slot) {
  Meta& meta = At(run);
  if (meta.aliases == nullptr) return;
  auto& columns = meta.aliases->columns;
  const auto at = std::find_if(columns.begin(), columns.end(),
                               [slot](const auto& column) { return column->slot() == slot; });
  if (at == columns.end()) return;
  RetireAliases(std::move(*at));
  columns.erase(at);
  PublishAliases(run);
}

void RunStore::PublishAliases(RunId run) {
  Meta& meta = At(run);
  RunAliases& aliases = *meta.aliases;
  auto list = std::make_unique<AliasList>();
  list->columns.reserve(aliases.columns.size());
  for (const auto& column : aliases.columns)
    list->columns.push_back(column.get());
  alias_bytes_ += list->bytes();
  if (aliases.list) RetireAliases(std::move(aliases.list));
  aliases.list = std::move(list);
  Edit(run);  // its state refers to the list
}

RunDraft& RunStore::Edit(RunId run) {
  Meta& meta = At(run);
  Queue(run);
  if (meta.draft) return *meta.draft;
  if (spare_drafts_.empty()) Spare(std::make_unique<RunDraft>());
  meta.draft = std::move(spare_drafts_.back());
  spare_drafts_.pop_back();
  spare_draft_bytes_ -= meta.draft->bytes();
  const RunState* const state = directory_.StateOf(run);
  for (std::size_t plane = 0; plane < kPlaneCount; ++plane)
    meta.draft->planes[plane].Assign(state ? state->View(plane) : PlaneView{});
  meta.draft->used_at = state ? state->used_at() : 0;
  drafts_.push_back(run);
  return *meta.draft;
}

std::uint64_t RunStore::UsedAt(RunId run) const {
  const Meta& meta = At(run);
  const RunState* const state = directory_.StateOf(run);
  return std::max(meta.draft ? meta.draft->used_at : 0, state ? state->used_at() : 0);
}

Stretch RunStore::Leaf(RunId run, std::uint32_t most) const {
  const Meta& meta = At(run);
  const std::uint32_t begin = meta.children > 0 ? meta.deepest_child : meta.blocks.begin;
  const std::uint32_t end = meta.blocks.end;
  return {end - begin > most ? end - most : begin, end};
}

RunStoreBytes RunStore::bytes() const {
  RunStoreBytes bytes;
  bytes.columns = column_bytes_;
  bytes.states = state_bytes_;
  bytes.aliases = alias_bytes_;
  bytes.names = names_.bytes();
  bytes.tree = metas_.bytes() + directory_.runs.bytes() + directory_.children.bytes() +
               child_depth_bytes_ + HashTableBytes(child_depths_) + Retired::empty_bytes() +
               spare_draft_bytes_ + HeapBytes(spare_drafts_.capacity() * sizeof(spare_drafts_[0])) +
               HeapBytes(stretches_.capacity() * sizeof(Stretch));
  for (const auto* const list : {&queue_, &drafts_, &adopted_})
    bytes.tree += HeapBytes(list->capacity() * sizeof(RunId));
  bytes.retired = retired_.bytes();
  return bytes;
}

}  // namespace kvr::index
