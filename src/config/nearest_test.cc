#include "config/nearest.h"

#include <vector>

#include <gtest/gtest.h>

namespace kvr::config {
namespace {

TEST(Suggest, NamesTheNearestOrAll) {
  const std::vector<std::string> known = {"port", "host", "queue_max", "block_size"};
  EXPECT_EQ(Suggest("prot", known), "did you mean `port`?");
  EXPECT_EQ(Suggest("ports", known), "did you mean `port`?");
  EXPECT_EQ(Suggest("blocksize", known), "did you mean `block_size`?");
  EXPECT_EQ(Suggest("queue-max", known), "did you mean `queue_max`?");
  EXPECT_EQ(Suggest("zebra", known), "known: port, host, queue_max, block_size");
  EXPECT_EQ(Suggest("", known), "known: port, host, queue_max, block_size");
  EXPECT_EQ(Suggest("x", {}), "");
  const std::vector<std::string> short_names = {"a"};
  EXPECT_EQ(Suggest("zz", short_names), "known: a");
}

}  // namespace
}  // namespace kvr::config
