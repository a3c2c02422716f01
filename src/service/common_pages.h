// Pages that the indexer and the gateway have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/catalog.h"
#include "metrics/registry.h"
#include "net/http.h"

namespace kvr::service {

// Calls every collector: a page to be made off the threads that serve requests.
net::HttpResponse MetricsPage(const metrics::Registry& registry);

// {"ready":false,"workers":2,"reasons":["..."]}: 503, or 200 when there is no reason against it.
net::HttpResponse ReadyPage(std::size_t workers, const std::vector<std::string>& reasons);

// kvr_build_info{version}: 1.
void AddBuildInfo(metrics::Registry& registry, std::string_view version);

// Whether the picture of any rank is exact.
bool HasExactRank(const fleet::Snapshot& fleet);

}  // namespace kvr::service
