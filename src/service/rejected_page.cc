#include "service/rejected_page.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/hex.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "fleet/rejected_log.h"

namespace kvr::service {
namespace {

// The second segment of "/workers/{id}/rejected".
std::optional<std::uint64_t> WorkerIn(std::string_view path) {
  path.remove_prefix(std::string_view("/workers/").size());
  const std::string_view segment = path.substr(0, path.find('/'));
  return ParseNumber<std::uint64_t>(segment);
}

void WriteEvent(const fleet::RejectedEvent& event, JsonWriter& json) {
  json.BeginObject();
  json.Field("reason", event.reason);
  if (!event.detail.empty()) json.Field("detail", event.detail);
  if (event.sequence) json.Field("sequence", *event.sequence);
  if (event.index) json.Field("index", *event.index);
  if (event.offset) json.Field("offset", *event.offset);
  json.Field("payload_bytes", event.payload_bytes);
  json.Field("received", std::chrono::duration<double>(event.received).count());
  if (!event.bytes.empty()) {
    json.Field("bytes", ToHex(std::as_bytes(std::span(event.bytes))));
  }
  json.EndObject();
}

void WriteRank(const fleet::RankEntry& entry, JsonWriter& json) {
  const auto rejected = entry.health->rejected().contents();
  json.BeginObject();
  json.Field("dp_rank", entry.rank.dp_rank);
  json.Field("total", rejected.total);
  json.Key("by_reason");
  json.BeginObject();
  for (const auto& [reason, count] : rejected.by_reason)
    json.Field(reason, count);
  json.EndObject();
  json.Key("last");
  json.BeginArray();
  for (const fleet::RejectedEvent& event : rejected.last)
    WriteEvent(event, json);
  json.EndArray();
  json.EndObject();
}

}  // namespace

net::HttpResponse RejectedPage(const fleet::Catalog& catalog, const net::HttpRequest& request) {
  const auto id = WorkerIn(request.path());
  if (!id) {
    return net::JsonError(400, "invalid_argument",
                          "the worker in the path is no number; ask /workers for those there are");
  }
  const auto fleet = catalog.snapshot();
  const fleet::Worker* worker = fleet->Find(WorkerId{*id});
  if (worker == nullptr) {
    return net::JsonError(404, "not_found", fmt::format("instance {} not found", *id));
  }
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("instance_id", *id);
  json.Key("ranks");
  json.BeginArray();
  for (const fleet::RankEntry& entry : worker->ranks)
    WriteRank(entry, json);
  json.EndArray();
  json.EndObject();
  return net::JsonResponse(200, std::move(body));
}

}  // namespace kvr::service
