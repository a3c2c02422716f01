// The processes that follow a stream: the agent beside the engine, and routers. Their parts are
// those of the program; only their sockets and their time are simulated.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fleet/catalog.h"
#include "fleet/rank_health.h"
#include "index/index_set.h"
#include "ingest/ingest.h"
#include "ingest/ingest_metrics.h"
#include "ingest/source.h"
#include "metrics/registry.h"
#include "service/agent/published_rank.h"
#include "service/agent/publishing_index.h"
#include "service/agent/rank_answers.h"
#include "simulation/engine.h"
#include "simulation/network.h"
#include "simulation/publisher.h"

namespace kvr::simulation {

// A process with one source, which reads when something arrives, or when it is time.
class Follower {
 public:
  virtual ~Follower() = default;

  void Wake();
  // Reads nothing for so long; it goes on arriving.
  void StallFor(Nanos span);
  void EndStall();

  [[nodiscard]] fleet::RankHealth::Status status() const { return health_->status(); }
  [[nodiscard]] std::string detail() const { return health_->detail(); }
  [[nodiscard]] const ingest::StreamStats& stats() const { return source_->stream().stats(); }
  // What is counted of the rank, as /metrics has it.
  [[nodiscard]] const fleet::RankLedger& ledger() const { return health_->ledger(); }
  [[nodiscard]] std::optional<std::uint64_t> watermark() const { return health_->watermark(); }

 protected:
  Follower(Network& network, std::shared_ptr<fleet::RankHealth> health);

  // Last of the construction; Leave is first of the destruction.
  void Follow(const std::string& endpoint, const std::string& replay_endpoint,
              std::shared_ptr<index::PartitionIndex> index,
              const ingest::RankStream::Options& stream);
  void Leave() { source_.reset(); }

  Network& network_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is planned

 private:
  void TurnAt(Nanos when);
  void Turn();

  metrics::Registry registry_;
  ingest::IngestMetrics metrics_{registry_, false};
  const std::shared_ptr<fleet::RankHealth> health_;
  ingest::Targets targets_;
  std::unique_ptr<net::EventPoller> poller_;
  Nanos stalled_until_{0};
  std::uint64_t turn_plan_ = 0;
  bool turn_planned_ = false;
  std::unique_ptr<ingest::Source> source_;
};

class Agent final : public Follower {
 public:
  struct Options {
    std::string events, replay;  // the engine's; no replay where it is empty
    ingest::RankStream::Options stream;
    publish::RankPublisher::Options publisher;
    Publisher::Options socket;
  };

  Agent(Network& network, const Options& options);
  ~Agent() override;

  [[nodiscard]] Publisher& publisher() { return *socket_; }
  [[nodiscard]] service::PublishedRank::Stats published() const { return rank_->stats(); }
  // What a snapshot and its tail come to ...
  [[nodiscard]] Held held() const { return Read().held; }
  // ... and of that, what can be reached from a root.
  [[nodiscard]] Held reachable() const { return Read().reachable; }
  // ... and is eligible.
  [[nodiscard]] Held eligible() const { return Read().eligible; }

 private:
  struct Known {
    Held held;
    Held reachable;
    Held eligible;
  };

  // As one whose source the catalog has.
  Agent(Network& network, const Options& options, std::unique_ptr<fleet::Catalog> catalog);
  void Tick(Nanos interval);
  [[nodiscard]] Known Read() const;

  const std::unique_ptr<fleet::Catalog> catalog_;
  Publisher* socket_;  // `rank_` has it
  std::unique_ptr<service::PublishedRank> rank_;
  std::unique_ptr<service::RankAnswers> answers_;
};

// What the index says the rank holds.
Held HeldIn(const index::PrefixIndex& index);
// ... and which of it is eligible.
Held EligibleIn(const index::PrefixIndex& index);

class Router final : public Follower {
 public:
  struct Options {
    std::string events, replay;
    ingest::RankStream::Options stream;
  };

  Router(Network& network, const Options& options);
  ~Router() override { Leave(); }

  // Blocks that can be reached from a root.
  [[nodiscard]] Held held() const { return HeldIn(*index_->index); }
  [[nodiscard]] Held eligible() const { return EligibleIn(*index_->index); }

 private:
  std::shared_ptr<index::PartitionIndex> index_;
};

}  // namespace kvr::simulation
