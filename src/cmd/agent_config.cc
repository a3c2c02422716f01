#include "cmd/agent_config.h"

#include <string_view>

#include <fmt/format.h>

#include "config/option_table.h"
#include "net/event_socket.h"
#include "publish/coalescer.h"

namespace kvr::cmd {
namespace {

constexpr std::size_t kKeptMax = std::size_t{1} << 20;
constexpr std::size_t kBlocksMax = std::size_t{1} << 32;

// With the rank added to the port, unless any free one will do.
Result<std::string> EndpointFor(const std::string& endpoint, std::uint32_t dp_rank) {
  if (dp_rank == 0 || endpoint.ends_with(":*") || endpoint.ends_with(":0")) return endpoint;
  const auto own = EndpointOfRank(endpoint, dp_rank);
  if (own) return *own;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("`{}` has no port to which rank {} can be added", endpoint, dp_rank));
}

void BindSockets(AgentConfig& config, config::OptionTable& table) {
  net::EventPublisher::Options& socket = config.rank.socket;
  table
      .Bind("publish", "endpoint", &config.endpoint,
            "Where events are published; rank r on the port + r, `*` for free ports")
      .Flag("--publish");
  table
      .Bind("publish", "replay_endpoint", &config.replay_endpoint,
            "Where published messages can be had again, likewise; empty: nowhere")
      .Flag("--publish-replay");
  table.Bind("publish", "topic", &config.rank.publisher.topic, "Topic of every message");
  table
      .Bind("publish", "queue_messages_max", &socket.queue_max,
            "Messages of a rank that wait to be sent; beyond, they are kept for replay only",
            std::size_t{1}, kKeptMax)
      .Unit("messages");
  table
      .Bind("publish", "queue_bytes_max", &socket.queue_bytes_max, "... and how many bytes of them",
            std::size_t{1})
      .Unit("bytes");
  table
      .Bind("publish", "send_high_water", &socket.send_high_water,
            "Messages that wait for one router; beyond, that one misses some", 1)
      .Unit("messages");
  table
      .Bind("publish", "send_bytes_max", &config.rank.send_bytes_max,
            "... and how many bytes of them, reckoned as if each had message_bytes_max",
            std::size_t{1})
      .Unit("bytes");
  table
      .Bind("publish", "replay_messages_max", &socket.replay_messages_max,
            "Messages of a rank kept for replay", std::size_t{1})
      .Unit("messages");
  table
      .Bind("publish", "replay_bytes_max", &socket.replay_bytes_max,
            "... and how many bytes of them; the newest message is kept whatever its size",
            std::size_t{1})
      .Unit("bytes");
}

void BindEvents(AgentConfig& config, config::OptionTable& table) {
  publish::RankPublisher::Options& publisher = config.rank.publisher;
  table.Bind("publish", "coalesce_ms", &publisher.coalescer.timeout,
             "How long an event may wait for others to be merged with; 0: for the end of its "
             "engine's message",
             Millis{0}, publish::Coalescer::kTimeoutMax);
  table
      .Bind("publish", "event_blocks_max", &publisher.coalescer.blocks_max,
            "A merged event with so many waits no longer", std::size_t{1}, kKeptMax)
      .Unit("blocks");
  table
      .Bind("publish", "message_events_max", &publisher.message_events_max, "Events of a message",
            std::size_t{1}, kKeptMax)
      .Unit("events");
  table
      .Bind("publish", "message_blocks_max", &publisher.message_blocks_max,
            "Blocks of a message; an event with more goes alone", std::size_t{1}, kKeptMax)
      .Unit("blocks");
  table
      .Bind("publish", "message_bytes_max", &publisher.message_bytes_max,
            "Bytes of a message's events; an event with more goes out as several",
            publish::RankPublisher::kMessageBytesMin, std::size_t{64} << 20)
      .Unit("bytes");
  table
      .Bind("publish", "ring_events_max", &publisher.ring.events_max,
            "Events of a rank kept for /events", std::size_t{1}, kKeptMax)
      .Unit("events");
  table
      .Bind("publish", "ring_bytes_max", &publisher.ring.bytes_max,
            "... and how many bytes of them", std::size_t{1})
      .Unit("bytes");
  table
      .Bind("publish", "blocks_max", &publisher.book.blocks_max,
            "Blocks of a rank that are known by name; what is beyond is not published, and "
            "snapshots are incomplete until the rank is cleared",
            std::size_t{1}, kBlocksMax)
      .Unit("blocks");
}

// All tell of one cache.
Result<void> CheckSources(const std::vector<WorkerConfig>& workers) {
  if (workers.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "no engine to follow; list it in --config or give --worker");
  }
  const fleet::WorkerSpec& first = workers.front().spec;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const fleet::WorkerSpec& spec = workers[i].spec;
    const auto fail = [&spec](std::string_view what) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("worker {}: {}", Raw(spec.id), what));
    };
    if (spec.events.empty()) return fail("no `events`: there is nothing to publish");
    if (spec.partition != first.partition || spec.block_size != first.block_size ||
        spec.dp_ranks != first.dp_ranks) {
      return fail("a further source has the model, block size and ranks of the first one");
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (workers[k].spec.id == spec.id) return fail("this id is given twice; choose another");
    }
  }
  return {};
}

}  // namespace

AgentConfig::AgentConfig() {
  // Followers see an agent's stream, which has no holes, and not its engine's: what may be gone is
  // taken back, so that nobody relies on it.
  server.ingest.stream.clear_on_loss = true;
  server.ingest.threads = 1;
  server.io_threads = 1;
  rank.socket.queue_max = 4'096;
  rank.socket.send_high_water = 1'000;
  rank.socket.replay_bytes_max = 256u << 20;
}

void AgentConfig::Bind(config::OptionTable& table) {
  server.BindWithoutIndex(table);
  BindSockets(*this, table);
  BindEvents(*this, table);
  table.AddSubtree("workers", "list of maps",
                   "The engine, and further sources that tell of its cache, in the file only; "
                   "--worker is the flag");
}

Result<void> AgentConfig::Finish() {
  KVR_TRY_VOID(CheckSources(workers));
  rank.publisher.sources = workers.size();
  KVR_TRY_VOID(net::CheckEndpoint(endpoint, false));
  if (!replay_endpoint.empty()) KVR_TRY_VOID(net::CheckEndpoint(replay_endpoint, false));
  for (const std::uint32_t dp_rank : workers.front().spec.dp_ranks)
    KVR_TRY_VOID(RankOptions({workers.front().spec.id, dp_rank}, 1));
  KVR_TRY_VOID(rank.publisher.Validate());
  if (rank.send_bytes_max < rank.publisher.message_bytes_max) {
    return Fail(ErrorCode::kInvalidArgument,
                "publish.send_bytes_max needs room for a message of publish.message_bytes_max");
  }
  return server.Validate();
}

Result<service::PublishedRank::Options> AgentConfig::RankOptions(Rank of,
                                                                 std::uint64_t publisher_id) const {
  service::PublishedRank::Options options = rank;
  options.publisher.rank = of;
  options.publisher.publisher_id = publisher_id;
  KVR_TRY(options.socket.endpoint, EndpointFor(endpoint, of.dp_rank));
  options.socket.replay_endpoint.reset();
  if (!replay_endpoint.empty()) {
    KVR_TRY(options.socket.replay_endpoint, EndpointFor(replay_endpoint, of.dp_rank));
  }
  return options;
}

}  // namespace kvr::cmd
