#include "publish/fill_event.h"

namespace kvr::publish {
namespace {

wire::EventType TypeOf(PlacementKind kind) {
  switch (kind) {
    case PlacementKind::kStored:
      return wire::EventType::kStored;
    case PlacementKind::kRemoved:
      return wire::EventType::kRemoved;
    case PlacementKind::kCleared:
      break;
  }
  return wire::EventType::kCleared;
}

}  // namespace

void FillEvent(const Mutation& mutation, Rank rank, std::uint64_t id, wire::RouterBatch& batch) {
  const PlacementEvent& placed = mutation.event;
  batch.Clear();
  wire::RouterEvent& event = batch.events.emplace_back();
  event.type = TypeOf(placed.kind);
  event.worker_id = Raw(rank.worker);
  event.dp_rank = rank.dp_rank;
  event.event_id = id;
  event.domain = mutation.domain;
  event.session_id = placed.session_id;
  if (placed.kind == PlacementKind::kCleared) return;
  event.tier = placed.tier;
  if (placed.kind == PlacementKind::kRemoved) {
    batch.removed.assign(placed.removed.begin(), placed.removed.end());
    event.removed = {0, static_cast<std::uint32_t>(placed.removed.size())};
    return;
  }
  event.eligible = placed.eligible;
  event.parent = placed.parent;
  event.start_position = mutation.start_position;
  for (const PlacedBlock& block : placed.blocks)
    batch.blocks.push_back({block.engine, block.local, {}, false});
  event.blocks = {0, static_cast<std::uint32_t>(placed.blocks.size())};
}

void FillRun(const Snapshot& snapshot, std::size_t number, wire::RouterBatch& batch) {
  const Snapshot::Run& run = snapshot.runs[number];
  Mutation store;
  store.event.tier = run.tier;
  store.event.eligible = run.eligible;
  store.event.parent = run.parent;
  store.event.blocks = snapshot.BlocksOf(run);
  FillEvent(store, snapshot.rank, number, batch);
}

}  // namespace kvr::publish
