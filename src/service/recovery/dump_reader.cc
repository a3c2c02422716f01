#include "service/recovery/dump_reader.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/check.h"
#include "base/text.h"
#include "service/recovery/dump_splitter.h"

namespace kvr::service {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kDepthMax = 32;

tl::unexpected<Error> Malformed(std::string message) {
  return Fail(ErrorCode::kCorrupt, std::move(message));
}

template <typename Number>
Result<Number> NumberOf(dom::element value, std::string_view what) {
  std::uint64_t number = 0;
  if (value.get(number) == simdjson::SUCCESS && number <= std::numeric_limits<Number>::max()) {
    return static_cast<Number>(number);
  }
  return Malformed(fmt::format("{} is no number in range", what));
}

template <typename Number>
Result<Number> NumberField(dom::object object, std::string_view name) {
  dom::element value;
  if (object[name].get(value) != simdjson::SUCCESS) {
    return Malformed(fmt::format("{} is missing", name));
  }
  return NumberOf<Number>(value, name);
}

// A 64-bit hash, signed (as two's complement) or unsigned.
Result<std::uint64_t> HashOf(dom::element value, std::string_view what) {
  std::int64_t number = 0;
  if (value.get(number) == simdjson::SUCCESS) return static_cast<std::uint64_t>(number);
  return NumberOf<std::uint64_t>(value, what);
}

template <typename Number>
Result<Number> NumberOfKey(std::string_view key) {
  if (const auto number = ParseNumber<Number>(key)) return *number;
  return Malformed(fmt::format("`{}` is no number in range", key));
}

// Calls `use(rank, value)` for each entry of {"worker":{"dp_rank":value}}.
template <typename Use>
Result<void> EachRank(dom::object workers, const Use& use) {
  for (const auto [worker_key, ranks_value] : workers) {
    KVR_TRY(const auto worker, NumberOfKey<std::uint64_t>(worker_key));
    dom::object ranks;
    if (ranks_value.get(ranks) != simdjson::SUCCESS) return Malformed("ranks are no object");
    for (const auto [rank_key, value] : ranks) {
      KVR_TRY(const auto dp_rank, NumberOfKey<std::uint32_t>(rank_key));
      KVR_TRY_VOID(use(Rank{static_cast<WorkerId>(worker), dp_rank}, value));
    }
  }
  return {};
}

// The state in which a rank is complete up to its watermark.
bool IsExact(dom::element state) {
  std::string_view text;
  return state.get(text) == simdjson::SUCCESS && text == "exact";
}

Result<void> ReadWatermarks(dom::object head, RecoveredPartition& out) {
  dom::object watermarks;
  if (head["watermarks"].get(watermarks) != simdjson::SUCCESS) return {};
  KVR_TRY_VOID(EachRank(watermarks, [&](Rank rank, dom::element value) -> Result<void> {
    KVR_TRY(out.ranks[rank].watermark, NumberOf<std::uint64_t>(value, "a watermark"));
    return {};
  }));
  dom::object states;
  if (head["states"].get(states) != simdjson::SUCCESS) return {};
  return EachRank(states, [&](Rank rank, dom::element value) -> Result<void> {
    const auto found = out.ranks.find(rank);
    if (found != out.ranks.end() && !IsExact(value)) found->second.watermark.reset();
    return {};
  });
}

Result<void> ReadBlocks(dom::array blocks, index::RankCopy& held) {
  for (const dom::element element : blocks) {
    dom::object block;
    dom::element engine_value;
    dom::element local_value;
    if (element.get(block) != simdjson::SUCCESS ||
        block["block_hash"].get(engine_value) != simdjson::SUCCESS ||
        block["tokens_hash"].get(local_value) != simdjson::SUCCESS) {
      return Malformed("a block has not both hashes");
    }
    KVR_TRY(const auto engine, HashOf(engine_value, "block_hash"));
    KVR_TRY(const auto local, HashOf(local_value, "tokens_hash"));
    held.blocks.push_back({static_cast<EngineHash>(engine), static_cast<BlockHash>(local)});
  }
  return {};
}

Result<void> ReadEvent(dom::object event, RecoveredPartition& out) {
  std::string_view domain;
  if (event["residency_domain"].get(domain) == simdjson::SUCCESS && domain != "worker") {
    return {};  // a cache of its own, which no rank stands for
  }
  KVR_TRY(const auto worker, NumberField<std::uint64_t>(event, "worker_id"));
  dom::object inner;
  dom::object stored;
  if (event["event"].get(inner) != simdjson::SUCCESS) return Malformed("event is missing");
  KVR_TRY(const auto dp_rank, NumberField<std::uint32_t>(inner, "dp_rank"));
  if (inner["data"]["stored"].get(stored) != simdjson::SUCCESS) {
    return Malformed("an event stores nothing; a dump is made of stores");
  }
  index::RankCopy::Run run;
  std::string_view tier;
  run.tiers = index::TierBit(Tier::kDevice);
  if (event["storage_tier"].get(tier) == simdjson::SUCCESS) {
    const auto known = TierFromName(tier);
    if (!known) return Malformed(fmt::format("storage_tier `{}` is unknown", tier));
    run.tiers = index::TierBit(*known);
  }
  dom::element parent;
  if (stored["parent_hash"].get(parent) == simdjson::SUCCESS && !parent.is_null()) {
    KVR_TRY(const auto hash, HashOf(parent, "parent_hash"));
    run.parent = static_cast<EngineHash>(hash);
  }
  dom::array blocks;
  if (stored["blocks"].get(blocks) != simdjson::SUCCESS) return Malformed("blocks are missing");
  index::RankCopy& held = out.ranks[Rank{static_cast<WorkerId>(worker), dp_rank}].held;
  run.begin = held.blocks.size();
  KVR_TRY_VOID(ReadBlocks(blocks, held));
  run.end = held.blocks.size();
  out.blocks += run.end - run.begin;
  if (run.begin != run.end) held.runs.push_back(run);
  return {};
}

// Splits "model:group" at the last colon.
Partition PartitionOfKey(std::string_view key) {
  const std::size_t colon = key.rfind(':');
  Partition partition;
  partition.model_name = key.substr(0, colon);
  if (colon != std::string_view::npos) partition.routing_group = key.substr(colon + 1);
  return partition;
}

}  // namespace

