#include "cmd/server_config.h"

#include <limits>
#include <random>
#include <utility>

#include "config/option_table.h"
#include "fleet/rejected_log.h"
#include "index/sharded_index.h"

namespace kvr::cmd {
namespace {

constexpr std::size_t kThreadsMax = 256;
constexpr std::size_t kConnectionsMax = 1'000'000;
constexpr std::size_t kHeaderBytesMin = 1u << 10;
constexpr std::size_t kHeaderBytesMax = 16u << 20;
constexpr std::int64_t kMessageBytesMin = 1 << 10;
constexpr std::int64_t kMessageBytesMax = std::int64_t{4} << 30;

void BindHttp(ServerConfig& config, config::OptionTable& table) {
  net::HttpServer::Options& http = config.http;
  table.Bind("server", "address", &http.address, "Address to bind")
      .Flag("--address")
      .Was("address");
  table.Bind("server", "port", &http.port, "TCP port; 0 picks a free one")
      .Flag("-p,--port")
      .Was("port");
  table
      .Bind("server", "io_threads", &config.io_threads, "Threads that move bytes", std::size_t{1},
            kThreadsMax)
      .Flag("--server-io-threads,--threads")
      .Was("threads");
  table
      .Bind("server", "connections_max", &http.connections_max,
            "Client connections; beyond: 503 and closed", std::size_t{1}, kConnectionsMax)
      .Unit("connections");
  table
      .Bind("server", "header_bytes_max", &http.header_bytes_max,
            "Longest head of a request; beyond: 431", kHeaderBytesMin, kHeaderBytesMax)
      .Unit("bytes");
  table
      .Bind("server", "bodies_bytes_max", &http.bodies_bytes_max,
            "Memory of all request bodies together; beyond: 503", std::size_t{1})
      .Unit("bytes");
  table
      .Bind("server", "header_timeout_ms", &http.header_timeout,
            "For the head of a request to be complete", Millis{1})
      .Was("server.header_timeout");
  table
      .Bind("server", "body_timeout_ms", &http.body_timeout,
            "For the body of a request to be complete", Millis{1})
      .Was("server.body_timeout");
  table
      .Bind("server", "idle_timeout_ms", &http.idle_timeout, "Between the requests of a connection",
            Millis{1})
      .Was("server.idle_timeout");
  table.Bind("server", "write_timeout_ms", &http.write_timeout,
             "A client that takes nothing for so long is dropped", Millis{1});
  table
      .Bind("server", "drain_ms", &config.drain,
            "For requests under way when the process is told to end")
      .Was("drain");
}

void BindTransport(ServerConfig& config, config::OptionTable& table) {
  table
      .Bind("ingest", "poll_interval_ms", &config.poll.interval,
            "Between two requests to an engine that is asked for its events", Millis{1})
      .Was("ingest.poll_interval");
  table.Bind("ingest", "poll_timeout_ms", &config.poll.timeout,
             "How long such an engine may be silent, before its answer or within it; then what the "
             "request drained is lost",
             Millis{1});
  table
      .Bind("ingest", "receive_high_water", &config.zmq.receive_high_water,
            "Messages of one stream that wait in the transport; at it nothing more is read, the "
            "engine queues and then drops, which is seen as a gap",
            1)
      .Unit("messages");
  table
      .Bind("ingest", "replay_high_water", &config.zmq.replay_high_water,
            "The same of a replay; engines drop what does not fit, so that it holds a whole one", 1)
      .Unit("messages");
  table
      .Bind("ingest", "message_bytes_max", &config.zmq.message_bytes_max,
            "Largest message that is read; a stream with a larger one is disconnected, again and "
            "again while a replay has it. From 64 MiB on a message is refused and counted",
            kMessageBytesMin, kMessageBytesMax)
      .Unit("bytes");
}

void BindStreams(ServerConfig& config, config::OptionTable& table) {
  ingest::RankStream::Options& stream = config.ingest.stream;
  table
      .Bind("ingest", "replay_silence_ms", &stream.replay_silence,
            "Silence after which a replay attempt has failed", Millis{1})
      .Was("ingest.replay_silence");
  table.Bind("ingest", "replay_attempts", &stream.replay_attempts,
             "Replay attempts before messages are given up", 1u, 1'000u);
  table.Bind("ingest", "clear_on_loss", &stream.clear_on_loss,
             "Forget a rank's blocks at every loss that cannot be repaired");
  table.Bind("ingest", "drop_after_disconnect_ms", &stream.drop_after_disconnect,
             "Forget the blocks of an engine that is gone for so long; 0: never");
  table
      .Bind("ingest", "snapshot_bytes_max", &config.ingest.snapshot_bytes_max,
            "Memory for a rank's snapshot while it is taken from an agent, about 40 bytes a block; "
            "a larger one is refused")
      .Unit("bytes");
}

void BindMemory(placement::MemoryLimits& memory, config::OptionTable& table) {
  table
      .Bind("ingest", "counted_blocks_max", &memory.counted_blocks_max,
            "Blocks of a rank whose copies are counted; beyond, a removal passes at the first copy "
            "that goes, and salts are not inherited",
            std::size_t{1})
      .Unit("blocks");
  table
      .Bind("ingest", "groups_max", &memory.groups_max,
            "Cache groups of a rank; the events of one more are dropped as too_many_groups, and no "
            "prefix of the rank counts as reusable",
            std::size_t{1})
      .Unit("groups");
  table
      .Bind(
          "ingest", "held_names_max", &memory.held_names_max,
          "Names of a rank whose copies wait until the kind of their cache group is told; further "
          "ones are missed, and the rank is degraded when it is told")
      .Unit("names");
  table
      .Bind("ingest", "partial_blocks_max", &memory.partial_blocks_max,
            "Partial blocks of a rank whose removals are left out as they were; beyond, the "
            "older half is forgotten, whose removals count as unmatched",
            std::size_t{1})
      .Unit("blocks");
  table
      .Bind("ingest", "digests_max", &memory.digests_max,
            "Digests of a stream that are remembered until it proves by which end they become "
            "numbers; later ones prove nothing")
      .Unit("digests");
  table
      .Bind(
          "ingest", "chunk_blocks_max", &memory.chunk_blocks_max,
          "Device blocks of a rank by which LMCache's chunks are told; beyond, further blocks are "
          "in no chunk",
          std::size_t{1})
      .Unit("blocks");
  table
      .Bind("ingest", "chunks_max", &memory.chunks_max,
            "LMCache chunks of a rank; beyond, the one that would expire first goes",
            std::size_t{1})
      .Unit("chunks");
  table.Bind("ingest", "chunk_ttl_ms", &memory.chunk_ttl,
             "An LMCache chunk goes so long after it was last announced, in the time of the "
             "engine's messages: nobody says that it is gone",
             Millis{1});
}

void BindMessages(ingest::Ingest::Options::MessageLimits& message, config::OptionTable& table) {
  constexpr std::size_t kMost = std::size_t{64} << 20;  // a message has no more bytes
  table
      .Bind("ingest", "message_events_max", &message.events_max,
            "Events of a message; one of more is refused as a whole and counts as lost",
            std::size_t{1}, kMost)
      .Unit("events");
  table
      .Bind("ingest", "message_blocks_max", &message.blocks_max,
            "Blocks that the events of a message name; an event beyond is refused", std::size_t{1},
            kMost)
      .Unit("blocks");
  table
      .Bind("ingest", "message_tokens_max", &message.tokens_max,
            "Tokens in the events of a message; an event beyond is refused", std::size_t{1}, kMost)
      .Unit("tokens");
}

void BindIngest(ServerConfig& config, config::OptionTable& table) {
  ingest::Ingest::Options& ingest = config.ingest;
  table.Bind("ingest", "threads", &ingest.threads, "Threads that follow event streams",
             std::size_t{1}, kThreadsMax);
  BindStreams(config, table);
  BindTransport(config, table);
  BindMessages(ingest.message, table);
  BindMemory(ingest.memory, table);
  table
      .Bind("ingest", "keep_rejected_bytes", &ingest.rejected_bytes_kept,
            "Of each undecodable event this many first bytes are shown by /workers/{id}/rejected; "
            "they may hold tokens and cache salts",
            std::size_t{0}, fleet::RejectedEvent::kBytesMax)
      .Flag("--keep-rejected-bytes")
      .Unit("bytes");
  table
      .Bind("ingest", "reference_metrics", &ingest.reference_metrics,
            "Show the reference's metric names beside our own")
      .Flag("--ingest-reference-metrics,--reference-metrics")
      .Was("reference_metrics");
  table
      .Bind(
          "identity", "unmapped_keys", &ingest.unmapped_keys,
          "Keys of a block that have no name here: fold them into its identity, so that nobody "
          "else matches it, or ignore them",
          {{"fold", placement::UnmappedKeys::kFold}, {"ignore", placement::UnmappedKeys::kIgnore}})
      .Flag("--unmapped-keys");
}

void BindIndex(ServerConfig& config, config::OptionTable& table) {
  index::IndexOptions& index = config.index;
  table.Bind("index", "blocks_max", &index.blocks_max, "Distinct blocks of a partition", 1u)
      .Unit("blocks");
  table.Bind("index", "shards", &config.index_shards,
             "Parts of a partition's index, each with its share of the ranks; updates of different "
             "parts go side by side, a query asks them all",
             std::size_t{1}, index::kShardsMax);
  table.Bind("index", "ranks_max", &index.ranks_max, "Ranks of a partition", 1u).Unit("ranks");
  table
      .Bind("index", "pending_blocks_max", &index.pending_blocks_max,
            "Blocks of a rank that may wait for their parent or content; beyond, the oldest are "
            "dropped")
      .Unit("blocks");
  table
      .Bind("index", "remembered_names_max", &index.remembered_names_max,
            "Names that a rank keeps of blocks it no longer holds; beyond, the oldest are dropped")
      .Unit("names");
  table
      .Bind("index", "side_blocks_max", &index.side_blocks_max,
            "Blocks of a hybrid model's side groups that a rank keeps; beyond, new ones count as "
            "absent")
      .Unit("blocks");
  table
      .Bind(
          "index", "memory_limit", &index.memory_limit,
          "Heap of a partition's index; beyond, the least recently used blocks go, and predictions "
          "may be too low; 0: no limit")
      .Unit("bytes");
}

void BindLog(ServerConfig& config, config::OptionTable& table) {
  table
      .Bind("log", "level", &config.log_level, "Least severe lines written, to stderr",
            {{"trace", LogLevel::kTrace},
             {"debug", LogLevel::kDebug},
             {"info", LogLevel::kInfo},
             {"warn", LogLevel::kWarn},
             {"error", LogLevel::kError},
             {"off", LogLevel::kOff}})
      .Was("log_level");
}

}  // namespace

ServerConfig::ServerConfig(std::string name, std::uint16_t port) {
  http.name = std::move(name);
  http.port = port;
  index.hash_seed = RandomSeed();
}

void ServerConfig::Bind(config::OptionTable& table) {
  BindHttp(*this, table);
  BindIngest(*this, table);
  BindIndex(*this, table);
  BindLog(*this, table);
}

void ServerConfig::BindWithoutIndex(config::OptionTable& table) {
  BindHttp(*this, table);
  BindIngest(*this, table);
  BindLog(*this, table);
}

Result<void> ServerConfig::Validate() const {
  KVR_TRY_VOID(ingest.Validate());
  return index.Validate();
}

std::uint64_t RandomSeed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace kvr::cmd
