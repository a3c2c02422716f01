// What an agent between an engine and a router costs, over real sockets of one process: engine,
// agent and router have a thread or two each and share the machine.
//
// `Delay`: the engine publishes one message (a store of 16 blocks, and as many removed) and waits
// until the router has applied it; from publish to apply. `Throughput`: messages with a store of N
// blocks and a removal of as many, with at most 256 on their way; `cpu_ns/block` is processor time
// of the whole process, so that the agent's part is the difference to `agent:0`, where the router
// follows the engine itself. `coalesce` is in milliseconds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "fleet/catalog.h"
#include "fleet/rank_health.h"
#include "index/index_set.h"
#include "index/run_arena.h"
#include "index/side_groups.h"
#include "ingest/ingest.h"
#include "metrics/registry.h"
#include "net/event_publisher.h"
#include "net/event_socket.h"
#include "service/agent/published_rank.h"
#include "service/agent/publishing_index.h"
#include "service/agent/rank_answers.h"
#include "wire/event_encoder.h"

namespace kvr::service {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::size_t kHeld = 16'384;
constexpr std::uint64_t kUnderWayMax = 256;
constexpr Rank kRank{WorkerId{1}, 0};

std::int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of processor time, of all threads but this one.
double SecondsOfOthers() {
  return Seconds(CLOCK_PROCESS_CPUTIME_ID) - Seconds(CLOCK_THREAD_CPUTIME_ID);
}

// An index that says when it was changed last, and how many blocks came.
class NotingIndex final : public index::PrefixIndex {
 public:
  explicit NotingIndex(std::unique_ptr<index::PrefixIndex> index) : index_(std::move(index)) {}

  Result<RankSlot> AddRank(Rank rank) override { return index_->AddRank(rank); }
  std::optional<RankSlot> FindRank(Rank rank) const override { return index_->FindRank(rank); }
  bool RemoveRank(Rank rank) override { return index_->RemoveRank(rank); }
  index::ApplyResult Apply(RankSlot slot, const PlacementEvent& event) override {
    auto result = index_->Apply(slot, event);
    applied_at.store(NowNs(), std::memory_order_relaxed);
    stored.fetch_add(event.blocks.size(), std::memory_order_release);
    return result;
  }
  void Match(std::span<const BlockHash> blocks, const index::MatchOptions& options,
             OverlapScores& scores) const override {
    index_->Match(blocks, options, scores);
  }
  void FindBlocks(std::span<const SequenceHash> sequence,
                  std::vector<BlockHash>& blocks) const override {
    index_->FindBlocks(sequence, blocks);
  }
  void Dump(const std::function<void(const PlacementEvent&)>& emit) const override {
    index_->Dump(emit);
  }
  void CopyRank(Rank rank, index::RankCopy& copy) const override { index_->CopyRank(rank, copy); }
  index::IndexStats Stats() const override { return index_->Stats(); }
  index::RankStats StatsOf(RankSlot slot) const override { return index_->StatsOf(slot); }

  std::atomic<std::int64_t> applied_at{0};
  std::atomic<std::uint64_t> stored{0};

 private:
  const std::unique_ptr<index::PrefixIndex> index_;
};

// Follows one event stream into one index.
class Follower {
 public:
  Follower(std::unique_ptr<index::PrefixIndex> index, const std::string& endpoint,
           const std::string& replay, std::shared_ptr<fleet::RankHealth> health)
      : health_(std::move(health)) {
    partition_->block_size = kBlockSize;
    partition_->hybrid = std::make_unique<index::HybridRanks>(index::SideGroups::Options{});
    partition_->index = std::move(index);
    ingest::SourceSpec spec;
    spec.rank = kRank;
    spec.source.endpoint = endpoint;
    spec.source.replay_endpoint = replay;
    KVR_CHECK(ingest_.Add(std::move(spec), partition_, health_).has_value());
  }

  [[nodiscard]] bool exact() const { return health_->status().state == RankState::kExact; }
  void Stop() { ingest_.Stop(); }

