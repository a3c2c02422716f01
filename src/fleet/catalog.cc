#include "fleet/catalog.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace kvr::fleet {
namespace {

std::string PartitionText(const Partition& partition) {
  return fmt::format("model={} routing_group={}", partition.model_name, partition.routing_group);
}

Error AlreadyRegistered(const WorkerSpec& listed) {
  return {ErrorCode::kAlreadyExists, fmt::format("instance {} is already registered for {}",
                                                 Raw(listed.id), PartitionText(listed.partition))};
}

RankEntry MakeEntry(const WorkerSpec& spec, std::uint32_t dp_rank) {
  RankEntry entry{{spec.id, dp_rank}, std::nullopt, std::make_shared<RankHealth>()};
  if (const auto found = spec.events.find(dp_rank); found != spec.events.end()) {
    entry.events = found->second;
  }
  return entry;
}

// The data that all ranks of a worker share.
bool SameWorker(const WorkerSpec& a, const WorkerSpec& b) {
  return a.url == b.url && a.block_size == b.block_size && a.is_eagle == b.is_eagle &&
         a.max_num_batched_tokens == b.max_num_batched_tokens &&
         a.total_kv_blocks == b.total_kv_blocks;
}

auto LowerBound(const std::vector<std::shared_ptr<const Worker>>& workers, WorkerId id) {
  return std::lower_bound(workers.begin(), workers.end(), id,
                          [](const std::shared_ptr<const Worker>& worker, WorkerId key) {
                            return worker->spec.id < key;
                          });
}

}  // namespace

Result<std::vector<std::uint32_t>> DpRange(std::uint32_t start, std::uint32_t size) {
  if (size == 0) {
    return Fail(ErrorCode::kInvalidArgument, "data_parallel_size must be greater than 0");
  }
  if (size - 1 > std::numeric_limits<std::uint32_t>::max() - start) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data_parallel_start_rank {} plus data_parallel_size {} exceeds 2^32",
                            start, size));
  }
  // A size of 2^32 would be a list of 16 GiB; nobody has a worker of even this many ranks.
  constexpr std::uint32_t kSizeMax = 65'536;
  if (size > kSizeMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data_parallel_size must be at most {}, not {}", kSizeMax, size));
  }
  std::vector<std::uint32_t> ranks(size);
  for (std::uint32_t i = 0; i < size; ++i)
    ranks[i] = start + i;
  return ranks;
}

const RankEntry* Worker::FindRank(std::uint32_t dp_rank) const {
  const auto found =
      std::lower_bound(ranks.begin(), ranks.end(), dp_rank,
                       [](const RankEntry& e, std::uint32_t key) { return e.rank.dp_rank < key; });
  return found != ranks.end() && found->rank.dp_rank == dp_rank ? &*found : nullptr;
}

const Worker* Snapshot::Find(WorkerId id) const {
  const auto found = LowerBound(workers, id);
  return found != workers.end() && (*found)->spec.id == id ? found->get() : nullptr;
}

const RankEntry* Snapshot::Find(Rank rank) const {
  const Worker* worker = Find(rank.worker);
  return worker ? worker->FindRank(rank.dp_rank) : nullptr;
}

std::span<const Worker* const> Snapshot::In(const Partition& partition) const {
  const auto found = partitions.find(partition);
  if (found == partitions.end()) return {};
  return found->second;
}

Catalog::Catalog() : Catalog(Options{}) {}

Catalog::Catalog(const Options& options)
    : options_(options), current_(std::make_shared<const Snapshot>()) {}

Result<void> Catalog::Validate(const WorkerSpec& spec) const {
  const auto invalid = [](std::string text) {
    return Fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  const std::pair<const char*, const std::string&> names[] = {
      {"model_name", spec.partition.model_name}, {"routing_group", spec.partition.routing_group}};
  for (const auto& [field, name] : names) {
    if (name.empty()) return invalid(fmt::format("{} must not be empty", field));
    if (name.size() > options_.name_bytes_max) {
      return invalid(
          fmt::format("{} must not be longer than {} bytes", field, options_.name_bytes_max));
    }
    // In JSON it could not be told from others.
    if (!IsUtf8(name)) return invalid(fmt::format("{} must be UTF-8", field));
  }
  if (spec.block_size == 0) return invalid("block_size must be greater than 0");
  if (spec.dp_ranks.empty()) return invalid("data_parallel_size must be greater than 0");
  if (spec.dp_ranks.size() > options_.ranks_per_worker_max) {
    return invalid(fmt::format("data_parallel_size must be at most {}, not {}",
                               options_.ranks_per_worker_max, spec.dp_ranks.size()));
  }
  if (std::adjacent_find(spec.dp_ranks.begin(), spec.dp_ranks.end(), std::greater_equal<>{}) !=
      spec.dp_ranks.end()) {
    return invalid("dp ranks must be ascending and without repeats");
  }
  for (const auto& source : spec.events) {
    if (!std::binary_search(spec.dp_ranks.begin(), spec.dp_ranks.end(), source.first)) {
      return invalid(fmt::format(
          "kv_events endpoint for dp_rank {}, which the worker does not have", source.first));
    }
  }
  return {};
}

Result<void> Catalog::CheckNeighbours(const WorkerSpec& spec) const {
  for (const Worker* other : current_->In(spec.partition)) {
    if (other->spec.block_size != spec.block_size) {
      return Fail(
          ErrorCode::kAlreadyExists,
          fmt::format("block_size mismatch for {}: existing={}, requested={}",
                      PartitionText(spec.partition), other->spec.block_size, spec.block_size));
    }
    if (other->spec.is_eagle != spec.is_eagle) {
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("is_eagle mismatch for {}: existing={}, requested={}",
                              PartitionText(spec.partition), other->spec.is_eagle, spec.is_eagle));
    }
  }
  if (!current_->Find(spec.id) && current_->workers.size() >= options_.workers_max) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} workers are registered, which is the limit", options_.workers_max));
  }
  return {};
}

