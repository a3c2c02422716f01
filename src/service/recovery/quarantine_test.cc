#include "service/recovery/quarantine.h"

#include <gtest/gtest.h>

namespace kvr::service {
namespace {

constexpr Rank kOne{WorkerId{1}, 0};
constexpr Rank kTwo{WorkerId{2}, 3};
const Partition kPartition{"m", "g"};

RecoveredPartition Known(std::initializer_list<Rank> ranks, std::size_t blocks = 2,
                         std::uint32_t block_size = 4) {
  RecoveredPartition partition;
  partition.partition = kPartition;
  partition.block_size = block_size;
  for (const Rank rank : ranks) {
    partition.ranks[rank].held.blocks.resize(blocks);
    partition.ranks[rank].watermark = blocks;
    partition.blocks += blocks;
  }
  return partition;
}

TEST(Quarantine, HandsARankOverOnce) {
  Quarantine quarantine({});
  ASSERT_TRUE(quarantine.Add(Known({kOne, kTwo}), Nanos{0}));
  EXPECT_EQ(quarantine.ranks(), 2u);
  EXPECT_EQ(quarantine.blocks(), 4u);
  const auto taken = quarantine.Take(kOne, kPartition, 4, Nanos{0});
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->held.blocks.size(), 2u);
  EXPECT_EQ(taken->watermark, 2u);
  EXPECT_FALSE(quarantine.Take(kOne, kPartition, 4, Nanos{0}));
  EXPECT_EQ(quarantine.blocks(), 2u);
}

TEST(Quarantine, AnotherPartitionOrBlockSizeMakesItUseless) {
  Quarantine quarantine({});
  ASSERT_TRUE(quarantine.Add(Known({kOne, kTwo}), Nanos{0}));
  EXPECT_FALSE(quarantine.Take(kOne, kPartition, 8, Nanos{0}));
  EXPECT_FALSE(quarantine.Take(kTwo, {"m", "other"}, 4, Nanos{0}));
  EXPECT_EQ(quarantine.ranks(), 0u);
  EXPECT_EQ(quarantine.blocks(), 0u);
}

// The file is read first, then the peers' dumps come.
TEST(Quarantine, OfTwoPicturesTheOneWithTheHigherWatermarkStays) {
  using Watermark = std::optional<std::uint64_t>;
  const struct {
    Watermark first;
    Watermark second;
    bool replaced;
  } rows[] = {
      {5, 6, true},   {5, 5, false},           {5, 4, false},
      {5, {}, false}, {std::nullopt, 4, true}, {std::nullopt, std::nullopt, true},
  };
  for (const auto& row : rows) {
    Quarantine quarantine({});
    RecoveredPartition first = Known({kOne, kTwo}, 2);
    first.ranks[kOne].watermark = row.first;
    ASSERT_TRUE(quarantine.Add(std::move(first), Nanos{0}));
    RecoveredPartition second = Known({kOne}, 3);
    second.ranks[kOne].watermark = row.second;
    ASSERT_TRUE(quarantine.Add(std::move(second), Nanos{0}));
    EXPECT_EQ(quarantine.blocks(), row.replaced ? 5u : 4u);
    EXPECT_EQ(quarantine.ranks(), 2u);
    const auto taken = quarantine.Take(kOne, kPartition, 4, Nanos{0});
    EXPECT_EQ(taken->watermark, row.replaced ? row.second : row.first);
    EXPECT_EQ(taken->held.blocks.size(), row.replaced ? 3u : 2u);
  }
}

TEST(Quarantine, WhatIsReplacedMakesRoom) {
  Quarantine::Options options;
  options.blocks_max = 5;
  options.ranks_max = 1;
  Quarantine quarantine(options);
  ASSERT_TRUE(quarantine.Add(Known({kOne}, 4), Nanos{0}));
  EXPECT_TRUE(quarantine.Add(Known({kOne}, 5), Nanos{0}));
  EXPECT_FALSE(quarantine.Add(Known({kOne}, 6), Nanos{0}));
  EXPECT_EQ(quarantine.blocks(), 5u);
}

TEST(Quarantine, Row99DropsAfterTheGrace) {
  Quarantine::Options options;
  options.grace = Millis{100};
  Quarantine quarantine(options);
  ASSERT_TRUE(quarantine.Add(Known({kOne}), Nanos{0}));
  ASSERT_TRUE(quarantine.Add(Known({kTwo}), Millis{50}));
  EXPECT_EQ(quarantine.DropExpired(Millis{99}), 0u);
  EXPECT_EQ(quarantine.DropExpired(Millis{100}), 1u);
  EXPECT_EQ(quarantine.blocks(), 2u);
  // Who was registered before the blocks came does not lose them, however late they are taken.
  ASSERT_TRUE(quarantine.Add(Known({kOne}), Millis{60}));
  EXPECT_TRUE(quarantine.Take(kOne, kPartition, 4, Millis{10}));
  // Also when nobody looked in time.
  EXPECT_FALSE(quarantine.Take(kTwo, kPartition, 4, Millis{150}));
}

TEST(Quarantine, Limits) {
  Quarantine::Options options;
  options.blocks_max = 5;
  options.ranks_max = 2;
  Quarantine quarantine(options);
  ASSERT_TRUE(quarantine.Add(Known({kOne}, 3), Nanos{0}));
  const auto refused = quarantine.Add(Known({kTwo}, 3), Nanos{0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(quarantine.Add(Known({kTwo}, 2), Nanos{0}));
  EXPECT_FALSE(quarantine.Add(Known({Rank{WorkerId{3}, 0}}, 0), Nanos{0}));
  EXPECT_EQ(quarantine.ranks(), 2u);
  EXPECT_EQ(quarantine.blocks(), 5u);
}

}  // namespace
}  // namespace kvr::service
