#include "routing/router.h"

#include <functional>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "base/mutex.h"
#include "fleet/catalog.h"
#include "index/index_set.h"
#include "metrics/registry.h"
#include "routing/counters.h"
#include "routing/partition_router.h"
#include "routing/prompt.h"

namespace kvr::routing {
namespace {

// How often a decision starts over because the catalog changed under it.
constexpr int kAttemptsMax = 16;

// Orders partitions and pairs of views alike, so that a look-up builds no strings.
struct PartitionLess {
  using is_transparent = void;
  using Key = std::pair<std::string_view, std::string_view>;

  static Key KeyOf(const Partition& partition) {
    return {partition.model_name, partition.routing_group};
  }
  static Key KeyOf(const Key& key) { return key; }

  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return KeyOf(a) < KeyOf(b);
  }
};

Error NoWorkers(ErrorCode code, const RouteRequest& request) {
  return {code, fmt::format("no worker serves model={} routing_group={}", request.model_name,
                            request.routing_group)};
}

}  // namespace

Result<void> RouterOptions::Validate() const {
  KVR_TRY_VOID(cost.Validate());
  KVR_TRY_VOID(load.Validate());
  KVR_TRY_VOID(guesses.index.Validate());
  if (approximate_ttl.count() < 0 || speculative_ttl.count() < 0)
    return Fail(ErrorCode::kInvalidArgument, "a time to live is below 0");
  if (prompt_tokens_max == 0 || prompt_tokens_max > load::kTokensMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("prompt_tokens_max must be in 1..{}", load::kTokensMax));
  }
  return {};
}

class Router::Impl {
 public:
  Impl(const fleet::Catalog& catalog, const index::IndexSet& indexes, const Clock& clock,
       metrics::Registry& registry, const RouterOptions& options)
      : catalog_(catalog),
        indexes_(indexes),
        clock_(clock),
        options_(options),
        counters_(registry),
        collector_(registry.AddCollector([this](metrics::SampleSink& sink) { Collect(sink); })) {
    KVR_CHECK(options_.Validate());
  }

  Result<Decision> Route(const RouteRequest& request) {
    const Nanos start = clock_.Now();
    auto outcome = Decide(request);
    counters_.Took(clock_.Now() - start);
    if (!outcome) {
      counters_.Refused(outcome.error().code);
      return tl::make_unexpected(std::move(outcome).error());
    }
    counters_.Decided(outcome->decision, outcome->passed_over_blocks);
    return std::move(outcome->decision);
  }

  void ReportActual(const Decision& decision, std::uint64_t cached_tokens) {
    counters_.Reported(decision.predicted_cached_tokens, cached_tokens);
  }

  std::vector<RankLoad> Loads(const Partition& partition) const {
    const auto found = Find(PartitionLess::KeyOf(partition));
    return found ? found->book().Loads() : std::vector<RankLoad>{};
  }

  std::size_t Sweep() {
    const auto snapshot = catalog_.snapshot();
    std::size_t freed = 0;
    for (const auto& partition : List()) {
      partition->TakeUp(*snapshot);
      freed += partition->Sweep();
    }
    DropIdle();
    return freed;
  }

 private:
  using Partitions = std::map<Partition, std::shared_ptr<PartitionRouter>, PartitionLess>;