Result<bool> Catalog::Add(WorkerSpec spec) {
  KVR_TRY_VOID(Validate(spec));
  const Lock lock(mutex_);
  if (const Worker* listed = current_->Find(spec.id)) {
    if (listed->spec == spec) return false;
    return tl::make_unexpected(AlreadyRegistered(listed->spec));
  }
  KVR_TRY_VOID(CheckNeighbours(spec));
  Worker worker;
  for (const std::uint32_t dp_rank : spec.dp_ranks)
    worker.ranks.push_back(MakeEntry(spec, dp_rank));
  worker.spec = std::move(spec);
  Put(std::move(worker));
  return true;
}

Result<bool> Catalog::AddRank(WorkerSpec spec) {
  KVR_TRY_VOID(Validate(spec));
  if (spec.dp_ranks.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument, "exactly one dp_rank can be added at a time");
  }
  const std::uint32_t dp_rank = spec.dp_ranks.front();
  const Lock lock(mutex_);
  const Worker* listed = current_->Find(spec.id);
  if (listed && listed->spec.partition != spec.partition) {
    return tl::make_unexpected(AlreadyRegistered(listed->spec));
  }
  KVR_TRY_VOID(CheckNeighbours(spec));
  Worker worker;
  if (listed) {
    RankEntry wanted = MakeEntry(spec, dp_rank);
    const RankEntry* entry = listed->FindRank(dp_rank);
    if (entry && entry->events == wanted.events && SameWorker(listed->spec, spec)) return false;
    if (entry) {
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("instance {} dp_rank {} already registered", Raw(spec.id), dp_rank));
    }
    if (!SameWorker(listed->spec, spec))
      return tl::make_unexpected(AlreadyRegistered(listed->spec));
    if (listed->ranks.size() >= options_.ranks_per_worker_max) {
      return Fail(ErrorCode::kOverloaded,
                  fmt::format("instance {} has {} ranks, which is the limit", Raw(spec.id),
                              listed->ranks.size()));
    }
    worker = *listed;
    const auto at =
        std::lower_bound(worker.spec.dp_ranks.begin(), worker.spec.dp_ranks.end(), dp_rank) -
        worker.spec.dp_ranks.begin();
    worker.spec.dp_ranks.insert(worker.spec.dp_ranks.begin() + at, dp_rank);
    worker.spec.events.merge(spec.events);
    worker.ranks.insert(worker.ranks.begin() + at, std::move(wanted));
  } else {
    worker.ranks.push_back(MakeEntry(spec, dp_rank));
    worker.spec = std::move(spec);
  }
  Put(std::move(worker));
  return true;
}

bool Catalog::Remove(WorkerId id) {
  const Lock lock(mutex_);
  auto workers = current_->workers;
  const auto found = LowerBound(workers, id);
  if (found == workers.end() || (*found)->spec.id != id) return false;
  workers.erase(found);
  Publish(std::move(workers));
  return true;
}

bool Catalog::RemoveRank(Rank rank) {
  const Lock lock(mutex_);
  const Worker* listed = current_->Find(rank.worker);
  if (!listed || !listed->FindRank(rank.dp_rank)) return false;
  if (listed->ranks.size() == 1) {
    auto workers = current_->workers;
    workers.erase(LowerBound(workers, rank.worker));
    Publish(std::move(workers));
    return true;
  }
  Worker worker = *listed;
  std::erase(worker.spec.dp_ranks, rank.dp_rank);
  worker.spec.events.erase(rank.dp_rank);
  std::erase_if(worker.ranks, [&](const RankEntry& entry) { return entry.rank == rank; });
  Put(std::move(worker));
  return true;
}

std::shared_ptr<const Snapshot> Catalog::snapshot() const {
  const Lock lock(mutex_);
  return current_;
}

void Catalog::Put(Worker worker) {
  auto workers = current_->workers;
  const auto at = LowerBound(workers, worker.spec.id) - workers.begin();
  const bool listed = static_cast<std::size_t>(at) < workers.size() &&
                      workers[static_cast<std::size_t>(at)]->spec.id == worker.spec.id;
  auto shared = std::make_shared<const Worker>(std::move(worker));
  if (listed) {
    workers[static_cast<std::size_t>(at)] = std::move(shared);
  } else {
    workers.insert(workers.begin() + at, std::move(shared));
  }
  Publish(std::move(workers));
}

void Catalog::Publish(std::vector<std::shared_ptr<const Worker>> workers) {
  auto next = std::make_shared<Snapshot>();
  next->version = current_->version + 1;
  next->workers = std::move(workers);
  for (const auto& worker : next->workers)
    next->partitions[worker->spec.partition].push_back(worker.get());
  current_ = std::move(next);
}

}  // namespace kvr::fleet
