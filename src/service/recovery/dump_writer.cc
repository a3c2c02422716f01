#include "service/recovery/dump_writer.h"

#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "index/rank_copy.h"
#include "model/placement_event.h"
#include "model/rank_state.h"
#include "model/tier.h"

namespace kvr::service {
namespace {

// "model:group", as the reference names it. Its readers split at the first colon, so those of the
// model are written as %3A; this also keeps the keys of two partitions apart.
std::string DumpKey(const Partition& partition) {
  std::string key;
  for (const char c : partition.model_name) {
    if (c == ':') {
      key += "%3A";
    } else if (c == '%') {
      key += "%25";
    } else {
      key += c;
    }
  }
  return key + ':' + partition.routing_group;
}

// {"worker":{"dp_rank":value}} with what `write` writes for each rank.
template <typename Write>
void WriteByRank(JsonWriter& json, std::span<const fleet::Worker* const> workers,
                 const Write& write) {
  json.BeginObject();
  for (const fleet::Worker* worker : workers) {
    json.Key(fmt::to_string(Raw(worker->spec.id)));
    json.BeginObject();
    for (const fleet::RankEntry& entry : worker->ranks)
      write(fmt::to_string(entry.rank.dp_rank), entry);
    json.EndObject();
  }
  json.EndObject();
}

// The head of a partition, inside an object that is already open.
void WriteHead(JsonWriter& json, const index::PartitionIndex& partition,
               std::span<const fleet::Worker* const> workers) {
  json.Field("model_name", partition.partition.model_name);
  json.Field("routing_group", partition.partition.routing_group);
  json.Field("version", 1);
  json.Field("block_size", partition.block_size);
  json.Key("watermarks");
  WriteByRank(json, workers, [&json](std::string_view dp_rank, const fleet::RankEntry& entry) {
    if (const auto watermark = entry.health->watermark()) json.Field(dp_rank, *watermark);
  });
  json.Key("states");
  WriteByRank(json, workers, [&json](std::string_view dp_rank, const fleet::RankEntry& entry) {
    json.Field(dp_rank, RankStateName(entry.health->status().state));
  });
  if (partition.hybrid->empty()) return;
  json.Key("hybrid");
  WriteByRank(json, workers, [&](std::string_view dp_rank, const fleet::RankEntry& entry) {
    if (partition.hybrid->Find(entry.rank)) json.Field(dp_rank, true);
  });
}

void WriteStored(JsonWriter& json, const PlacementEvent& event, std::uint64_t event_id) {
  json.BeginObject();
  json.Field("worker_id", Raw(event.rank.worker));
  json.Field("storage_tier", TierName(event.tier));
  json.Key("event");
  json.BeginObject();
  json.Field("event_id", event_id);
  json.Field("dp_rank", event.rank.dp_rank);
  json.Key("data");
  json.BeginObject();
  json.Key("stored");
  json.BeginObject();
  json.Key("parent_hash");
  if (event.parent) {
    json.Value(Raw(*event.parent));
  } else {
    json.Null();
  }
  json.Key("blocks");
  json.BeginArray();
  for (const PlacedBlock& block : event.blocks) {
    json.BeginObject();
    json.Field("block_hash", Raw(block.engine));
    json.Field("tokens_hash", Raw(block.local));
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.EndObject();
  json.EndObject();
  json.EndObject();
}

}  // namespace

// What is left of one partition's events. One rank is held at a time.
class DumpWriter::Events {
 public:
  explicit Events(const index::PrefixIndex& index) : index_(index), ranks_(index.Ranks()) {}

  // False when there are no more.
  bool Next(PlacementEvent& event) {
    while (true) {
      if (stores_ && stores_->Next(event)) return true;
      stores_.reset();
      held_ = {};
      if (rank_ == ranks_.size()) return false;
      index_.CopyRank(ranks_[rank_], held_);
      stores_.emplace(held_, ranks_[rank_++], kEventBlocks);
    }
  }

 private:
  const index::PrefixIndex& index_;
  const std::vector<Rank> ranks_;
  std::size_t rank_ = 0;  // the next
  index::RankCopy held_;
  std::optional<index::CopyStores> stores_;  // of it
};

DumpWriter::DumpWriter(Form form, std::vector<std::shared_ptr<index::PartitionIndex>> partitions,
                       std::shared_ptr<const fleet::Snapshot> snapshot)
    : form_(form), partitions_(std::move(partitions)), snapshot_(std::move(snapshot)) {}

DumpWriter::~DumpWriter() = default;

bool DumpWriter::Next(std::size_t bytes, std::string& piece) {
  piece.clear();
  if (ended_) return false;
  const bool object = form_ == Form::kObject;
  while (piece.size() < bytes) {
    PlacementEvent event;
    if (events_ && events_->Next(event)) {
      WriteEvent(event, piece);
    } else if (events_) {
      if (object) piece += "]}";
      events_.reset();
      ++partition_;
    } else if (partition_ < partitions_.size()) {
      if (object) piece += partition_ == 0 ? '{' : ',';
      Begin(piece);
    } else {
      if (object) piece += partitions_.empty() ? "{}" : "}";
      ended_ = true;
      break;
    }
  }
  return !piece.empty();
}

void DumpWriter::Begin(std::string& out) {
  const index::PartitionIndex& partition = *partitions_[partition_];
  const auto workers = snapshot_->In(partition.partition);
  if (form_ == Form::kObject) {
    AppendJsonString(out, DumpKey(partition.partition));
    out += ':';
  }
  JsonWriter json(out);
  json.BeginObject();
  if (form_ == Form::kLines) {
    json.Key("partition");
    json.BeginObject();
    WriteHead(json, partition, workers);
    json.EndObject();
    json.EndObject();
    out += '\n';
  } else {
    WriteHead(json, partition, workers);
    json.Key("events");
    json.BeginArray();  // closed by hand, events later
  }
  events_ = std::make_unique<Events>(*partition.index);
  event_id_ = 0;
}

void DumpWriter::WriteEvent(const PlacementEvent& event, std::string& out) {
  if (form_ == Form::kObject && event_id_ > 0) out += ',';
  JsonWriter json(out);
  WriteStored(json, event, event_id_++);
  if (form_ == Form::kLines) out += '\n';
}

}  // namespace kvr::service
