// A router: it follows every rank of the agent into one index.
#pragma once

#include <memory>
#include <vector>

#include "index/index_set.h"
#include "ingest/rank_stream.h"
#include "simulation/follower.h"
#include "simulation/held.h"

namespace kvr::simulation {

class Router final : public Follower {
 public:
  struct Options {
    std::vector<Feed> feeds;  // the agent's
    ingest::RankStream::Options stream;
  };

  Router(Network& network, const Options& options);
  ~Router() override { Leave(); }

  // Blocks that can be reached from a root.
  [[nodiscard]] Held held(Rank rank) const { return HeldIn(*index_->index, rank); }
  [[nodiscard]] Held eligible(Rank rank) const { return EligibleIn(*index_->index, rank); }

 private:
  std::shared_ptr<index::PartitionIndex> index_;
};

}  // namespace kvr::simulation
