// The indexes of a process, one a partition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "index/options.h"
#include "index/prefix_index.h"
#include "index/side_groups.h"
#include "model/ids.h"

namespace kvr::index {

// One partition's index. All ranks of a partition share one block size, because a block hash means
// nothing at another size.
struct PartitionIndex {
  Partition partition;
  std::uint32_t block_size = 0;  // tokens
  std::unique_ptr<PrefixIndex> index;
  std::unique_ptr<HybridRanks> hybrid;  // beside it, what it does not know of hybrid models
};

// Thread-safe. An index lives as long as somebody holds its pointer; after Remove it is only no
// longer found.
class IndexSet {
 public:
  // `options` apply to each index and must be valid. `shards`: see MakeIndex.
  explicit IndexSet(const IndexOptions& options, std::size_t shards = 1);

  // The partition's index, made when there is none. kInvalidArgument when the block size is 0;
  // kAlreadyExists when the index has another one.
  Result<std::shared_ptr<PartitionIndex>> GetOrCreate(const Partition& partition,
                                                      std::uint32_t block_size)
      KVR_EXCLUDES(mutex_);

  // Null when there is none.
  [[nodiscard]] std::shared_ptr<PartitionIndex> Find(const Partition& partition) const
      KVR_EXCLUDES(mutex_);

  // False when there was none.
  bool Remove(const Partition& partition) KVR_EXCLUDES(mutex_);

  // Ordered by partition.
  [[nodiscard]] std::vector<std::shared_ptr<PartitionIndex>> List() const KVR_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t size() const KVR_EXCLUDES(mutex_);

 private:
  const IndexOptions options_;
  const std::size_t shards_;
  mutable SharedMutex mutex_;
  std::map<Partition, std::shared_ptr<PartitionIndex>> indexes_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::index
