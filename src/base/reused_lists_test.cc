#include "base/reused_lists.h"

#include <gtest/gtest.h>

namespace kvr {
namespace {

TEST(ReusedLists, KeepRoomOfOrdinaryListsAndGiveBackThatOfOthers) {
  ReusedLists lists;
  std::vector<char> ordinary(ReusedLists::kKeptBytesMax);
  std::vector<std::uint64_t> extraordinary(ReusedLists::kKeptBytesMax / 8 + 1);
  for (std::uint32_t i = 1; i < ReusedLists::kLookEvery; ++i) {
    lists.Empty(ordinary, extraordinary);
    ASSERT_TRUE(ordinary.empty());
    ASSERT_TRUE(extraordinary.empty());
    ASSERT_GT(extraordinary.capacity(), 0u) << "looked at only once in a while";
  }
  lists.Empty(ordinary, extraordinary);
  EXPECT_EQ(ordinary.capacity(), ReusedLists::kKeptBytesMax);
  EXPECT_EQ(extraordinary.capacity(), 0u);
}

}  // namespace
}  // namespace kvr
