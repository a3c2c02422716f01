#include <cstdio>

#include <gtest/gtest.h>

#include "service/gateway/gateway_growth.h"

namespace kvr::service {
namespace {

TEST(GatewaySoak, AHundredThousandRequests) {
  const auto growth = testing::MeasureGrowth(100'000);
  std::printf("resident: %zu KiB after 10,000 requests, %zu KiB after 100,000\n",
              growth.resident_before >> 10, growth.resident_after >> 10);
  EXPECT_EQ(growth.failed, 0u);
  EXPECT_TRUE(growth.idle);
  EXPECT_EQ(growth.counted, 100'000);
  EXPECT_LE(growth.resident_after, growth.resident_before + testing::GrowthBytesMax());
}

}  // namespace
}  // namespace kvr::service