struct DumpReader::Impl final : DumpPieces {
  Impl(const Options& wanted, Form form, Sink& to) : options(wanted), sink(to) {
    if (form == Form::kLines) splitter.emplace<LineDumpSplitter>(options.piece_bytes_max, *this);
    KVR_CHECK(parser.allocate(0, kDepthMax) == simdjson::SUCCESS);
  }

  Result<dom::element> Parse(std::string_view json) {
    if (json.empty()) return Malformed("nothing is there");  // the parser copies, even from null
    dom::element value;
    if (const auto error = parser.parse(json.data(), json.size()).get(value)) {
      return Malformed(simdjson::error_message(error));
    }
    return value;
  }

  Result<void> BeginPartition(std::string_view key_json) override {
    if (++partitions > options.partitions_max) {
      return Fail(ErrorCode::kTooLarge,
                  fmt::format("the dump has more than {} partitions", options.partitions_max));
    }
    partition = {};
    head.clear();
    passed_over = 0;
    rejected = false;
    name = key_json;
    std::string_view key;
    const auto value = Parse(key_json);
    if (value && value->get(key) == simdjson::SUCCESS) {
      name = key;
      partition.partition = PartitionOfKey(key);
    }
    return {};
  }

  // Fields may come after the events, so they are put together and read at the end.
  Result<void> Field(std::string_view name_json, std::string_view value_json) override {
    if (rejected) return {};
    if (name_json == "\"partition\"" || name_json == "\"\"") {
      head = value_json;
      const auto value = Parse(head);
      dom::object object;
      if (value && value->get(object) == simdjson::SUCCESS) ReadNames(object);
      return {};
    }
    if (head.size() + name_json.size() + value_json.size() + 3 > options.piece_bytes_max) {
      Reject(DumpReject::kTooLarge, "its head is too long");
      return {};
    }
    if (head.empty()) {
      head = "{";
    } else {
      head.back() = ',';
    }
    head += name_json;
    head += ':';
    head += value_json;
    head += '}';
    return {};
  }

  Result<void> Event(std::string_view json) override {
    if (rejected) return {};
    const auto value = Parse(json);
    dom::object event;
    if (!value) {
      Reject(DumpReject::kMalformed, value.error().message);
    } else if (value->get(event) != simdjson::SUCCESS) {
      Reject(DumpReject::kMalformed, "an event is no object");
    } else if (const auto read = ReadEvent(event, partition); !read) {
      Reject(DumpReject::kMalformed, read.error().message);
    } else {
      RejectWhenTooLarge();
    }
    return {};
  }

  Result<void> FieldTooLong() override {
    if (!rejected) Reject(DumpReject::kTooLarge, "its head is too long");
    return {};
  }

