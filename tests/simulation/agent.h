// The agent beside the engines: it follows their streams and publishes what they come to, rank by
// rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fleet/catalog.h"
#include "ingest/rank_stream.h"
#include "service/agent/published_rank.h"
#include "service/agent/rank_answers.h"
#include "service/agent/rank_standing.h"
#include "simulation/follower.h"
#include "simulation/held.h"
#include "simulation/publisher.h"

namespace kvr::simulation {

class Agent final : public Follower {
 public:
  struct Options {
    // The streams of each worker's ranks. All workers tell of the first one's cache, and have as
    // many ranks.
    std::vector<Feed> feeds;
    ingest::RankStream::Options stream;
    publish::RankPublisher::Options publisher;  // of every rank, but for what names it
    Publisher::Options socket;                  // likewise
    std::uint64_t life = 1;
  };

  Agent(Network& network, const Options& options);
  ~Agent() override;

  // Where the rank is published.
  static Feed PublishedFeed(Rank rank);

  [[nodiscard]] std::size_t ranks() const { return published_.size(); }
  [[nodiscard]] Publisher& publisher(std::size_t rank) { return *published_[rank].socket; }
  [[nodiscard]] service::PublishedRank::Stats stats(std::size_t rank) const {
    return published_[rank].rank->stats();
  }
  // By what is known of the rank's sources.
  [[nodiscard]] service::SnapshotHead head(std::size_t rank) const {
    return service::HeadOf(*published_[rank].rank, *catalog_);
  }

  struct Known {
    Held held;       // what a snapshot and its tail come to
    Held reachable;  // ... and of that, what can be reached from a root
    Held eligible;   // ... and is eligible
  };
  [[nodiscard]] Known Read(std::size_t rank) const;

 private:
  struct Published {
    Publisher* socket = nullptr;  // `rank` has it
    std::unique_ptr<service::PublishedRank> rank;
    std::unique_ptr<service::RankAnswers> answers;
  };

  void Publish(const Options& options, Rank rank);
  void FollowWorker(const Options& options, WorkerId worker, std::size_t source);
  void Tick(Nanos coalesce, Nanos pause);

  const std::unique_ptr<fleet::Catalog> catalog_;
  std::vector<Published> published_;  // by dp_rank
};

}  // namespace kvr::simulation
