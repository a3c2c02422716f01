#include "cmd/indexer_config.h"

#include <gtest/gtest.h>

#include "config/option_table.h"

namespace kvr::cmd {
namespace {

std::string LoadError(std::string_view yaml) {
  IndexerConfig config;
  config::OptionTable table;
  config.Bind(table);
  const auto loaded = table.LoadYaml(yaml, "f");
  return loaded ? "" : loaded.error().message;
}

TEST(IndexerConfig, FormerNamesNameThePresentOnes) {
  struct Row {
    const char* yaml;
    const char* error;
  };
  for (const Row& row : {
           Row{"port: 1", "f:1: `port` is now `server.port`; write `server: {port: ...}`"},
           Row{"address: h",
               "f:1: `address` is now `server.address`; write `server: {address: ...}`"},
           Row{"threads: 1",
               "f:1: `threads` is now `server.io_threads`; write `server: {io_threads: ...}`"},
           Row{"drain: 1",
               "f:1: `drain` is now `server.drain_ms`; write `server: {drain_ms: ...}`"},
           Row{"workers: [1=tcp://a:1]",
               "f:1: `workers` is now `initial.workers`; write `initial: {workers: ...}`"},
           Row{"block_size: 1",
               "f:1: `block_size` is now `initial.block_size`; write `initial: {block_size: ...}`"},
           Row{"model_name: m",
               "f:1: `model_name` is now `initial.model_name`; write `initial: {model_name: ...}`"},
           Row{"routing_group: g",
               "f:1: `routing_group` is now `initial.routing_group`; write `initial: "
               "{routing_group: ...}`"},
           Row{"min_initial_workers: 1",
               "f:1: `min_initial_workers` is now `indexer.min_initial_workers`; write `indexer: "
               "{min_initial_workers: ...}`"},
           Row{"ready_requires_exact: true",
               "f:1: `ready_requires_exact` is now `indexer.ready_requires_exact`; write `indexer: "
               "{ready_requires_exact: ...}`"},
           Row{"strict: true",
               "f:1: `strict` is now `indexer.strict`; write `indexer: {strict: ...}`"},
           Row{"repeat_is_conflict: true",
               "f:1: `repeat_is_conflict` is now `indexer.repeat_is_conflict`; write `indexer: "
               "{repeat_is_conflict: ...}`"},
           Row{"peers: ['http://a:1']",
               "f:1: `peers` is now `recovery.peers`; write `recovery: {peers: ...}`"},
           Row{"access_log: f", "f:1: access_log must be a map of keys and values"},
           Row{"access_log_local_time: true",
               "f:1: `access_log_local_time` is now `access_log.local_time`; write `access_log: "
               "{local_time: ...}`"},
           Row{"trace_id_header: x",
               "f:1: `trace_id_header` is now `access_log.trace_id_header`; write `access_log: "
               "{trace_id_header: ...}`"},
           Row{"log_level: info", "f:1: `log_level` is now `log.level`; write `log: {level: ...}`"},
           Row{"reference_metrics: true",
               "f:1: `reference_metrics` is now `ingest.reference_metrics`; write `ingest: "
               "{reference_metrics: ...}`"},
           Row{"server: {header_timeout: 1}",
               "f:1: `server.header_timeout` is now `server.header_timeout_ms`; write `server: "
               "{header_timeout_ms: ...}`"},
           Row{"server: {body_timeout: 1}",
               "f:1: `server.body_timeout` is now `server.body_timeout_ms`; write `server: "
               "{body_timeout_ms: ...}`"},
           Row{"server: {idle_timeout: 1}",
               "f:1: `server.idle_timeout` is now `server.idle_timeout_ms`; write `server: "
               "{idle_timeout_ms: ...}`"},
           Row{"ingest: {replay_silence: 1}",
               "f:1: `ingest.replay_silence` is now `ingest.replay_silence_ms`; write `ingest: "
               "{replay_silence_ms: ...}`"},
           Row{"ingest: {poll_interval: 1}",
               "f:1: `ingest.poll_interval` is now `ingest.poll_interval_ms`; write `ingest: "
               "{poll_interval_ms: ...}`"},
           Row{"index: {partition_grace: 1}",
               "f:1: `index.partition_grace` is now `index.partition_grace_ms`; write `index: "
               "{partition_grace_ms: ...}`"},
       }) {
    EXPECT_EQ(LoadError(row.yaml), row.error);
  }
}

TEST(IndexerConfig, InitialSourcesTakeModelGroupAndBlockSize) {
  IndexerConfig config;
  config.workers = {"1=tcp://a:1,2:3=tcp://b:2", "4=ipc://c"};
  config.block_size = 16;
  config.partition = {"m", "g"};
  const auto sources = config.InitialSources();
  ASSERT_TRUE(sources) << sources.error().message;
  ASSERT_EQ(sources->size(), 3u);
  EXPECT_EQ((*sources)[1].rank, (Rank{WorkerId{2}, 3}));
  EXPECT_EQ((*sources)[1].source.endpoint, "tcp://b:2");
  EXPECT_EQ((*sources)[2].rank, (Rank{WorkerId{4}, 0}));
  for (const auto& source : *sources) {
    EXPECT_EQ(source.partition, (Partition{"m", "g"}));
    EXPECT_EQ(source.block_size, 16u);
  }
}

TEST(IndexerConfig, PeersAreSplitAndChecked) {
  IndexerConfig config;
  config.recovery.start.peers.urls = {"http://a:1,http://b:2", "http://c:3/x"};
  ASSERT_TRUE(config.Finish());
  EXPECT_EQ(config.recovery.start.peers.urls,
            (std::vector<std::string>{"http://a:1", "http://b:2", "http://c:3/x"}));
  EXPECT_EQ(config.service.instance_name.size(), 32u);
  for (const char* bad : {"abc", "", "http://a:1,", "https://a:1"}) {
    IndexerConfig wrong;
    wrong.recovery.start.peers.urls = {bad};
    EXPECT_FALSE(wrong.Finish()) << bad;
  }
}

TEST(IndexerConfig, TheSnapshotIsReadAndWritten) {
  IndexerConfig config;
  config::OptionTable table;
  config.Bind(table);
  ASSERT_TRUE(
      table.LoadYaml("snapshot: {path: /var/lib/s, interval_ms: 5, max_age_ms: 6}\n"
                     "recovery: {grace_ms: 7, waiting_blocks_max: 8, partition_blocks_max: 9}",
                     "test"));
  ASSERT_TRUE(config.Finish());
  const RecoveryConfig& recovery = config.recovery;
  EXPECT_EQ(recovery.snapshot.path, "/var/lib/s");
  EXPECT_EQ(recovery.snapshot.interval, Millis{5});
  EXPECT_EQ(recovery.start.snapshot_path, "/var/lib/s");
  EXPECT_EQ(recovery.start.snapshot_age_max, Millis{6});
  EXPECT_EQ(recovery.start.settle_max, Millis{7});
  // What this program writes it reads again.
  EXPECT_EQ(recovery.start.snapshot_reader.partition_blocks_max, 8u);
  EXPECT_EQ(recovery.start.peers.reader.partition_blocks_max, 9u);
  EXPECT_FALSE(table.LoadYaml("snapshot: {interval_ms: 0}", "test"));
}

TEST(IndexerConfig, Row188TraceHeader) {
  IndexerConfig config;
  config.service.trace_id_header = "a b";
  const auto finished = config.Finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().message, "access_log.trace_id_header `a b` is no name of a header");
}

TEST(IndexerConfig, InitialSourcesThatAreWrong) {
  struct Row {
    const char* worker;
    std::uint32_t block_size;
    const char* error;
  };
  for (const Row& row : {
           Row{"1=tcp://a:1", 0, "--workers needs --block-size"},
           Row{"1=t,1=u", 4, "--workers names instance 1 dp_rank 0 twice"},
           Row{"1=t,", 4, "expected worker_id[:dp_rank]=endpoint, got ``"},
           Row{"1:=t", 4, "expected worker_id[:dp_rank]=endpoint, got `1:=t`"},
           Row{"x=t", 4, "expected worker_id[:dp_rank]=endpoint, got `x=t`"},
       }) {
    IndexerConfig config;
    config.workers = {row.worker};
    config.block_size = row.block_size;
    const auto sources = config.InitialSources();
    ASSERT_FALSE(sources) << row.worker;
    EXPECT_EQ(sources.error().message, row.error);
  }
}

}  // namespace
}  // namespace kvr::cmd
