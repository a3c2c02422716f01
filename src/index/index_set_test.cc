#include "index/index_set.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kvr::index {
namespace {

TEST(IndexOptions, RefusesZeroAndTooManyBlocks) {
  EXPECT_TRUE(IndexOptions{}.Validate().has_value());
  IndexOptions options;
  options.ranks_max = 0;
  EXPECT_FALSE(options.Validate().has_value());
  options = {};
  options.blocks_max = 0;
  EXPECT_FALSE(options.Validate().has_value());
  options.blocks_max = 0xFFFF'FFFFu;
  EXPECT_FALSE(options.Validate().has_value());
}

TEST(IndexSet, OneIndexAPartition) {
  IndexSet set{IndexOptions{}};
  const auto a = set.GetOrCreate({"llama", "default"}, 16);
  const auto again = set.GetOrCreate({"llama", "default"}, 16);
  const auto other_group = set.GetOrCreate({"llama", "canary"}, 64);
  ASSERT_TRUE(a && again && other_group);
  EXPECT_EQ(a->get(), again->get());
  EXPECT_NE(a->get(), other_group->get());
  EXPECT_EQ((*other_group)->block_size, 64u);
  EXPECT_EQ(set.Find({"llama", "default"}), *a);
  EXPECT_EQ(set.Find({"qwen", "default"}), nullptr);
  EXPECT_EQ(set.size(), 2u);
}

TEST(IndexSet, NamesBothBlockSizesOnConflict) {
  IndexSet set{IndexOptions{}};
  ASSERT_TRUE(set.GetOrCreate({"llama"}, 16));
  const auto conflict = set.GetOrCreate({"llama"}, 32);
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(conflict.error().message.find("16"), std::string::npos) << conflict.error().message;
  EXPECT_NE(conflict.error().message.find("32"), std::string::npos) << conflict.error().message;
  EXPECT_EQ(set.GetOrCreate({"llama"}, 0).error().code, ErrorCode::kInvalidArgument);
}

TEST(IndexSet, AFailedCreationLeavesNothingBehind) {
  IndexSet set{IndexOptions{}};
  EXPECT_FALSE(set.GetOrCreate({"llama"}, 0));
  EXPECT_EQ(set.size(), 0u);
}

TEST(IndexSet, ARemovedIndexLivesOnForItsHolders) {
  IndexSet set{IndexOptions{}};
  const auto held = *set.GetOrCreate({"llama"}, 16);
  EXPECT_TRUE(set.Remove({"llama"}));
  EXPECT_FALSE(set.Remove({"llama"}));
  EXPECT_EQ(set.Find({"llama"}), nullptr);
  EXPECT_TRUE(held->index->AddRank(Rank{WorkerId{1}, 0}));
  EXPECT_EQ((*set.GetOrCreate({"llama"}, 32))->block_size, 32u);
}

TEST(IndexSet, ListIsOrdered) {
  IndexSet set{IndexOptions{}};
  for (const char* model : {"b", "c", "a"})
    ASSERT_TRUE(set.GetOrCreate({model}, 16));
  std::string names;
  for (const auto& entry : set.List())
    names += entry->partition.model_name;
  EXPECT_EQ(names, "abc");
}

TEST(IndexSet, ConcurrentCreatorsGetTheSameIndex) {
  IndexSet set{IndexOptions{}};
  std::vector<std::shared_ptr<PartitionIndex>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : got)
      threads.emplace_back([&set, &mine] { mine = *set.GetOrCreate({"llama"}, 16); });
  }
  for (const auto& mine : got)
    EXPECT_EQ(mine, got[0]);
}

}  // namespace
}  // namespace kvr::index
