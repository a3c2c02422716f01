#include "cmd/descriptor_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace kvr::cmd {
namespace {

using ::testing::HasSubstr;

rlimit Limit() {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(DescriptorLimit, IsRaisedToTheHardOne) {
  const rlimit before = Limit();
  rlimit low = before;
  low.rlim_cur = 40;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseDescriptorLimit(41), std::nullopt);
  EXPECT_EQ(Limit().rlim_cur, before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(DescriptorLimit, SaysWhenTheHardOneIsTooLow) {
  const auto warning = RaiseDescriptorLimit(RLIM_INFINITY);
  if (Limit().rlim_max == RLIM_INFINITY) {
    EXPECT_EQ(warning, std::nullopt);
  } else {
    ASSERT_TRUE(warning);
    EXPECT_THAT(*warning, HasSubstr("at most " + std::to_string(Limit().rlim_max) + " files"));
  }
}

}  // namespace
}  // namespace kvr::cmd
