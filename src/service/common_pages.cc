#include "service/common_pages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json_writer.h"
#include "model/rank_state.h"

namespace kvr::service {

net::HttpResponse MetricsPage(const metrics::Registry& registry) {
  net::HttpResponse response;
  response.headers.Add("Content-Type", metrics::kTextContentType);
  registry.WriteText(response.body);
  return response;
}

net::HttpResponse ReadyPage(std::size_t workers, const std::vector<std::string>& reasons) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("ready", reasons.empty());
  json.Field("workers", workers);
  json.Key("reasons");
  json.BeginArray();
  for (const auto& reason : reasons)
    json.Value(std::string_view(reason));
  json.EndArray();
  json.EndObject();
  return net::JsonResponse(reasons.empty() ? 200 : 503, std::move(body));
}

void AddBuildInfo(metrics::Registry& registry, std::string_view version) {
  registry
      .AddGauge("kvr_build_info", "Always 1; the labels say what is running",
                {{"version", std::string(version)}})
      .Set(1);
}

bool HasExactRank(const fleet::Snapshot& fleet) {
  return std::any_of(fleet.workers.begin(), fleet.workers.end(), [](const auto& worker) {
    return std::any_of(worker->ranks.begin(), worker->ranks.end(), [](const auto& entry) {
      return entry.health->status().state == RankState::kExact;
    });
  });
}

}  // namespace kvr::service
