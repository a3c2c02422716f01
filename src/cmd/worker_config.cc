#include "cmd/worker_config.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "net/event_endpoint.h"
#include "net/http.h"

namespace kvr::cmd {
namespace {

using config::Node;

constexpr std::uint32_t kRanksMax = 4'096;

// One endpoint a rank, in the order of the ranks; fewer than ranks when the stream is shared.
Result<std::vector<std::string>> ReadEndpoints(const Node* node,
                                               const std::vector<std::uint32_t>& ranks) {
  std::vector<std::string> endpoints;
  if (node == nullptr) return endpoints;
  if (node->kind == Node::Kind::kList) {
    KVR_TRY(endpoints, config::AsStrings(*node));
    if (endpoints.size() != ranks.size() && endpoints.size() != 1) {
      return config::FailAt(*node, fmt::format("names {} endpoints for {} ranks; give one a rank, "
                                               "one that they share, or no list",
                                               endpoints.size(), ranks.size()));
    }
  } else {
    KVR_TRY(const std::string first, config::AsString(*node));
    if (net::IsPolled(first)) {  // one list for all ranks
      if (const auto ok = net::CheckEventEndpoint(first); !ok) {
        return config::FailAt(*node, ok.error().message);
      }
      return std::vector<std::string>{first};
    }
    for (const std::uint32_t rank : ranks) {
      // Only a rank beyond 0 needs a port that can be added to.
      const auto endpoint = rank == 0 ? first : EndpointOfRank(first, rank);
      if (!endpoint) {
        return config::FailAt(*node, fmt::format("`{}` has no port to which rank {} can be added; "
                                                 "list the endpoints",
                                                 first, rank));
      }
      endpoints.push_back(*endpoint);
    }
  }
  for (const auto& endpoint : endpoints) {
    if (const auto ok = net::CheckEventEndpoint(endpoint); !ok) {
      return config::FailAt(*node, ok.error().message);
    }
  }
  return endpoints;
}

// One socket serves either the events or the replay of one rank.
Result<void> CheckDistinct(const Node& node, const std::vector<std::uint32_t>& ranks,
                           const std::vector<std::string>& events,
                           const std::vector<std::string>& replay) {
  std::map<std::string_view, std::string> uses;  // by endpoint
  const auto add = [&](const std::vector<std::string>& endpoints,
                       std::string_view what) -> Result<void> {
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      const std::string use = fmt::format("{} of rank {}", what, ranks[i]);
      const auto [first, is_new] = uses.emplace(endpoints[i], use);
      if (is_new) continue;
      return config::FailAt(
          node, fmt::format("`{}` is both {} and {}; rank r adds r to the port, so leave as many "
                            "ports free as there are ranks",
                            endpoints[i], first->second, use));
    }
    return {};
  };
  KVR_TRY_VOID(add(events, "`events`"));
  return add(replay, "`replay`");
}

// What the events themselves do not say of the engine.
Result<fleet::EventSource> ReadDialect(config::Fields& fields) {
  fleet::EventSource source;
  if (const Node* engine = fields.Raw("engine")) {
    KVR_TRY(const std::string name, config::AsString(*engine));
    const auto kind = fleet::EngineKindFromName(name);
    if (!kind) return config::FailAt(*engine, "must be vllm, sglang, trtllm or unknown");
    source.engine = *kind;
  }
  if (const Node* media = fields.Raw("media")) {
    KVR_TRY(const std::string name, config::AsString(*media));
    if (name != "strict" && name != "lenient") {
      return config::FailAt(*media, "must be strict or lenient");
    }
    source.lenient_media = name == "lenient";
  }
  return source;
}

Result<void> ReadEvents(const Node& node, config::Fields& fields, WorkerConfig& worker) {
  const Node* events_node = fields.Raw("events");
  const Node* replay_node = fields.Raw("replay");
  std::string topic;
  fields.Optional("topic", topic);
  KVR_TRY(const auto dialect, ReadDialect(fields));
  const auto& ranks = worker.spec.dp_ranks;
  KVR_TRY(const auto events, ReadEndpoints(events_node, ranks));
  KVR_TRY(const auto replay, ReadEndpoints(replay_node, ranks));
  if (!replay.empty() && replay.size() != events.size()) {
    return config::FailAt(node, "needs as many `replay` endpoints as `events` endpoints");
  }
  KVR_TRY_VOID(CheckDistinct(node, ranks, events, replay));
  for (std::size_t i = 0; i < events.size(); ++i) {
    fleet::EventSource source = dialect;
    source.endpoint = events[i];
    source.topic = topic;
    if (!replay.empty()) source.replay_endpoint = replay[i];
    worker.spec.events.emplace(ranks[i], std::move(source));
  }
  worker.share_stream = !events.empty() && events.size() < ranks.size();
  return {};
}

void ReadLimit(config::Fields& fields, std::string_view key, std::optional<std::uint64_t>& out) {
  std::uint64_t value = 0;
  fields.Optional(key, value, std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max());
  if (value > 0) out = value;
}

// `text` as a tree, so that it is read like a file.
Result<Node> ParseFlag(std::string_view text) {
  Node map;
  map.kind = Node::Kind::kMap;
  map.where = "--worker";
  for (const std::string_view pair : Split(text, ',')) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--worker: `{}` is not KEY=VALUE", pair));
    }
    std::string key(pair.substr(0, equals));
    std::replace(key.begin(), key.end(), '-', '_');
    if (map.Find(key) != nullptr) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("--worker: `{}` is given twice", key));
    }
    Node value;
    value.kind = Node::Kind::kScalar;
    value.where = "--worker";
    value.path = key;
    value.text = pair.substr(equals + 1);
    // The '+' of a polled endpoint's scheme joins nothing.
    if (value.text.find('+') != std::string::npos && !net::IsPolled(value.text)) {
      Node list = value;
      list.kind = Node::Kind::kList;
      for (const std::string_view item_text : Split(value.text, '+')) {
        Node item = value;
        item.text = item_text;
        list.items.push_back(std::move(item));
      }
      value = std::move(list);
    }
    map.fields.push_back({std::move(key), "--worker", std::move(value)});
  }
  return map;
}

}  // namespace