  Result<void> EventTooLong() override {
    ++passed_over;
    return {};
  }

  Result<void> EndPartition() override {
    if (rejected) return {};
    const auto value = Parse(head);
    dom::object object;
    if (!value || value->get(object) != simdjson::SUCCESS) {
      Reject(DumpReject::kMalformed, "it is no object");
      return {};
    }
    dom::element error;
    if (object["error"].get(error) == simdjson::SUCCESS) {
      std::string_view text;
      if (error.get(text) != simdjson::SUCCESS) text = "no text";
      Reject(DumpReject::kPeerError, text);
      return {};
    }
    if (const auto read = ReadHead(object); !read) {
      Reject(DumpReject::kMalformed, read.error().message);
      return {};
    }
    if (const auto read = DropHybridRanks(object); !read) {
      Reject(DumpReject::kMalformed, read.error().message);
      return {};
    }
    RejectWhenTooLarge();
    if (rejected) return {};
    if (passed_over > 0) {
      for (auto& [rank, recovered] : partition.ranks)
        recovered.watermark.reset();
      sink.PassOver(name, passed_over);
    }
    std::erase_if(partition.ranks, [](const auto& entry) {
      return entry.second.held.blocks.empty() && !entry.second.watermark;
    });
    sink.Take(std::exchange(partition, {}));
    return {};
  }

  void ReadNames(dom::object object) {
    Partition& names = partition.partition;
    std::string_view text;
    if (object["model_name"].get(text) == simdjson::SUCCESS) names.model_name = text;
    if (object["routing_group"].get(text) == simdjson::SUCCESS) names.routing_group = text;
    name = fmt::format("{}:{}", names.model_name, names.routing_group);
  }

  Result<void> ReadHead(dom::object object) {
    ReadNames(object);
    if (partition.partition.model_name.empty()) return Malformed("it names no model");
    KVR_TRY(partition.block_size, NumberField<std::uint32_t>(object, "block_size"));
    if (partition.block_size == 0) return Malformed("block_size is 0");
    return ReadWatermarks(object, partition);
  }

  // Without their side groups the blocks of such ranks would promise more than can be reused.
  Result<void> DropHybridRanks(dom::object head_object) {
    dom::object hybrid;
    if (head_object["hybrid"].get(hybrid) != simdjson::SUCCESS) return {};
    return EachRank(hybrid, [this](Rank rank, dom::element) -> Result<void> {
      const auto found = partition.ranks.find(rank);
      if (found == partition.ranks.end()) return {};
      partition.blocks -= BlocksOf(found->second);
      partition.ranks.erase(found);
      return {};
    });
  }

  void RejectWhenTooLarge() {
    if (partition.blocks <= options.partition_blocks_max &&
        partition.ranks.size() <= options.partition_ranks_max) {
      return;
    }
    Reject(DumpReject::kTooLarge,
           fmt::format("it has more than {} blocks or {} ranks", options.partition_blocks_max,
                       options.partition_ranks_max));
  }

  void Reject(DumpReject reason, std::string_view detail) {
    rejected = true;
    partition = {};
    sink.Reject(name, reason, detail);
  }

  const Options options;
  Sink& sink;
  std::variant<ObjectDumpSplitter, LineDumpSplitter> splitter{
      std::in_place_type<ObjectDumpSplitter>, options.piece_bytes_max, *this};
  dom::parser parser;
  std::uint64_t bytes = 0;
  std::size_t partitions = 0;
  RecoveredPartition partition;  // the one under way
  std::string name;
  std::string head;
  std::size_t passed_over = 0;  // events of the partition under way
  bool rejected = false;
};

DumpReader::DumpReader(const Options& options, Form form, Sink& sink)
    : impl_(std::make_unique<Impl>(options, form, sink)) {}

DumpReader::~DumpReader() = default;

Result<void> DumpReader::Put(std::string_view bytes) {
  impl_->bytes += bytes.size();
  if (impl_->bytes > impl_->options.dump_bytes_max) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("the dump is longer than {} bytes", impl_->options.dump_bytes_max));
  }
  return std::visit([&](auto& splitter) { return splitter.Put(bytes); }, impl_->splitter);
}

Result<void> DumpReader::Finish() {
  return std::visit([](auto& splitter) -> Result<void> { return splitter.Finish(); },
                    impl_->splitter);
}

std::uint64_t DumpReader::bytes() const {
  return impl_->bytes;
}

}  // namespace kvr::service
