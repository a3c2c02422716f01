// A sharded index that tests can make as they make any other.
#pragma once

#include "index/sharded_index.h"

namespace kvr::index {

struct ThreeShards final : ShardedIndex {
  explicit ThreeShards(const IndexOptions& options) : ShardedIndex(options, 3) {}
};

}  // namespace kvr::index