  Result<Outcome> Decide(const RouteRequest& request) {
    KVR_TRY_VOID(CheckPrompt(request, options_.prompt_tokens_max));
    const auto scratch = Borrow();
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      const auto snapshot = catalog_.snapshot();
      const auto partition = FindOrAdd(request, *snapshot);
      if (!partition) return tl::make_unexpected(NoWorkers(ErrorCode::kNotFound, request));
      const auto members = partition->TakeUp(*snapshot);
      if (members->hosts.empty())
        return tl::make_unexpected(NoWorkers(ErrorCode::kUnavailable, request));
      const Prompt prompt =
          ReadPrompt(request, members->block_size, members->eagle, scratch->prompt);
      MatchMembers(*partition, *members, prompt, *scratch);
      KVR_TRY(auto outcome, partition->Decide(request, prompt, members, *scratch));
      if (!outcome) continue;
      if (request.reserve) partition->Guess(*members, prompt, outcome->decision);
      return *std::move(outcome);
    }
    return Fail(ErrorCode::kUnavailable, "the workers of the partition keep changing; retry");
  }

  // scratch.overlaps: what each member holds of the prompt.
  void MatchMembers(PartitionRouter& partition, const Members& members, const Prompt& prompt,
                    Scratch& scratch) const {
    scratch.overlaps.clear();
    for (const sched::Host& host : members.hosts)
      scratch.overlaps.push_back({.rank = host.rank});
    scratch.guessed.assign(scratch.overlaps.size(), 0);
    if (prompt.blocks.empty()) return;
    const auto index = indexes_.Find(partition.partition());
    const bool fits = index && index->block_size == members.block_size;
    if (fits) MatchEvents(*index, members, prompt, scratch);
    partition.AddGuesses(members, prompt, fits ? index->hybrid.get() : nullptr, scratch);
  }

  static void MatchEvents(const index::PartitionIndex& index, const Members& members,
                          const Prompt& prompt, Scratch& scratch) {
    index.index->Match(prompt.blocks, {}, scratch.scores);
    // Slots are mostly given in ascending order of ranks, so the next is mostly the neighbour.
    std::size_t next = 0;
    for (const RankSlot slot : scratch.scores.scored()) {
      const RankOverlap& overlap = scratch.scores.at(slot);
      if (next >= members.hosts.size() || members.hosts[next].rank != overlap.rank) {
        const auto member = members.Find(overlap.rank);
        if (!member) continue;
        next = *member;
      }
      scratch.overlaps[next++] = overlap;
    }
    if (index.hybrid->empty()) return;
    // The engine computes at least the last token of a prompt.
    const std::uint64_t most = (prompt.isl_tokens - 1) / members.block_size;
    for (RankOverlap& overlap : scratch.overlaps) {
      if (overlap.depth() == 0) continue;
      const auto hit = index.hybrid->HitOf(overlap, static_cast<std::uint32_t>(most));
      if (hit) overlap.CutTo(*hit);
    }
  }

  std::shared_ptr<PartitionRouter> Find(PartitionLess::Key key) const KVR_EXCLUDES(mutex_) {
    const ReadLock lock(mutex_);
    const auto found = partitions_.find(key);
    return found == partitions_.end() ? nullptr : found->second;
  }

  // Null when nobody ever served the partition.
  std::shared_ptr<PartitionRouter> FindOrAdd(const RouteRequest& request,
                                             const fleet::Snapshot& snapshot) KVR_EXCLUDES(mutex_) {
    if (auto found = Find({request.model_name, request.routing_group})) return found;
    Partition partition{std::string(request.model_name), std::string(request.routing_group)};
    if (snapshot.In(partition).empty()) return nullptr;
    const WriteLock lock(mutex_);
    auto& added = partitions_[partition];
    if (!added) added = std::make_shared<PartitionRouter>(partition, options_, clock_);
    return added;
  }

  std::vector<std::shared_ptr<PartitionRouter>> List() const KVR_EXCLUDES(mutex_) {
    const ReadLock lock(mutex_);
    std::vector<std::shared_ptr<PartitionRouter>> list;
    for (const auto& [key, partition] : partitions_)
      list.push_back(partition);
    return list;
  }

  // Nobody can get at a partition under the write lock, so one that nobody else holds stays idle.
  void DropIdle() KVR_EXCLUDES(mutex_) {
    const WriteLock lock(mutex_);
    std::erase_if(partitions_, [](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->IsIdle();
    });
  }

  void Collect(metrics::SampleSink& sink) const {
    for (const auto& partition : List()) {
      for (const RankLoad& load : partition->book().Loads())
        EmitLoad(partition->partition(), load, sink);
      EmitBook(partition->partition(), partition->book().Stats(), sink);
      EmitGuesses(partition->partition(), partition->guesses().stats(), sink);
    }
  }

  // A scratch for one call; there are as many as calls ran at once.
  struct GiveBack {
    Impl* impl;
    void operator()(Scratch* scratch) const { impl->Return(scratch); }
  };
  std::unique_ptr<Scratch, GiveBack> Borrow() KVR_EXCLUDES(pool_mutex_) {
    const Lock lock(pool_mutex_);
    if (pool_.empty()) return {new Scratch, GiveBack{this}};
    Scratch* scratch = pool_.back().release();
    pool_.pop_back();
    return {scratch, GiveBack{this}};
  }
  void Return(Scratch* scratch) KVR_EXCLUDES(pool_mutex_) {
    const Lock lock(pool_mutex_);
    pool_.emplace_back(scratch);
  }

  const fleet::Catalog& catalog_;
  const index::IndexSet& indexes_;
  const Clock& clock_;
  const RouterOptions options_;
  Counters counters_;
  mutable SharedMutex mutex_;
  Partitions partitions_ KVR_GUARDED_BY(mutex_);
  Mutex pool_mutex_;
  std::vector<std::unique_ptr<Scratch>> pool_ KVR_GUARDED_BY(pool_mutex_);
  metrics::Registry::Collector collector_;  // last: it reads the members above
};

Router::Router(const fleet::Catalog& catalog, const index::IndexSet& indexes, const Clock& clock,
               metrics::Registry& registry, const RouterOptions& options)
    : impl_(std::make_unique<Impl>(catalog, indexes, clock, registry, options)) {}

Router::~Router() = default;

Result<Decision> Router::Route(const RouteRequest& request) {
  return impl_->Route(request);
}

void Router::ReportActual(const Decision& decision, std::uint64_t cached_tokens) {
  impl_->ReportActual(decision, cached_tokens);
}

std::vector<RankLoad> Router::Loads(const Partition& partition) const {
  return impl_->Loads(partition);
}

std::size_t Router::Sweep() {
  return impl_->Sweep();
}

}  // namespace kvr::routing
