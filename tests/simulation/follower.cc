#include "simulation/follower.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvr::simulation {

Follower::Follower(Network& network)
    : network_(network), poller_(network.MakePoller([this] { Wake(); })) {}

void Follower::Follow(const Feed& feed, std::shared_ptr<fleet::RankHealth> health,
                      std::shared_ptr<index::PartitionIndex> index,
                      const ingest::RankStream::Options& stream) {
  const auto slot = index->index->AddRank(feed.rank);
  KVR_CHECK(slot.has_value());
  targets_[feed.rank] = {std::move(index), *slot, health};
  ingest::SourceSpec spec;
  spec.rank = feed.rank;
  spec.source.endpoint = feed.events;
  if (!feed.replay.empty()) spec.source.replay_endpoint = feed.replay;
  ingest::Ingest::Options options;
  options.stream = stream;
  auto source = ingest::Source::Open(std::move(spec), health, options, *poller_, targets_, metrics_,
                                     network_.agenda().clock());
  KVR_CHECK(source.has_value());
  followed_.emplace_back(*std::move(source), std::move(health));
}

void Follower::Wake() {
  if (turn_planned_) return;
  turn_planned_ = true;
  TurnAt(network_.agenda().now() + Nanos(network_.rng().Below(300'000)));
}

void Follower::StallFor(Nanos span) {
  stalled_until_ = network_.agenda().now() + span;
}

void Follower::EndStall() {
  stalled_until_ = Nanos{0};
  turn_planned_ = true;
  TurnAt(network_.agenda().now());
}

void Follower::TurnAt(Nanos when) {
  const Nanos now = network_.agenda().now();
  network_.agenda().After(std::max(when, stalled_until_) - now,
                          [this, plan = ++turn_plan_, alive = std::weak_ptr<bool>(alive_)] {
                            if (!alive.expired() && plan == turn_plan_) Turn();
                          });
}

void Follower::Turn() {
  const Nanos now = network_.agenda().now();
  if (now < stalled_until_) return TurnAt(stalled_until_);
  turn_planned_ = false;
  ingest::TurnLimits limits;
  limits.messages_max = 1 + network_.rng().Below(16);
  bool more = false;
  for (const Followed& followed : followed_)
    more |= followed.source().Turn(limits);
  if (more) return Wake();
  if (turn_planned_) return;
  std::optional<Nanos> due;
  for (const Followed& followed : followed_) {
    const auto deadline = followed.source().deadline();
    if (deadline && (!due || *deadline < *due)) due = deadline;
  }
  if (due) TurnAt(*due);
}

}  // namespace kvr::simulation
