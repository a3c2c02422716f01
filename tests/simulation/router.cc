#include "simulation/router.h"

#include "simulation/engine.h"

namespace kvr::simulation {

Router::Router(Network& network, const Options& options) : Follower(network) {
  index::IndexSet indexes{index::IndexOptions{}};
  index_ = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
  for (const Feed& feed : options.feeds)
    Follow(feed, std::make_shared<fleet::RankHealth>(), index_, options.stream);
}

}  // namespace kvr::simulation
