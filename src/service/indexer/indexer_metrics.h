// The gauges and counters of the indexer that are read at each scrape.
#pragma once

#include <map>
#include <string_view>

#include "fleet/catalog.h"
#include "metrics/registry.h"
#include "service/indexer/source_registry.h"

namespace kvr::service {

// How many listeners are in each state; every state is there.
std::map<std::string_view, int> ListenersByStatus(const fleet::Snapshot& fleet);

// What a scrape is told about the workers, the indexes and what peers knew.
void CollectIndexer(const SourceRegistry& sources, metrics::SampleSink& sink);

}  // namespace kvr::service
