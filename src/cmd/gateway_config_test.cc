#include "cmd/gateway_config.h"

#include <chrono>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kvr::cmd