std::optional<std::string> EndpointOfRank(const std::string& endpoint, std::uint32_t rank) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto port = ParseNumber<std::uint64_t>(std::string_view(endpoint).substr(colon + 1));
  if (!port || *port + rank > 65'535) return std::nullopt;
  return endpoint.substr(0, colon + 1) + std::to_string(*port + rank);
}

const std::string_view kWorkersExample =
    R"(workers:
  - id: 1
    url: http://10.0.0.1:8000
    model: llama                     # as clients name it
    block_size: 16                   # tokens, as the engine was started
    routing_group: default           # engines of one model apart, default `default`
    dp_size: 2                       # data-parallel ranks, default 1
    dp_start: 0                      # the first one, default 0
    events: tcp://10.0.0.1:5557      # rank r on port 5557 + r; or a list, one a rank or one
                                     # of all; or trtllm+http://10.0.0.1:8000, which is asked
    replay: tcp://10.0.0.1:5657      # the same; without it what is lost stays lost
    topic: kv-events                 # if the engine's kv-events-config has one: only messages
                                     # whose topic starts so; default all
    engine: sglang                   # vllm, sglang, trtllm: how digests become numbers
    media: lenient                   # take the tier names of more producers, default strict
    adapters: [sql, poems]           # LoRA adapters, default none
    max_num_batched_tokens: 8192     # tokens of one pass; default not known
    total_kv_blocks: 4000            # of one rank, see routing.approximate_by_capacity
    eagle: false                     # speculative decoding with EAGLE, default false
  - {id: 2, url: "http://10.0.0.2:8000", model: llama, block_size: 16}
)";

