#include "service/indexer/source_registry.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "net/event_endpoint.h"

namespace kvr::service {
namespace {

constexpr auto kNever = std::numeric_limits<Nanos::rep>::max();

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

bool IsOneStream(const fleet::EventSource& a, const fleet::EventSource& b) {
  return a.endpoint == b.endpoint && (a.topic == b.topic || net::IsPolled(a.endpoint));
}

// Two readings of one stream would each apply all of it.
Result<void> CheckReading(const SourceRegistry::Request& request, const fleet::Snapshot& fleet) {
  const fleet::Worker* const worker = fleet.Find(request.rank.worker);
  if (worker == nullptr) return {};
  for (const fleet::RankEntry& entry : worker->ranks) {
    if (entry.rank == request.rank || !entry.events || *entry.events == request.source) continue;
    if (!IsOneStream(*entry.events, request.source)) continue;
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("instance {} dp_rank {} is registered with `{}`, too, but with another "
                            "replay endpoint, topic, engine, media or placeholder id; ranks that "
                            "share a stream are registered alike",
                            Raw(entry.rank.worker), entry.rank.dp_rank, request.source.endpoint));
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
                               StreamStart& streams, const Clock& clock, const Options& options)
    : catalog_(catalog),
      indexes_(indexes),
      streams_(streams),
      clock_(clock),
      options_(options),
      next_expiry_(kNever) {}

Result<bool> SourceRegistry::Register(const Request& request) {
  KVR_TRY_VOID(CheckEndpoints(request.source));
  const Lock change(changes_);
  RemoveExpired();
  KVR_TRY_VOID(CheckReading(request, *catalog_.snapshot()));
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
  if (auto followed = Follow(request); !followed) {
    catalog_.RemoveRank(request.rank);
    NoteIfEmpty(request.partition);
    return tl::make_unexpected(std::move(followed).error());
  }
  return true;
}

void SourceRegistry::Withdraw(Rank rank, const Error& why) {
  const Lock change(changes_);
  KVR_ERROR("instance {} dp_rank {} is unregistered again: {}", Raw(rank.worker), rank.dp_rank,
            why.message);
  const auto snapshot = catalog_.snapshot();
  const fleet::Worker* const worker = snapshot->Find(rank.worker);
  if (worker == nullptr || !catalog_.RemoveRank(rank)) return;
  NoteIfEmpty(worker->spec.partition);
}

Result<std::shared_ptr<index::PartitionIndex>> SourceRegistry::IndexFor(const Request& request) {
  bool was_empty = false;
  {
    const Lock lock(mutex_);
    was_empty = empty_since_.erase(request.partition) > 0;
  }
  auto index = indexes_.GetOrCreate(request.partition, request.block_size);
  if (!index && was_empty) {
    // The partition's workers are gone, so nothing speaks for the old block size any more.
    indexes_.Remove(request.partition);
    index = indexes_.GetOrCreate(request.partition, request.block_size);
  }
  return index;
}

Result<void> SourceRegistry::Follow(const Request& request) {
  KVR_TRY(auto index, IndexFor(request));
  const auto snapshot = catalog_.snapshot();
  ingest::SourceSpec spec;
  spec.rank = request.rank;
  spec.source = request.source;
  return streams_.Add(std::move(spec), std::move(index), snapshot->Find(request.rank)->health);
}

void SourceRegistry::Drop(Rank rank) {
  streams_.Remove(rank);
  catalog_.RemoveRank(rank);
}

void SourceRegistry::NoteIfEmpty(const Partition& partition) {
  if (!catalog_.snapshot()->In(partition).empty() || indexes_.Find(partition) == nullptr) return;
  const Lock lock(mutex_);
  const Nanos now = clock_.Now();
  empty_since_.emplace(partition, now);
  const Nanos::rep expiry = (now + options_.partition_grace).count();
  next_expiry_.store(std::min(next_expiry_.load(std::memory_order_relaxed), expiry),
                     std::memory_order_relaxed);
}

Result<void> SourceRegistry::Unregister(WorkerId worker, std::string_view model_name,
                                        std::optional<std::string_view> routing_group,
                                        std::optional<std::uint32_t> dp_rank) {
  const Lock change(changes_);
  RemoveExpired();
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
  RemoveExpired();
  if (auto index = indexes_.Find(partition)) return index;
  return Fail(ErrorCode::kNotFound, fmt::format("no indexer for model={} routing_group={}",
                                                partition.model_name, partition.routing_group));
}

void SourceRegistry::RemoveExpired() {
  // Relaxed: a partition that turned empty this moment has its grace before it.
  const Nanos::rep due = next_expiry_.load(std::memory_order_relaxed);
  if (due == kNever) return;  // without a look at the clock
  const Nanos now = clock_.Now();
  if (now.count() <= due) return;
  const Lock lock(mutex_);
  Nanos::rep next = kNever;
  for (auto empty = empty_since_.begin(); empty != empty_since_.end();) {
    const Nanos expiry = empty->second + options_.partition_grace;
    if (now > expiry) {
      indexes_.Remove(empty->first);
      empty = empty_since_.erase(empty);
    } else {
      next = std::min(next, expiry.count());
      ++empty;
    }
  }
  next_expiry_.store(next, std::memory_order_relaxed);
}

}  // namespace kvr::service
