#include "index/prefix_index.h"

namespace kvr::index {

void PrefixIndex::Dump(const std::function<void(const PlacementEvent&)>& emit) const {
  RankCopy copy;
  for (const Rank rank : Ranks()) {
    CopyRank(rank, copy);
    CopyStores stores(copy, rank);
    for (PlacementEvent event; stores.Next(event);)
      emit(event);
  }
}

}  // namespace kvr::index