Result<WorkerConfig> ReadWorker(const Node& node) {
  WorkerConfig worker;
  fleet::WorkerSpec& spec = worker.spec;
  config::Fields fields(node);
  std::uint64_t id = 0;
  std::uint32_t dp_size = 1;
  std::uint32_t dp_start = 0;
  fields.Required("id", id);
  fields.Required("url", spec.url);
  fields.Required("model", spec.partition.model_name);
  fields.Required("block_size", spec.block_size, 1u, std::numeric_limits<std::uint32_t>::max());
  fields.Optional("routing_group", spec.partition.routing_group);
  fields.Optional("dp_size", dp_size, 1u, kRanksMax);
  fields.Optional("dp_start", dp_start);
  fields.Optional("eagle", spec.is_eagle);
  ReadLimit(fields, "max_num_batched_tokens", spec.max_num_batched_tokens);
  ReadLimit(fields, "total_kv_blocks", spec.total_kv_blocks);
  if (const Node* adapters = fields.Raw("adapters")) {
    if (adapters->kind == Node::Kind::kList) {
      KVR_TRY(worker.adapters, config::AsStrings(*adapters));
    } else {
      KVR_TRY(std::string adapter, config::AsString(*adapters));
      worker.adapters.push_back(std::move(adapter));
    }
  }
  spec.id = WorkerId{id};
  KVR_TRY(spec.dp_ranks, fleet::DpRange(dp_start, dp_size));
  KVR_TRY_VOID(ReadEvents(node, fields, worker));
  KVR_TRY_VOID(fields.Done());
  if (const auto url = net::ParseOpenAiUrl(spec.url); !url) {
    return config::FailAt(*node.Find("url"), url.error().message);
  }
  return worker;
}

Result<std::vector<WorkerConfig>> ReadWorkers(const Node* list) {
  std::vector<WorkerConfig> workers;
  if (list == nullptr || list->kind == Node::Kind::kNull) return workers;
  if (list->kind != Node::Kind::kList)
    return config::FailAt(*list, "must be a list: begin each worker with `- id:`");
  for (const Node& item : list->items) {
    KVR_TRY(WorkerConfig worker, ReadWorker(item));
    workers.push_back(std::move(worker));
  }
  return workers;
}

namespace {

void WriteTexts(std::string_view key, const std::vector<std::string>& texts, JsonWriter& json) {
  if (texts.empty()) return;
  json.Key(key);
  json.BeginArray();
  for (const std::string& text : texts)
    json.Value(std::string_view(text));
  json.EndArray();
}

void WriteEvents(const WorkerConfig& worker, JsonWriter& json) {
  std::vector<std::string> events;
  std::vector<std::string> replay;
  for (const auto& entry : worker.spec.events) {
    events.push_back(entry.second.endpoint);
    if (entry.second.replay_endpoint) replay.push_back(*entry.second.replay_endpoint);
  }
  WriteTexts("events", events, json);
  WriteTexts("replay", replay, json);
  if (worker.spec.events.empty()) return;
  const fleet::EventSource& source = worker.spec.events.begin()->second;
  if (!source.topic.empty()) json.Field("topic", std::string_view(source.topic));
  json.Field("engine", fleet::kEngineKindNames[static_cast<std::size_t>(source.engine)]);
  json.Field("media", source.lenient_media ? "lenient" : "strict");
}

}  // namespace

std::string WorkersJson(const std::vector<WorkerConfig>& workers) {
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  for (const WorkerConfig& worker : workers) {
    const fleet::WorkerSpec& spec = worker.spec;
    json.BeginObject();
    json.Field("id", Raw(spec.id));
    json.Field("url", std::string_view(spec.url));
    json.Field("model", std::string_view(spec.partition.model_name));
    json.Field("block_size", spec.block_size);
    json.Field("routing_group", std::string_view(spec.partition.routing_group));
    json.Field("dp_size", spec.dp_ranks.size());
    json.Field("dp_start", spec.dp_ranks.front());
    WriteEvents(worker, json);
    WriteTexts("adapters", worker.adapters, json);
    if (spec.max_num_batched_tokens) {
      json.Field("max_num_batched_tokens", *spec.max_num_batched_tokens);
    }
    if (spec.total_kv_blocks) json.Field("total_kv_blocks", *spec.total_kv_blocks);
    json.Field("eagle", spec.is_eagle);
    json.EndObject();
  }
  json.EndArray();
  return out;
}

Result<WorkerConfig> ReadWorkerFlag(std::string_view text) {
  KVR_TRY(const Node node, ParseFlag(text));
  return ReadWorker(node);
}

Result<std::vector<WorkerConfig>> ReadAllWorkers(const config::Node* list,
                                                 const std::vector<std::string>& flags) {
  KVR_TRY(auto workers, ReadWorkers(list));
  for (const std::string& text : flags) {
    KVR_TRY(auto worker, ReadWorkerFlag(text));
    workers.push_back(std::move(worker));
  }
  return workers;
}

}  // namespace kvr::cmd
