#include "simulation/held.h"

namespace kvr::simulation {

Held HeldIn(const index::PrefixIndex& index, Rank rank) {
  Held held;
  index.Dump([&held, rank](const PlacementEvent& event) {
    if (event.rank != rank) return;
    for (const PlacedBlock& block : event.blocks)
      held.emplace(event.tier, Raw(block.engine));
  });
  return held;
}

Held EligibleIn(const index::PrefixIndex& index, Rank rank) {
  Held eligible;
  index.Dump([&eligible, rank](const PlacementEvent& event) {
    if (event.rank != rank || !event.eligible) return;
    for (const PlacedBlock& block : event.blocks)
      eligible.emplace(event.tier, Raw(block.engine));
  });
  return eligible;
}

}  // namespace kvr::simulation