 private:
  SystemClock clock_;
  metrics::Registry registry_;
  std::unique_ptr<net::EventTransport> transport_ = net::MakeZmqTransport({});
  std::shared_ptr<index::PartitionIndex> partition_ = std::make_shared<index::PartitionIndex>();
  const std::shared_ptr<fleet::RankHealth> health_;
  ingest::Ingest ingest_{*transport_, clock_, registry_, ingest::Ingest::Options{}};
};

class Agent {
 public:
  Agent(const net::EventPublisher& engine, Millis coalesce)
      : rank_(Open(coalesce)),
        follower_(std::make_unique<PublishingIndex>(std::vector<PublishedRank*>{rank_.get()},
                                                    kRank.worker, 0, sides_),
                  engine.endpoint(), engine.replay_endpoint(), Register()) {
    rank_->SetAnswers(&answers_);
    if (coalesce > Millis{0}) ticker_ = std::thread(&Agent::Tick, this, coalesce / 4);
  }
  ~Agent() {
    follower_.Stop();
    rank_->SetAnswers(nullptr);
    {
      const Lock lock(mutex_);
      ending_ = true;
    }
    ended_.NotifyAll();
    if (ticker_.joinable()) ticker_.join();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  [[nodiscard]] const PublishedRank& rank() const { return *rank_; }

 private:
  std::unique_ptr<PublishedRank> Open(Millis coalesce) {
    PublishedRank::Options options;
    options.publisher.rank = kRank;
    options.publisher.publisher_id = 1;
    options.publisher.coalescer.timeout = coalesce;
    auto rank = PublishedRank::Open(options, clock_);
    KVR_CHECK(rank.has_value());
    return std::move(*rank);
  }

  std::shared_ptr<fleet::RankHealth> Register() {
    fleet::WorkerSpec spec;
    spec.id = kRank.worker;
    spec.partition = {"m", "default"};
    spec.block_size = kBlockSize;
    spec.dp_ranks = {kRank.dp_rank};
    KVR_CHECK(catalog_.Add(spec).has_value());
    return catalog_.snapshot()->workers.front()->FindRank(kRank.dp_rank)->health;
  }

  void Tick(Nanos pause) {
    const Lock lock(mutex_);
    while (!ending_) {
      ended_.WaitUntil(mutex_, std::chrono::steady_clock::now() + pause);
      rank_->OnTick(Millis{1});
    }
  }

  SystemClock clock_;
  fleet::Catalog catalog_;
  index::HybridRanks sides_{index::SideGroups::Options{}};
  const std::unique_ptr<PublishedRank> rank_;
  RankAnswers answers_{*rank_, catalog_};
  Follower follower_;
  Mutex mutex_;
  CondVar ended_;
  bool ending_ KVR_GUARDED_BY(mutex_) = false;
  std::thread ticker_;
};

// An engine whose cache is full: each message stores as many blocks as it drops.
class Engine {
 public:
  explicit Engine(std::size_t blocks) : blocks_(blocks), names_(kHeld) {
    auto made = net::EventPublisher::Create({});
    KVR_CHECK(made.has_value());
    publisher_ = std::move(*made);
  }

  [[nodiscard]] const net::EventPublisher& publisher() const { return *publisher_; }
  [[nodiscard]] std::uint64_t stored() const { return stored_; }

  void Publish() {
    MakeMessage();
    publisher_->Publish(std::as_bytes(std::span(payload_)));
    stored_ += blocks_;
  }

