#include "service/indexer/answers.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "model/rank_state.h"

namespace kvr::service {
namespace {

std::string Number(std::uint64_t value) {
  return fmt::format("{}", value);
}

// What a worker holds of one request, in tokens; the best of its ranks per figure.
struct InstanceOverlap {
  std::map<std::uint32_t, std::uint64_t> device;  // by dp rank
  std::uint64_t gpu = 0;
  std::uint64_t cpu = 0;
  std::uint64_t disk = 0;
};

void Add(InstanceOverlap& instance, const RankOverlap& overlap, std::uint32_t block_size) {
  const auto tokens = [block_size](std::uint64_t blocks) { return blocks * block_size; };
  const std::uint64_t device = overlap.blocks[0];
  const std::uint64_t host = device + overlap.blocks[1];
  instance.device[overlap.rank.dp_rank] = tokens(device);
  instance.gpu = std::max(instance.gpu, tokens(device));
  instance.cpu = std::max(instance.cpu, tokens(host));
  instance.disk = std::max(instance.disk, tokens(overlap.depth()));
}

void WriteInstance(JsonWriter& json, const InstanceOverlap& instance) {
  json.BeginObject();
  json.Field("longest_matched", instance.disk);
  json.Field("gpu", instance.gpu);
  json.Key("dp");
  json.BeginObject();
  for (const auto& [dp_rank, tokens] : instance.device)
    json.Field(Number(dp_rank), tokens);
  json.EndObject();
  json.Field("cpu", instance.cpu);
  json.Field("disk", instance.disk);
  json.EndObject();
}

void WriteNotExact(JsonWriter& json, std::span<const fleet::Worker* const> workers) {
  bool open = false;
  for (const fleet::Worker* worker : workers) {
    for (const fleet::RankEntry& entry : worker->ranks) {
      const auto status = entry.health->status();
      if (status.state == RankState::kExact) continue;
      if (!open) {
        json.Key("not_exact");
        json.BeginArray();
        open = true;
      }
      json.BeginObject();
      json.Field("instance_id", Raw(entry.rank.worker));
      json.Field("dp_rank", entry.rank.dp_rank);
      json.Field("state", RankStateName(status.state));
      json.Field("reason", StateReasonName(status.reason));
      json.EndObject();
    }
  }
  if (open) json.EndArray();
}

// What ranks with side groups can reuse of what they hold, in tokens; nothing when there are none.
void WriteHybrid(JsonWriter& json, const OverlapScores& scores, std::uint32_t block_size,
                 const index::HybridRanks& hybrid) {
  std::map<std::uint64_t, std::map<std::uint32_t, std::uint64_t>> hits;
  for (const RankSlot slot : scores.scored()) {
    const RankOverlap& overlap = scores.at(slot);
    const auto blocks = hybrid.HitOf(overlap, overlap.depth());
    if (!blocks) continue;
    hits[Raw(overlap.rank.worker)][overlap.rank.dp_rank] = std::uint64_t{*blocks} * block_size;
  }
  if (hits.empty()) return;
  json.Key("hybrid");
  json.BeginObject();
  for (const auto& [id, ranks] : hits) {
    json.Key(Number(id));
    json.BeginObject();
    for (const auto& [dp_rank, tokens] : ranks)
      json.Field(Number(dp_rank), tokens);
    json.EndObject();
  }
  json.EndObject();
}

void WriteListener(JsonWriter& json, const fleet::RankEntry& entry, Nanos now) {
  const fleet::RankHealth& health = *entry.health;
  const auto status = health.status();
  json.BeginObject();
  json.Field("endpoint", entry.events ? entry.events->endpoint : std::string());
  if (entry.events && entry.events->replay_endpoint) {
    json.Field("replay_endpoint", *entry.events->replay_endpoint);
  }
  json.Field("status", ListenerStatus(entry));
  json.Field("state", RankStateName(status.state));
  json.Field("reason", StateReasonName(status.reason));
  if (const std::string detail = health.detail(); !detail.empty()) {
    json.Field("detail", detail);
    if (status.reason == StateReason::kRefused) json.Field("last_error", detail);
  }
  json.Field("connected", health.connected());
  if (const auto watermark = health.watermark()) json.Field("watermark", *watermark);
  if (const DigestReading digests = health.digests(); digests.evidence != DigestEvidence::kNone) {
    json.Field("digest_end", DigestEndName(digests.end));
    json.Field("digest_evidence", DigestEvidenceName(digests.evidence));
  }
  if (health.last_message_at() > Nanos{0}) {
    json.Field("last_message_seconds_ago",
               std::chrono::duration<double>(now - health.last_message_at()).count());
  }
  json.Key("counts");
  json.BeginObject();
  for (std::size_t i = 0; i < fleet::kRankCountNames.size(); ++i) {
    const std::uint64_t count = health.count(static_cast<fleet::RankCount>(i));
    if (count > 0) json.Field(fleet::kRankCountNames[i], count);
  }
  json.EndObject();
  json.EndObject();
}

// How bad a listener's status is; a worker's status is the worst of its listeners.
int Severity(std::string_view status) {
  if (status == "failed") return 2;
  return status == "active" ? 0 : 1;
}

void WriteWorker(JsonWriter& json, const fleet::Worker& worker, Nanos now) {
  std::string_view status = "active";
  for (const fleet::RankEntry& entry : worker.ranks) {
    if (Severity(ListenerStatus(entry)) > Severity(status)) status = ListenerStatus(entry);
  }
  json.BeginObject();
  json.Field("instance_id", Raw(worker.spec.id));
  json.Field("source", "zmq");
  json.Field("status", status);
  json.Field("model_name", worker.spec.partition.model_name);
  json.Field("routing_group", worker.spec.partition.routing_group);
  json.Field("block_size", worker.spec.block_size);
  json.Key("endpoints");
  json.BeginObject();
  for (const fleet::RankEntry& entry : worker.ranks) {
    if (entry.events) json.Field(Number(entry.rank.dp_rank), entry.events->endpoint);
  }
  json.EndObject();
  json.Key("listeners");
  json.BeginObject();
  for (const fleet::RankEntry& entry : worker.ranks) {
    json.Key(Number(entry.rank.dp_rank));
    WriteListener(json, entry, now);
  }
  json.EndObject();
  json.EndObject();
}

}  // namespace

std::string_view ListenerStatus(const fleet::RankEntry& entry) {
  if (entry.health->status().reason == StateReason::kRefused) return "failed";
  return entry.health->connected() ? "active" : "connecting";
}

std::string QueryAnswer(const OverlapScores& scores, std::uint32_t block_size,
                        std::span<const fleet::Worker* const> workers,
                        const QueryAnswerOptions& options) {
  std::map<std::uint64_t, InstanceOverlap> instances;
  if (options.include_zero) {
    for (const fleet::Worker* worker : workers) {
      for (const fleet::RankEntry& entry : worker->ranks) {
        instances[Raw(worker->spec.id)].device[entry.rank.dp_rank] = 0;
      }
    }
  }
  for (const RankSlot slot : scores.scored()) {
    const RankOverlap& overlap = scores.at(slot);
    Add(instances[Raw(overlap.rank.worker)], overlap, block_size);
  }

  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("scores");
  json.BeginObject();
  for (const auto& [id, instance] : instances) {
    if (instance.gpu == 0 && !options.include_zero) continue;
    json.Key(Number(id));
    json.BeginObject();
    for (const auto& [dp_rank, tokens] : instance.device) {
      if (tokens > 0 || options.include_zero) json.Field(Number(dp_rank), tokens);
    }
    json.EndObject();
  }
  json.EndObject();
  json.Key("frequencies");
  json.Numbers(scores.device_holders());
  json.Key("instances");
  json.BeginObject();
  for (const auto& [id, instance] : instances) {
    json.Key(Number(id));
    WriteInstance(json, instance);
  }
  json.EndObject();
  if (options.hybrid != nullptr && !options.hybrid->empty()) {
    WriteHybrid(json, scores, block_size, *options.hybrid);
  }
  WriteNotExact(json, workers);
  json.EndObject();
  return out;
}

std::string WorkersAnswer(std::span<const fleet::Worker* const> workers, Nanos now) {
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  for (const fleet::Worker* worker : workers)
    WriteWorker(json, *worker, now);
  json.EndArray();
  return out;
}

}  // namespace kvr::service
