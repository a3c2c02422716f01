#include "service/gateway/fleet_pages.h"

#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "model/rank_state.h"
#include "service/common_pages.h"
#include "service/optional_field.h"
#include "service/recovery/dump_page.h"
#include "service/rejected_page.h"

namespace kvr::service {
namespace {

using LoadByRank = std::map<Rank, routing::RankLoad>;

void WriteModel(std::string_view id, std::string_view parent, JsonWriter& json) {
  json.BeginObject();
  json.Field("id", id);
  json.Field("object", "model");
  json.Field("created", 0);
  json.Field("owned_by", "kvroute");
  json.Field("root", id);
  json.Key("parent");
  if (parent.empty()) {
    json.Null();
  } else {
    json.Value(parent);
  }
  json.EndObject();
}

void WriteBlocks(const index::RankStats& stats, JsonWriter& json) {
  json.Key("blocks");
  json.BeginObject();
  for (std::size_t tier = 0; tier < kTierCount; ++tier)
    json.Field(kTierNames[tier], stats.blocks[tier]);
  json.Field("pending", stats.pending_blocks);
  json.EndObject();
}

void WriteRank(const fleet::RankEntry& entry, const LoadByRank& loads,
               const index::PartitionIndex* index, JsonWriter& json) {
  const fleet::RankHealth& health = *entry.health;
  const auto status = health.status();
  json.BeginObject();
  json.Field("dp_rank", entry.rank.dp_rank);
  json.Field("state", RankStateName(status.state));
  json.Field("reason", StateReasonName(status.reason));
  json.Field("detail", std::string_view(health.detail()));
  json.Field("connected", health.connected());
  WriteOptional("watermark", health.watermark(), json);
  if (const DigestReading digests = health.digests(); digests.evidence != DigestEvidence::kNone) {
    json.Field("digest_end", DigestEndName(digests.end));
    json.Field("digest_evidence", DigestEvidenceName(digests.evidence));
  }
  const auto load = loads.find(entry.rank);
  const routing::RankLoad idle{entry.rank, 0, 0, 0};
  const routing::RankLoad& now = load == loads.end() ? idle : load->second;
  json.Field("active_requests", now.active_requests);
  json.Field("active_prefill_tokens", now.active_prefill_tokens);
  json.Field("active_blocks", now.active_blocks);
  index::RankStats stats;
  if (index != nullptr) {
    if (const auto slot = index->index->FindRank(entry.rank)) stats = index->index->StatsOf(*slot);
  }
  WriteBlocks(stats, json);
  json.EndObject();
}

// A client that is gone is nobody's error.
net::Task<void> RespondWith(net::HttpExchange& exchange, net::HttpResponse response) {
  const auto sent = co_await exchange.Respond(std::move(response));
  static_cast<void>(sent);
}

net::HttpResponse Ok(std::string body) {
  return net::JsonResponse(200, std::move(body));
}

}  // namespace

void FleetPages::AddRoutes(net::HttpServer& server) {
  server.Route("GET", "/v1/models",
               [this](net::HttpExchange& exchange) { return RespondWith(exchange, Models()); });
  server.RoutePage("/workers", [this](const net::HttpRequest&) { return Workers(); });
  server.RoutePage("/workers/{id}/rejected", [this](const net::HttpRequest& request) {
    return RejectedPage(catalog_, request);
  });
  server.Route("GET", "/ready",
               [this](net::HttpExchange& exchange) { return RespondWith(exchange, Ready()); });
  server.Route("GET", "/health", [](net::HttpExchange& exchange) {
    return RespondWith(exchange, Ok(R"({"status":"ok"})"));
  });
  if (!options_.serve_dump) return;
  server.Route("GET", "/dump",
               [this, &server](net::HttpExchange& exchange) { return Dump(server, exchange); });
}

net::Task<void> FleetPages::Dump(net::HttpServer& server, net::HttpExchange& exchange) const {
  const auto job = StartDump(exchange.request(), indexes_, catalog_, clock_.WallTime());
  if (!job) {
    co_await RespondWith(exchange, net::JsonError(job.error()));
    co_return;
  }
  static_cast<void>(co_await SendDump(server, exchange, *job, options_.instance_name));
}

net::HttpResponse FleetPages::Models() const {
  const auto fleet = catalog_.snapshot();
  std::map<std::string_view, std::string_view> models;  // → parent
  for (const auto& [partition, workers] : fleet->partitions) {
    if (!workers.empty()) models.emplace(partition.model_name, "");
  }
  for (const auto& [adapter, model] : options_.adapters) {
    if (models.contains(model)) models.emplace(adapter, model);
  }
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("object", "list");
  json.Key("data");
  json.BeginArray();
  for (const auto& [id, parent] : models)
    WriteModel(id, parent, json);
  json.EndArray();
  json.EndObject();
  return Ok(std::move(body));
}

net::HttpResponse FleetPages::Workers() const {
  const auto fleet = catalog_.snapshot();
  LoadByRank loads;
  std::map<Partition, std::shared_ptr<index::PartitionIndex>> indexes;
  for (const auto& [partition, workers] : fleet->partitions) {
    for (const auto& load : router_.Loads(partition))
      loads.emplace(load.rank, load);
    indexes.emplace(partition, indexes_.Find(partition));
  }
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("workers");
  json.BeginArray();
  for (const auto& worker : fleet->workers) {
    const fleet::WorkerSpec& spec = worker->spec;
    json.BeginObject();
    json.Field("id", Raw(spec.id));
    json.Field("model", std::string_view(spec.partition.model_name));
    json.Field("routing_group", std::string_view(spec.partition.routing_group));
    json.Field("url", std::string_view(spec.url));
    json.Field("block_size", spec.block_size);
    const auto down = watch_.DownReason(spec.id);
    json.Field("down", down.has_value());
    json.Field("down_reason", std::string_view(down ? *down : std::string()));
    json.Key("ranks");
    json.BeginArray();
    for (const auto& entry : worker->ranks)
      WriteRank(entry, loads, indexes[spec.partition].get(), json);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return Ok(std::move(body));
}

net::HttpResponse FleetPages::Ready() const {
  const auto fleet = catalog_.snapshot();
  const EngineWatch::Reach reach = watch_.ReachOf(*fleet);
  std::vector<std::string> reasons;
  if (warm_ != nullptr) {
    if (std::string reason = warm_->not_ready_reason(); !reason.empty()) {
      reasons.push_back(std::move(reason));
    }
  }
  if (fleet->workers.empty()) {
    reasons.emplace_back("no worker is configured");
  } else if (reach.up == 0 && reach.untried > 0) {
    reasons.emplace_back("no engine has answered yet; they are being asked");
  } else if (reach.up == 0) {
    reasons.emplace_back("no engine could be reached when it was last tried; see /workers");
  }
  if (options_.require_exact && !HasExactRank(*fleet)) {
    reasons.emplace_back("no rank is exact, and require_exact asks for one; see /workers");
  }
  return ReadyPage(fleet->workers.size(), reasons);
}

}  // namespace kvr::service
