#include "hashing/cache_salt.h"

#include <gtest/gtest.h>

namespace kvr::hashing {
namespace {

TEST(CacheSalt, OneTagIsTakenOff) {
  EXPECT_EQ(NamedSalt("t"), "t");
  EXPECT_EQ(NamedSalt(""), "");
  EXPECT_EQ(NamedSalt("dynamo-cache-salt:t"), "t");
  EXPECT_EQ(NamedSalt("dynamo-cache-salt:"), "");
  EXPECT_EQ(NamedSalt("dynamo-cache-salt:dynamo-cache-salt:t"), "dynamo-cache-salt:t");
  EXPECT_EQ(NamedSalt("x-dynamo-cache-salt:t"), "x-dynamo-cache-salt:t");
}

}  // namespace
}  // namespace kvr::hashing
