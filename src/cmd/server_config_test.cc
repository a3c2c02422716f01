#include "cmd/server_config.h"

#include <gtest/gtest.h>

#include "config/option_table.h"

namespace kvr::cmd {
namespace {

struct Bound {
  ServerConfig config{"test", 1};
  config::OptionTable table;

  Bound() { config.Bind(table); }
};

TEST(ServerConfig, ReadsEveryPart) {
  Bound bound;
  const auto loaded = bound.table.LoadYaml(
      "server: {address: h, port: 2, io_threads: 3, connections_max: 4, header_bytes_max: 1024,\n"
      "  bodies_bytes_max: 23, header_timeout_ms: 5, body_timeout_ms: 6, idle_timeout_ms: 7, "
      "write_timeout_ms: 8,\n"
      "  drain_ms: 9}\n"
      "ingest: {threads: 10, replay_silence_ms: 11, replay_attempts: 12, clear_on_loss: true,\n"
      "  drop_after_disconnect_ms: 13, receive_high_water: 14, replay_high_water: 24, "
      "message_bytes_max: 1025,\n"
      "  keep_rejected_bytes: 16, poll_interval_ms: 21, poll_timeout_ms: 43, reference_metrics: "
      "true,\n"
      "  counted_blocks_max: 31, groups_max: 39, held_names_max: 32, chunk_blocks_max: 33, "
      "chunks_max: 34,\n"
      "  chunk_ttl_ms: 35, partial_blocks_max: 36, digests_max: 37, snapshot_bytes_max: 38,\n"
      "  message_events_max: 40, message_blocks_max: 41, message_tokens_max: 42}\n"
      "identity: {unmapped_keys: ignore}\n"
      "index: {blocks_max: 17, ranks_max: 18, pending_blocks_max: 19, remembered_names_max: 20,\n"
      "  side_blocks_max: 22, memory_limit: 25000000}\n"
      "log: {level: \"off\"}\n",
      "f");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const ServerConfig& config = bound.config;
  EXPECT_EQ(config.http.address, "h");
  EXPECT_EQ(config.http.port, 2);
  EXPECT_EQ(config.io_threads, 3u);
  EXPECT_EQ(config.http.connections_max, 4u);
  EXPECT_EQ(config.http.header_bytes_max, 1'024u);
  EXPECT_EQ(config.http.bodies_bytes_max, 23u);
  EXPECT_EQ(config.http.header_timeout, Millis{5});
  EXPECT_EQ(config.http.body_timeout, Millis{6});
  EXPECT_EQ(config.http.idle_timeout, Millis{7});
  EXPECT_EQ(config.http.write_timeout, Millis{8});
  EXPECT_EQ(config.drain, Millis{9});
  EXPECT_EQ(config.ingest.threads, 10u);
  EXPECT_EQ(config.ingest.stream.replay_silence, Millis{11});
  EXPECT_EQ(config.ingest.stream.replay_attempts, 12u);
  EXPECT_TRUE(config.ingest.stream.clear_on_loss);
  EXPECT_EQ(config.ingest.stream.drop_after_disconnect, Millis{13});
  EXPECT_EQ(config.zmq.receive_high_water, 14);
  EXPECT_EQ(config.zmq.replay_high_water, 24);
  EXPECT_EQ(config.zmq.message_bytes_max, 1'025);
  EXPECT_EQ(config.ingest.rejected_bytes_kept, 16u);
  EXPECT_EQ(config.poll.interval, Millis{21});
  EXPECT_EQ(config.poll.timeout, Millis{43});
  EXPECT_TRUE(config.ingest.reference_metrics);
  EXPECT_EQ(config.ingest.unmapped_keys, placement::UnmappedKeys::kIgnore);
  EXPECT_EQ(config.ingest.snapshot_bytes_max, 38u);
  EXPECT_EQ(config.ingest.memory.counted_blocks_max, 31u);
  EXPECT_EQ(config.ingest.memory.groups_max, 39u);
  EXPECT_EQ(config.ingest.memory.held_names_max, 32u);
  EXPECT_EQ(config.ingest.memory.chunk_blocks_max, 33u);
  EXPECT_EQ(config.ingest.memory.chunks_max, 34u);
  EXPECT_EQ(config.ingest.memory.chunk_ttl, Millis{35});
  EXPECT_EQ(config.ingest.memory.partial_blocks_max, 36u);
  EXPECT_EQ(config.ingest.memory.digests_max, 37u);
  EXPECT_EQ(config.ingest.message.events_max, 40u);
  EXPECT_EQ(config.ingest.message.blocks_max, 41u);
  EXPECT_EQ(config.ingest.message.tokens_max, 42u);
  EXPECT_EQ(config.index.blocks_max, 17u);
  EXPECT_EQ(config.index.ranks_max, 18u);
  EXPECT_EQ(config.index.pending_blocks_max, 19u);
  EXPECT_EQ(config.index.remembered_names_max, 20u);
  EXPECT_EQ(config.index.side_blocks_max, 22u);
  EXPECT_EQ(config.index.memory_limit, 25'000'000u);
  EXPECT_EQ(config.log_level, LogLevel::kOff);
  EXPECT_TRUE(config.Validate());
}

TEST(ServerConfig, RefusesLimitsThatWouldRefuseEverybody) {
  for (const char* yaml : {"server: {io_threads: 0}",
                           "server: {connections_max: 0}",
                           "server: {header_bytes_max: 0}",
                           "server: {header_timeout_ms: 0}",
                           "server: {body_timeout_ms: 0}",
                           "server: {idle_timeout_ms: 0}",
                           "server: {write_timeout_ms: 0}",
                           "ingest: {threads: 0}",
                           "ingest: {counted_blocks_max: 0}",
                           "ingest: {chunk_blocks_max: 0}",
                           "ingest: {chunks_max: 0}",
                           "ingest: {chunk_ttl_ms: 0}",
                           "ingest: {partial_blocks_max: 0}",
                           "ingest: {held_names_max: -1}",
                           "ingest: {groups_max: 0}",
                           "ingest: {replay_silence_ms: 0}",
                           "ingest: {replay_attempts: 0}",
                           "ingest: {receive_high_water: 0}",
                           "ingest: {receive_high_water: -1}",
                           "ingest: {replay_high_water: 0}",
                           "server: {bodies_bytes_max: 0}",
                           "ingest: {message_bytes_max: 0}",
                           "ingest: {message_events_max: 0}",
                           "ingest: {message_blocks_max: 0}",
                           "ingest: {message_tokens_max: 0}",
                           "ingest: {message_tokens_max: 67108865}",
                           "ingest: {message_bytes_max: -1}",
                           "index: {blocks_max: 0}",
                           "index: {ranks_max: 0}"}) {
    Bound bound;
    EXPECT_FALSE(bound.table.LoadYaml(yaml, "f")) << yaml;
  }
}

TEST(ServerConfig, ItsHashSeedIsItsOwn) {
  const ServerConfig one("test", 1);
  const ServerConfig other("test", 1);
  EXPECT_NE(one.index.hash_seed, index::IndexOptions{}.hash_seed);
  EXPECT_NE(one.index.hash_seed, other.index.hash_seed);
}

}  // namespace
}  // namespace kvr::cmd
