// What a scrape is told about the indexes of a process: kvr_index_*.
#pragma once

#include "index/index_set.h"
#include "metrics/registry.h"

namespace kvr::service {

// One sample a partition and name; labels model and routing_group.
void CollectIndexes(const index::IndexSet& indexes, metrics::SampleSink& sink);

}  // namespace kvr::service
