#include "simulation/nodes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "index/side_groups.h"
#include "placement/event_translator.h"
#include "wire/msgpack_writer.h"

namespace kvr::simulation {
namespace {

std::unique_ptr<fleet::Catalog> CatalogOf(const Agent::Options& options) {
  fleet::WorkerSpec spec;
  spec.id = kRank.worker;
  spec.partition = {"m", "default"};
  spec.block_size = kBlockSize;
  spec.dp_ranks = {kRank.dp_rank};
  spec.events[kRank.dp_rank].endpoint = options.events;
  auto catalog = std::make_unique<fleet::Catalog>();
  KVR_CHECK(catalog->Add(std::move(spec)).has_value());
  return catalog;
}

}  // namespace

Follower::Follower(Network& network, std::shared_ptr<fleet::RankHealth> health)
    : network_(network),
      health_(std::move(health)),
      poller_(network.MakePoller([this] { Wake(); })) {}

void Follower::Follow(const std::string& endpoint, const std::string& replay_endpoint,
                      std::shared_ptr<index::PartitionIndex> index,
                      const ingest::RankStream::Options& stream) {
  const auto slot = index->index->AddRank(kRank);
  KVR_CHECK(slot.has_value());
  targets_[kRank] = {std::move(index), *slot, health_};
  ingest::SourceSpec spec;
  spec.rank = kRank;
  spec.source.endpoint = endpoint;
  if (!replay_endpoint.empty()) spec.source.replay_endpoint = replay_endpoint;
  ingest::Ingest::Options options;
  options.stream = stream;
  auto source = ingest::Source::Open(std::move(spec), health_, options, *poller_, targets_,
                                     metrics_, network_.agenda().clock());
  KVR_CHECK(source.has_value());
  source_ = *std::move(source);
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
  if (source_->Turn(limits)) return Wake();
  if (turn_planned_) return;
  if (const auto due = source_->deadline()) TurnAt(*due);
}

Agent::Agent(Network& network, const Options& options)
    : Agent(network, options, CatalogOf(options)) {}

Agent::Agent(Network& network, const Options& options, std::unique_ptr<fleet::Catalog> catalog)
    : Follower(network, catalog->snapshot()->Find(kRank)->health), catalog_(std::move(catalog)) {
  Publisher::Options socket_options = options.socket;
  socket_options.topic = options.publisher.topic;
  socket_options.publisher_id = options.publisher.publisher_id;
  auto socket = std::make_unique<Publisher>(network, socket_options);
  socket_ = socket.get();
  rank_ = std::make_unique<service::PublishedRank>(options.publisher, network.agenda().clock(),
                                                   std::move(socket));
  answers_ = std::make_unique<service::RankAnswers>(*rank_, *catalog_);
  rank_->SetAnswers(answers_.get());
  auto partition = std::make_shared<index::PartitionIndex>();
  partition->block_size = kBlockSize;
  partition->hybrid = std::make_unique<index::HybridRanks>(index::SideGroups::Options{});
  partition->index = std::make_unique<service::PublishingIndex>(
      std::vector<service::PublishedRank*>{rank_.get()}, kRank.worker, 0, *partition->hybrid);
  Follow(options.events, options.replay, std::move(partition), options.stream);
  const Millis timeout = options.publisher.coalescer.timeout;
  if (timeout > Millis{0}) Tick(std::max<Nanos>(Millis{1}, timeout / 4));
}

Agent::~Agent() {
  Leave();
  rank_->SetAnswers(nullptr);
}

Agent::Known Agent::Read() const {
  const auto answer = rank_->TakeSnapshot();
  KVR_CHECK(answer.has_value());
  index::IndexSet indexes{index::IndexOptions{}};
  const auto fresh = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
  const RankSlot slot = *fresh->index->AddRank(kRank);
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
    event.rank = kRank;
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
    options.rank = kRank;
    options.block_size = kBlockSize;
    placement::EventTranslator translator(options);
    placement::PlacementBatch batch;
    KVR_CHECK(translator.Translate(std::as_bytes(std::span(tail)), batch).has_value());
    for (const PlacementEvent& event : batch.events)
      apply(event);
  }
  known.reachable = HeldIn(*fresh->index);
  known.eligible = EligibleIn(*fresh->index);
  return known;
}

void Agent::Tick(Nanos interval) {
  network_.agenda().After(interval, [this, interval, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    rank_->OnTick();
    Tick(interval);
  });
}

Router::Router(Network& network, const Options& options)
    : Follower(network, std::make_shared<fleet::RankHealth>()) {
  index::IndexSet indexes{index::IndexOptions{}};
  index_ = *indexes.GetOrCreate({"m", "default"}, kBlockSize);
  Follow(options.events, options.replay, index_, options.stream);
}

Held HeldIn(const index::PrefixIndex& index) {
  Held held;
  index.Dump([&held](const PlacementEvent& event) {
    for (const PlacedBlock& block : event.blocks)
      held.emplace(event.tier, Raw(block.engine));
  });
  return held;
}

Held EligibleIn(const index::PrefixIndex& index) {
  Held eligible;
  index.Dump([&eligible](const PlacementEvent& event) {
    if (!event.eligible) return;
    for (const PlacedBlock& block : event.blocks)
      eligible.emplace(event.tier, Raw(block.engine));
  });
  return eligible;
}

}  // namespace kvr::simulation