 private:
  void MakeMessage() {
    batch_.Clear();
    batch_.ts += 0.001;
    tokens_.clear();
    for (std::size_t i = 0; i < blocks_ * kBlockSize; ++i)
      tokens_.push_back(static_cast<TokenId>(rng_.Below(151'936)));
    const auto names = std::span(names_).subspan(next_, blocks_);
    next_ = (next_ + blocks_) % names_.size();
    if (stored_ >= names_.size()) batch_.AddRemoved(names).medium = "GPU";
    for (EngineHash& name : names)
      name = EngineHash{rng_()};
    batch_.AddStored(names, std::nullopt, tokens_, kBlockSize).medium = "GPU";
    payload_.clear();
    wire::EncodeEventBatch(batch_, *wire::DialectByName("vllm-0.24"), payload_);
  }

  const std::size_t blocks_;
  std::unique_ptr<net::EventPublisher> publisher_;
  Rng rng_{1};
  std::vector<EngineHash> names_;  // held; a ring
  std::size_t next_ = 0;
  std::uint64_t stored_ = 0;
  std::vector<TokenId> tokens_;
  wire::EventBatch batch_;
  std::string payload_;
};

// Engine, agent or none, router.
class Path {
 public:
  Path(const benchmark::State& state, std::size_t blocks) : engine_(blocks) {
    if (state.range(0) == 1)
      agent_ = std::make_unique<Agent>(engine_.publisher(), Millis{state.range(1)});
    auto index =
        std::make_unique<NotingIndex>(std::make_unique<index::RunArena>(index::IndexOptions{}));
    index_ = index.get();
    const auto& engine = engine_.publisher();
    router_ = std::make_unique<Follower>(
        std::move(index), agent_ ? agent_->rank().endpoint() : engine.endpoint(),
        agent_ ? agent_->rank().replay_endpoint() : engine.replay_endpoint(),
        std::make_shared<fleet::RankHealth>());
    // The first message may come twice, live and from the replay; counting begins behind it, as a
    // count that runs ahead would hold nobody back.
    engine_.Publish();
    while (!router_->exact() || index_->Stats().memberships != engine_.stored())
      std::this_thread::yield();
    index_->stored = engine_.stored();
    while (engine_.stored() < 2 * kHeld) {
      engine_.Publish();
      Await(kUnderWayMax * blocks);
    }
    Await(0);
  }
  ~Path() { router_->Stop(); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const NotingIndex& index() const { return *index_; }
  // Until no more than so many blocks are under way.
  void Await(std::uint64_t blocks) const {
    while (index_->stored.load(std::memory_order_acquire) + blocks < engine_.stored())
      std::this_thread::yield();
  }

 private:
  Engine engine_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Follower> router_;
  NotingIndex* index_ = nullptr;
};

void Delay(benchmark::State& state) {
  Path path(state, 16);
  std::vector<double> delays;
  for (auto _ : state) {
    const std::int64_t begin = NowNs();
    path.engine().Publish();
    path.Await(0);
    delays.push_back(1e-3 * static_cast<double>(path.index().applied_at.load() - begin));
    state.SetIterationTime(1e-6 * delays.back());
  }
  std::sort(delays.begin(), delays.end());
  state.counters["p50_us"] = delays[delays.size() / 2];
  state.counters["p99_us"] = delays[delays.size() * 99 / 100];
}

void Throughput(benchmark::State& state) {
  const auto blocks = static_cast<std::size_t>(state.range(2));
  Path path(state, blocks);
  const double cpu = SecondsOfOthers();
  std::size_t messages = 0;
  for (auto _ : state) {
    path.engine().Publish();
    path.Await(kUnderWayMax * blocks);
    ++messages;
  }
  path.Await(0);
  const auto moved = static_cast<double>(2 * messages * blocks);
  state.counters["blocks/s"] = benchmark::Counter(moved, benchmark::Counter::kIsRate);
  state.counters["cpu_ns/block"] = 1e9 * (SecondsOfOthers() - cpu) / moved;
}

BENCHMARK(Delay)
    ->ArgNames({"agent", "coalesce"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({1, 10})
    ->UseManualTime()
    ->Iterations(2'000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(Throughput)
    ->ArgNames({"agent", "coalesce", "blocks"})
    ->ArgsProduct({{0}, {0}, {1, 64}})
    ->ArgsProduct({{1}, {0, 10}, {1, 64}})
    ->UseRealTime();

}  // namespace
}  // namespace kvr::service

BENCHMARK_MAIN();
