#include "cmd/recovery_config.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/option_table.h"

namespace kvr::cmd {
namespace {

void BindSnapshot(RecoveryConfig& config, config::OptionTable& table) {
  table.Bind("snapshot", "path", &config.snapshot.path,
             "File that keeps what is known for the next start; empty: none");
  table.Bind("snapshot", "interval_ms", &config.snapshot.interval,
             "Between two snapshots; one more is written at the end", Millis{1});
  table.Bind("snapshot", "max_age_ms", &config.start.snapshot_age_max,
             "An older snapshot is refused at the start; 0: none is too old");
}

void BindPeers(RecoveryConfig& config, config::OptionTable& table) {
  service::WarmStart::Options& start = config.start;
  table
      .Bind("recovery", "peers", &start.peers.urls,
            "Base URLs of other routers, separated by commas, to fetch what they know at start")
      .Flag("--peers")
      .Was("peers");
  table
      .Bind("recovery", "grace_ms", &config.quarantine.grace,
            "How long blocks that peers or the snapshot knew wait for their worker")
      .Flag("--recovery-grace-ms,--peer-grace");
  table.Bind("recovery", "ready_wait_ms", &start.ready_wait,
             "How long GET /ready says no at most while the snapshot is read and peers are asked");
  table.Bind("recovery", "hold_ms", &start.hold_max,
             "How long event streams wait at most for the snapshot and the peers' dump");
  table.Bind("recovery", "connect_timeout_ms", &start.peers.connect_timeout, "To reach a peer",
             Millis{1});
  table.Bind("recovery", "idle_timeout_ms", &start.peers.idle_timeout, "Longest silence of a peer",
             Millis{1});
  table.Bind("recovery", "retry_first_ms", &start.retry_first,
             "Pause after a round in which no peer answered; doubles", Millis{1});
  table.Bind("recovery", "retry_max_ms", &start.retry_max, "Longest such pause", Millis{1});
  table
      .Bind("recovery", "dump_bytes_max", &start.peers.reader.dump_bytes_max,
            "Longest dump; beyond, what is complete of it is used and the next peer asked",
            std::uint64_t{1})
      .Unit("bytes");
  table
      .Bind("recovery", "partition_blocks_max", &start.peers.reader.partition_blocks_max,
            "Blocks of one partition in a peer's dump; beyond, the partition is not used")
      .Unit("blocks");
  table
      .Bind(
          "recovery", "waiting_blocks_max", &config.quarantine.blocks_max,
          "Blocks that wait for their worker, and those of one partition in a snapshot; beyond, a "
          "partition is not used")
      .Unit("blocks");
}

}  // namespace

void RecoveryConfig::Bind(config::OptionTable& table) {
  BindSnapshot(*this, table);
  BindPeers(*this, table);
}

Result<void> RecoveryConfig::Finish() {
  std::vector<std::string> urls;
  for (const std::string& given : start.peers.urls) {
    for (const std::string_view url : Split(given, ','))
      urls.emplace_back(url);
  }
  start.peers.urls = std::move(urls);
  start.peers.self = service::MakeInstanceName();
  start.snapshot_path = snapshot.path;
  start.snapshot_reader.partition_blocks_max = quarantine.blocks_max;
  start.settle_max = quarantine.grace;
  KVR_TRY_VOID(snapshot.Validate());
  return start.Validate();
}

}  // namespace kvr::cmd
