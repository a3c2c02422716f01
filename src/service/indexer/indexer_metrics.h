// The gauges and counters of the indexer that are read at each scrape.
#pragma once

#include "metrics/registry.h"
#include "service/indexer/source_registry.h"

namespace kvr::service {

// What a scrape is told about the workers, the indexes and what peers knew.
void CollectIndexer(const SourceRegistry& sources, metrics::SampleSink& sink);

}  // namespace kvr::service
