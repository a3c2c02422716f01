#include "index/index_set.h"

#include <fmt/format.h>

#include "base/check.h"
#include "index/sharded_index.h"

namespace kvr::index {

IndexSet::IndexSet(const IndexOptions& options, std::size_t shards)
    : options_(options), shards_(shards) {
  KVR_CHECK(options_.Validate().has_value());
}

Result<std::shared_ptr<PartitionIndex>> IndexSet::GetOrCreate(const Partition& partition,
                                                              std::uint32_t block_size) {
  if (block_size == 0)
    return Fail(ErrorCode::kInvalidArgument, "block_size is 0; it must be at least 1");
  WriteLock lock(mutex_);
  auto& entry = indexes_[partition];
  if (!entry) {
    entry = std::make_shared<PartitionIndex>();
    entry->partition = partition;
    entry->block_size = block_size;
    entry->index = MakeIndex(options_, shards_);
    entry->hybrid = std::make_unique<HybridRanks>(
        SideGroups::Options{.blocks_max = options_.side_blocks_max,
                            .remembered_max = options_.remembered_names_max,
                            .hash_seed = options_.hash_seed});
  } else if (entry->block_size != block_size) {
    return Fail(
        ErrorCode::kAlreadyExists,
        fmt::format("model \"{}\", routing group \"{}\" has block_size {}, not {}; register "
                    "with the same size or remove its workers first",
                    partition.model_name, partition.routing_group, entry->block_size, block_size));
  }
  return entry;
}

std::shared_ptr<PartitionIndex> IndexSet::Find(const Partition& partition) const {
  ReadLock lock(mutex_);
  const auto it = indexes_.find(partition);
  return it == indexes_.end() ? nullptr : it->second;
}

bool IndexSet::Remove(const Partition& partition) {
  std::shared_ptr<PartitionIndex> removed;  // freed after the lock
  WriteLock lock(mutex_);
  const auto it = indexes_.find(partition);
  if (it == indexes_.end()) return false;
  removed = std::move(it->second);
  indexes_.erase(it);
  return true;
}

std::vector<std::shared_ptr<PartitionIndex>> IndexSet::List() const {
  ReadLock lock(mutex_);
  std::vector<std::shared_ptr<PartitionIndex>> all;
  all.reserve(indexes_.size());
  for (const auto& [partition, entry] : indexes_)
    all.push_back(entry);
  return all;
}

std::size_t IndexSet::size() const {
  ReadLock lock(mutex_);
  return indexes_.size();
}

}  // namespace kvr::index
