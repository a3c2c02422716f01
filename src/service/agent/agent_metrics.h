// What an agent counts, rank by rank.
#pragma once

#include <vector>

#include "metrics/registry.h"
#include "service/agent/published_rank.h"

namespace kvr::service {

void CollectPublished(const std::vector<PublishedRank*>& ranks, metrics::SampleSink& sink);

}  // namespace kvr::service
