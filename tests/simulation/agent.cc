#include "simulation/agent.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "index/index_set.h"
#include "index/side_groups.h"
#include "placement/event_translator.h"
#include "service/agent/publishing_index.h"
#include "simulation/engine.h"
#include "wire/msgpack_writer.h"

namespace kvr::simulation {
namespace {

std::vector<WorkerId> WorkersOf(const Agent::Options& options) {
  std::vector<WorkerId> workers;
  for (const Feed& feed : options.feeds) {
    if (std::ranges::find(workers, feed.rank.worker) == workers.end())
      workers.push_back(feed.rank.worker);
  }
  return workers;
}

std::unique_ptr<fleet::Catalog> CatalogOf(const Agent::Options& options) {
  auto catalog = std::make_unique<fleet::Catalog>();
  for (const WorkerId worker : WorkersOf(options)) {
    fleet::WorkerSpec spec;
    spec.id = worker;
    spec.partition = {"m", "default"};
    spec.block_size = kBlockSize;
    for (const Feed& feed : options.feeds) {
      if (feed.rank.worker != worker) continue;
      spec.dp_ranks.push_back(feed.rank.dp_rank);
      spec.events[feed.rank.dp_rank].endpoint = feed.events;
    }
    KVR_CHECK(catalog->Add(std::move(spec)).has_value());
  }
  return catalog;
}

}  // namespace

Agent::Agent(Network& network, const Options& options)
    : Follower(network), catalog_(CatalogOf(options)) {
  const std::vector<WorkerId> workers = WorkersOf(options);
  Options each = options;
  each.publisher.sources = workers.size();
  for (const Feed& feed : options.feeds) {
    if (feed.rank.worker == workers.front()) Publish(each, feed.rank);
  }
  for (std::size_t source = 0; source < workers.size(); ++source)
    FollowWorker(options, workers[source], source);
  const Millis timeout = options.publisher.coalescer.timeout;
  if (timeout > Millis{0}) Tick(timeout, timeout);
}

Agent::~Agent() {
  Leave();
  for (const Published& published : published_)
    published.rank->SetAnswers(nullptr);
}

Feed Agent::PublishedFeed(Rank rank) {
  return {rank, fmt::format("tcp://agent:{}", 1 + rank.dp_rank),
          fmt::format("tcp://agent-replay:{}", 1 + rank.dp_rank)};
}

void Agent::Publish(const Options& options, Rank rank) {
  const Feed feed = PublishedFeed(rank);
  publish::RankPublisher::Options publisher = options.publisher;
  publisher.rank = rank;
  publisher.publisher_id = 1'000 * (1 + rank.dp_rank) + options.life;
  Publisher::Options socket_options = options.socket;
  socket_options.endpoint = feed.events;
  socket_options.replay_endpoint = feed.replay;
  socket_options.topic = publisher.topic;
  socket_options.publisher_id = publisher.publisher_id;
  auto socket = std::make_unique<Publisher>(network_, socket_options);
  Published published;
  published.socket = socket.get();
  published.rank = std::make_unique<service::PublishedRank>(publisher, network_.agenda().clock(),
                                                            std::move(socket));
  published.answers = std::make_unique<service::RankAnswers>(*published.rank, *catalog_);
  published.rank->SetAnswers(published.answers.get());
  published_.push_back(std::move(published));
}

void Agent::FollowWorker(const Options& options, WorkerId worker, std::size_t source) {
  std::vector<service::PublishedRank*> ranks;
  for (const Published& published : published_)
    ranks.push_back(published.rank.get());
  auto partition = std::make_shared<index::PartitionIndex>();
  partition->block_size = kBlockSize;
  partition->hybrid = std::make_unique<index::HybridRanks>(index::SideGroups::Options{});
  partition->index = std::make_unique<service::PublishingIndex>(std::move(ranks), worker, source,
                                                                *partition->hybrid);
  const auto fleet = catalog_->snapshot();
  for (const Feed& feed : options.feeds) {
    if (feed.rank.worker != worker) continue;
    Follow(feed, fleet->Find(feed.rank)->health, partition, options.stream);
  }
}

Agent::Known Agent::Read(std::size_t number) const {
  service::PublishedRank& published = *published_[number].rank;
  const Rank rank = published.rank();
  const auto answer = published.TakeSnapshot();
  KVR_CHECK(answer.has_value());
  index::IndexSet indexes{index::IndexOptions{}};
  const auto fresh = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
  const RankSlot slot = *fresh->index->AddRank(rank);
  Known known;
  const auto apply = [&](const PlacementEvent& event) {
    fresh->index->Apply(slot, event);
    for (const PlacedBlock& block : event.blocks)
      known.held.emplace(event.tier, Raw(block.engine));
    for (const EngineHash name : event.removed)
      known.held.erase({event.tier, Raw(name)});
    if (event.kind == PlacementKind::kCleared) known.held.clear();
  };
  const publish::Snapshot& snapshot = *answer->base;
  for (const publish::Snapshot::Run& run : snapshot.runs) {
    PlacementEvent event;
    event.kind = PlacementKind::kStored;
    event.rank = rank;
    event.tier = run.tier;
    event.parent = run.parent;
    event.eligible = run.eligible;
    event.blocks = snapshot.BlocksOf(run);
    apply(event);
  }
  if (answer->tail_events > 0) {
    std::string tail;
    wire::MsgpackWriter(tail).Array(answer->tail_events);
    tail += answer->tail;
    placement::TranslatorOptions options;
    options.rank = rank;
    options.block_size = kBlockSize;
    placement::EventTranslator translator(options);
    placement::PlacementBatch batch;
    KVR_CHECK(translator.Translate(std::as_bytes(std::span(tail)), batch).has_value());
    for (const PlacementEvent& event : batch.events)
      apply(event);
  }
  known.reachable = HeldIn(*fresh->index, rank);
  known.eligible = EligibleIn(*fresh->index, rank);
  return known;
}

void Agent::Tick(Nanos coalesce, Nanos pause) {
  network_.agenda().After(pause, [this, coalesce, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    Nanos next = coalesce;
    for (const Published& published : published_)
      next = std::min(next, published.rank->OnTick(coalesce));
    Tick(coalesce, next);
  });
}

}  // namespace kvr::simulation
