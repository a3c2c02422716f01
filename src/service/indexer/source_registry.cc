#include "service/indexer/source_registry.h"

#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "net/event_endpoint.h"
#include "net/event_socket.h"

namespace kvr::service {
namespace {

Result<void> CheckEndpoints(const fleet::EventSource& source) {
  KVR_TRY_VOID(net::CheckEventEndpoint(source.endpoint));
  if (source.replay_endpoint) {
    const auto checked = net::CheckEndpoint(*source.replay_endpoint, true);
    if (!checked) {
      return Fail(checked.error().code,
                  fmt::format("invalid replay endpoint `{}`: {}", *source.replay_endpoint,
                              checked.error().message));
    }
  }
  return {};
}

fleet::WorkerSpec SpecOf(const SourceRegistry::Request& request) {
  fleet::WorkerSpec spec;
  spec.id = request.rank.worker;
  spec.partition = request.partition;
  spec.block_size = request.block_size;
  spec.dp_ranks = {request.rank.dp_rank};
  spec.events = {{request.rank.dp_rank, request.source}};
  return spec;
}

}  // namespace

SourceRegistry::SourceRegistry(fleet::Catalog& catalog, index::IndexSet& indexes,
                               ingest::Ingest& ingest, const Clock& clock, const Options& options)
    : catalog_(catalog),
      indexes_(indexes),
      ingest_(ingest),
      clock_(clock),
      options_(options),
      quarantine_(options.quarantine) {}

Result<bool> SourceRegistry::Register(const Request& request) {
  KVR_TRY_VOID(CheckEndpoints(request.source));
  const Lock change(changes_);
  auto added = catalog_.AddRank(SpecOf(request));
  if (!added && request.replace) {
    const auto snapshot = catalog_.snapshot();
    const fleet::RankEntry* const entry = snapshot->Find(request.rank);
    const bool same_partition =
        entry != nullptr &&
        snapshot->Find(request.rank.worker)->spec.partition == request.partition;
    if (same_partition && entry->events != request.source) {
      Drop(request.rank);
      added = catalog_.AddRank(SpecOf(request));
    }
  }
  if (!added) return tl::make_unexpected(std::move(added).error());
  if (!*added) return false;
  if (auto entered = Enter(request); !entered) {
    catalog_.RemoveRank(request.rank);
    NoteIfEmpty(request.partition);
    return tl::make_unexpected(std::move(entered).error());
  }
  return true;
}

Result<void> SourceRegistry::Enter(const Request& request) {
  if (!holding_) return Follow({request, clock_.Now()});
  KVR_TRY_VOID(IndexFor(request));
  held_.insert_or_assign(request.rank, Held{request, clock_.Now()});
  catalog_.snapshot()
      ->Find(request.rank)
      ->health->SetStatus({RankState::kWarming, StateReason::kConnecting}, "peers are asked first",
                          clock_.Now());
  return {};
}

void SourceRegistry::Hold() {
  const Lock change(changes_);
  holding_ = true;
}

void SourceRegistry::Release() {
  while (true) {  // a lock a rank: adopting its blocks may take long
    const Lock change(changes_);
    holding_ = false;
    if (held_.empty()) return;
    const Held held = std::move(held_.begin()->second);
    held_.erase(held_.begin());
    const auto followed = Follow(held);
    if (followed) continue;
    const Request& request = held.request;
    KVR_ERROR("instance {} dp_rank {} is unregistered again: {}", Raw(request.rank.worker),
              request.rank.dp_rank, followed.error().message);
    catalog_.RemoveRank(request.rank);
    NoteIfEmpty(request.partition);
  }
}

Result<std::size_t> SourceRegistry::Recover(RecoveredPartition partition) {
  const Lock change(changes_);
  const auto snapshot = catalog_.snapshot();
  const auto index = indexes_.Find(partition.partition);
  if (index && !snapshot->In(partition.partition).empty() &&
      index->block_size != partition.block_size) {
    return Fail(ErrorCode::kAlreadyExists, fmt::format("block_size is {} there and {} here",
                                                       partition.block_size, index->block_size));
  }
  std::size_t followed = 0;
  for (auto entry = partition.ranks.begin(); entry != partition.ranks.end();) {
    const bool begun = snapshot->Find(entry->first) != nullptr && !held_.contains(entry->first);
    followed += begun ? 1 : 0;
    entry = begun ? partition.ranks.erase(entry) : std::next(entry);
  }
  const Lock lock(mutex_);
  KVR_TRY_VOID(quarantine_.Add(std::move(partition), clock_.Now()));
  return followed;
}

std::size_t SourceRegistry::DropUnclaimed() {
  const Lock change(changes_);
  if (!held_.empty()) return 0;
  const Lock lock(mutex_);
  const std::size_t dropped = quarantine_.DropExpired(clock_.Now());
  expired_ranks_ += dropped;
  return dropped;
}

SourceRegistry::RecoveryStats SourceRegistry::recovery_stats() const {
  const Lock lock(mutex_);
  return {quarantine_.ranks(), quarantine_.blocks(), adopted_ranks_, expired_ranks_};
}

std::optional<ingest::SourceSpec::Recovered> SourceRegistry::Adopt(Rank rank, Nanos registered,
                                                                   index::PartitionIndex& index) {
  std::optional<RecoveredRank> recovered;
  {
    const Lock lock(mutex_);
    recovered = quarantine_.Take(rank, index.partition, index.block_size, registered);
  }
  if (!recovered) return std::nullopt;
  const auto slot = index.index->AddRank(rank);
  if (!slot) return std::nullopt;  // which the ingest will say, too
  ApplyRecovered(*recovered, rank, index, *slot);
  const Lock lock(mutex_);
  ++adopted_ranks_;
  return ingest::SourceSpec::Recovered{recovered->watermark};
}

Result<std::shared_ptr<index::PartitionIndex>> SourceRegistry::IndexFor(const Request& request) {
  bool was_empty = false;
  {
    const Lock lock(mutex_);
    was_empty = empty_since_.erase(request.partition) > 0;
    empty_partitions_.store(empty_since_.size(), std::memory_order_relaxed);
  }
  auto index = indexes_.GetOrCreate(request.partition, request.block_size);
  if (!index && was_empty) {
    // The partition's workers are gone, so nothing speaks for the old block size any more.
    indexes_.Remove(request.partition);
    index = indexes_.GetOrCreate(request.partition, request.block_size);
  }
  return index;
}

Result<void> SourceRegistry::Follow(const Held& held) {
  const Request& request = held.request;
  KVR_TRY(const auto index, IndexFor(request));
  const auto snapshot = catalog_.snapshot();
  ingest::SourceSpec spec;
  spec.rank = request.rank;
  spec.source = request.source;
  spec.recovered = Adopt(request.rank, held.registered, *index);
  const bool adopted = spec.recovered.has_value();
  // Each reader of a polled engine numbers its messages itself.
  if (adopted && net::IsPolled(request.source.endpoint)) spec.recovered->watermark.reset();
  auto added = ingest_.Add(std::move(spec), index, snapshot->Find(request.rank)->health);
  if (!added && adopted) {
    index->hybrid->Drop(request.rank);
    index->index->RemoveRank(request.rank);
  }
  return added;
}

void SourceRegistry::Drop(Rank rank) {
  held_.erase(rank);
  ingest_.Remove(rank);
  catalog_.RemoveRank(rank);
}

void SourceRegistry::NoteIfEmpty(const Partition& partition) {
  if (!catalog_.snapshot()->In(partition).empty() || indexes_.Find(partition) == nullptr) return;
  const Lock lock(mutex_);
  empty_since_.emplace(partition, clock_.Now());
  empty_partitions_.store(empty_since_.size(), std::memory_order_relaxed);
}

Result<void> SourceRegistry::Unregister(WorkerId worker, std::string_view model_name,
                                        std::optional<std::string_view> routing_group,
                                        std::optional<std::uint32_t> dp_rank) {
  const Lock change(changes_);
  const auto snapshot = catalog_.snapshot();
  const fleet::Worker* const found = snapshot->Find(worker);
  if (found == nullptr) {
    return Fail(ErrorCode::kNotFound, fmt::format("instance {} not found", Raw(worker)));
  }
  const Partition& partition = found->spec.partition;
  if (partition.model_name != model_name ||
      (routing_group && partition.routing_group != *routing_group)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("instance {} not found for model={} routing_group={}; it is registered "
                            "for model={} routing_group={}",
                            Raw(worker), model_name, routing_group.value_or("(any)"),
                            partition.model_name, partition.routing_group));
  }
  if (dp_rank && found->FindRank(*dp_rank) == nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("instance {} dp_rank {} not found", Raw(worker), *dp_rank));
  }
  for (const fleet::RankEntry& entry : found->ranks) {
    if (!dp_rank || entry.rank.dp_rank == *dp_rank) Drop(entry.rank);
  }
  NoteIfEmpty(partition);
  return {};
}

Result<std::shared_ptr<index::PartitionIndex>> SourceRegistry::FindIndex(
    const Partition& partition) {
  // Relaxed: a partition that turned empty this moment has its grace before it.
  if (empty_partitions_.load(std::memory_order_relaxed) > 0) {
    const Lock lock(mutex_);
    const auto empty = empty_since_.find(partition);
    if (empty != empty_since_.end() && clock_.Now() - empty->second > options_.partition_grace) {
      indexes_.Remove(partition);
      empty_since_.erase(empty);
      empty_partitions_.store(empty_since_.size(), std::memory_order_relaxed);
    }
  }
  if (auto index = indexes_.Find(partition)) return index;
  return Fail(ErrorCode::kNotFound, fmt::format("no indexer for model={} routing_group={}",
                                                partition.model_name, partition.routing_group));
}

}  // namespace kvr::service
