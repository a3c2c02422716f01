#include "service/gateway/gateway_growth.h"

#include <gtest/gtest.h>

namespace kvr::service {
namespace {

TEST(GatewayGrowth, FiveThousandRequests) {
  const auto growth = testing::MeasureGrowth(5'000);
  EXPECT_EQ(growth.failed, 0u);
  EXPECT_TRUE(growth.idle);
  EXPECT_EQ(growth.counted, 5'000);
  EXPECT_LE(growth.resident_after, growth.resident_before + testing::GrowthBytesMax());
}

}  // namespace
}  // namespace kvr::service
