// What follows streams: a part of a process, as its thread is. Its parts are those of the program;
// only their sockets and their time are simulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/rank_health.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/ingest_metrics.h"
#include "ingest/source.h"
#include "metrics/registry.h"
#include "model/ids.h"
#include "simulation/network.h"

namespace kvr::simulation {

// Where one stream is to be had.
struct Feed {
  Rank rank;
  std::string events;
  std::string replay;  // empty: nowhere
};

// One stream that is followed, and what is known of its rank.
class Followed {
 public:
  Followed(std::unique_ptr<ingest::Source> source, std::shared_ptr<fleet::RankHealth> health)
      : source_(std::move(source)), health_(std::move(health)) {}

  [[nodiscard]] ingest::Source& source() const { return *source_; }
  [[nodiscard]] fleet::RankHealth::Status status() const { return health_->status(); }
  [[nodiscard]] std::string detail() const { return health_->detail(); }
  [[nodiscard]] const ingest::StreamStats& stats() const { return source_->stream().stats(); }
  // What is counted of the rank, as /metrics has it.
  [[nodiscard]] const fleet::RankLedger& ledger() const { return health_->ledger(); }
  [[nodiscard]] std::optional<std::uint64_t> watermark() const { return health_->watermark(); }

 private:
  std::unique_ptr<ingest::Source> source_;
  std::shared_ptr<fleet::RankHealth> health_;
};

// One thread with its streams, which reads when something arrives, or when it is time.
class Follower {
 public:
  virtual ~Follower() = default;

  void Wake();
  // Reads nothing for so long; it goes on arriving.
  void StallFor(Nanos span);
  void EndStall();

  // In the order of their feeds.
  [[nodiscard]] const std::vector<Followed>& followed() const { return followed_; }

 protected:
  explicit Follower(Network& network);

  // Last of the construction; Leave is first of the destruction.
  void Follow(const Feed& feed, std::shared_ptr<fleet::RankHealth> health,
              std::shared_ptr<index::PartitionIndex> index,
              const ingest::RankStream::Options& stream);
  void Leave() { followed_.clear(); }

  Network& network_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is planned

 private:
  void TurnAt(Nanos when);
  void Turn();

  metrics::Registry registry_;
  ingest::IngestMetrics metrics_{registry_, false};
  ingest::Targets targets_;
  std::unique_ptr<net::EventPoller> poller_;
  Nanos stalled_until_{0};
  std::uint64_t turn_plan_ = 0;
  bool turn_planned_ = false;
  std::vector<Followed> followed_;
};

}  // namespace kvr::simulation
