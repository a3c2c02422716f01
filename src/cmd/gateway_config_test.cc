#include "cmd/gateway_config.h"

#include <chrono>

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
