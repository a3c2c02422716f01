#include "cmd/gateway_config.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "config/option_table.h"

namespace kvr::cmd {
namespace {

using std::chrono::seconds;

TEST(GatewayConfig, BookingsOutlastTheSilenceThatEnginesAreGranted) {
  struct Row {
    Millis connect;
    Millis read;
    Nanos expiry;
  };
  const Row rows[] = {
      {seconds(2), seconds(600), seconds(1'202)},
      {seconds(2), seconds(30), load::BookOptions{}.expiry},
      {Millis::max(), Millis::max(), 3 * std::chrono::hours(24 * 365)},
  };
  for (const Row& row : rows) {
    GatewayConfig config;
    config.client.connect_timeout = row.connect;
    config.client.read_timeout = row.read;
    ASSERT_TRUE(config.Finish());
    EXPECT_EQ(config.router.load.expiry, row.expiry);
  }
}

WorkerConfig Worker(std::uint64_t id, std::uint32_t block_size, std::string group) {
  WorkerConfig worker;
  worker.spec.id = WorkerId{id};
  worker.spec.block_size = block_size;
  worker.spec.partition = {"m", std::move(group)};
  return worker;
}

TEST(GatewayConfig, WorkersThatContradictEachOtherAreFoundBeforeTheStart) {
  struct Row {
    WorkerConfig second;
    const char* error;  // null: none
  };
  const Row rows[] = {
      {Worker(2, 16, "a"), nullptr},
      {Worker(2, 32, "b"), nullptr},
      {Worker(1, 16, "a"), "worker id 1 is given twice; ids tell workers apart, choose another"},
      {Worker(2, 32, "a"),
       "worker 2: block size 32, but other workers of model `m` in routing group `a` have 16; give "
       "it a routing group of its own"},
  };
  for (const Row& row : rows) {
    GatewayConfig config;
    config.workers = {Worker(1, 16, "a"), row.second};
    const auto finished = config.Finish();
    ASSERT_EQ(finished.has_value(), row.error == nullptr);
    if (finished) continue;
    EXPECT_EQ(finished.error().message, row.error);
    EXPECT_EQ(ExitCode(finished.error().code), 2);
  }
}

TEST(GatewayConfig, KeysWithoutANameAreFoldedUnlessToldOtherwise) {
  GatewayConfig config;
  EXPECT_EQ(config.server.ingest.unmapped_keys, placement::UnmappedKeys::kFold);
  config::OptionTable table;
  config.Bind(table);
  ASSERT_TRUE(table.LoadYaml("identity: {unmapped_keys: ignore}", "test"));
  EXPECT_EQ(config.server.ingest.unmapped_keys, placement::UnmappedKeys::kIgnore);
  ASSERT_TRUE(table.LoadEnvironment({{"KVR_IDENTITY_UNMAPPED_KEYS", "fold"}}));
  EXPECT_EQ(config.server.ingest.unmapped_keys, placement::UnmappedKeys::kFold);
  EXPECT_FALSE(table.LoadYaml("identity: {unmapped_keys: drop}", "test"));
}

}  // namespace
}  // namespace kvr::cmd
