#include "placement/copy_table.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::placement {
namespace {

// Against a map, with few hashes, so that runs of neighbours form, meet and break; 0 is among them.
TEST(CopyTable, EqualsAMap) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    CopyTable table(1'000);
    std::map<std::uint64_t, std::uint32_t> expected;
    for (std::uint32_t step = 1; step <= 3'000; ++step) {
      const std::uint64_t raw = rng.Below(400) << (rng.Below(2) * 55);
      const EngineHash hash{raw};
      if (rng.Below(3) == 0) {
        BlockRecord* const record = table.Find(hash);
        ASSERT_EQ(record != nullptr, expected.erase(raw) == 1);
        if (record != nullptr) table.Erase(record);
        continue;
      }
      BlockRecord* const record = table.Add(hash);
      ASSERT_NE(record, nullptr);
      const auto known = expected.find(raw);
      ASSERT_EQ(record->copies[0], known == expected.end() ? 0u : known->second);
      expected[raw] = record->copies[0] = step;
      if (rng.Below(1'000) == 0) {
        table.Clear();
        expected.clear();
      }
    }
    for (const auto& [raw, copies] : expected) {
      ASSERT_NE(table.Find(EngineHash{raw}), nullptr);
      EXPECT_EQ(table.Find(EngineHash{raw})->copies[0], copies);
    }
  }
}

TEST(CopyTable, TakesNoMoreThanItsMaximum) {
  CopyTable table(3);
  for (std::uint64_t raw = 0; raw < 3; ++raw)
    EXPECT_NE(table.Add(EngineHash{raw}), nullptr);
  EXPECT_EQ(table.Add(EngineHash{7}), nullptr);
  EXPECT_NE(table.Add(EngineHash{0}), nullptr);
  table.Erase(table.Find(EngineHash{0}));
  EXPECT_NE(table.Add(EngineHash{7}), nullptr);
  EXPECT_EQ(table.Find(EngineHash{0}), nullptr);
}

// Fills it far and empties it to a few, which are still found.
TEST(CopyTable, GivesRoomBackAsItEmpties) {
  constexpr std::uint64_t kMany = 100'000;
  constexpr std::uint64_t kFew = 20;
  constexpr std::size_t kKept = 1'024;
  CopyTable table(kMany);
  for (std::uint64_t raw = 1; raw <= kMany; ++raw)
    table.Add(EngineHash{raw})->copies[0] = static_cast<std::uint32_t>(raw);
  EXPECT_GE(table.bytes(), kMany * 40);
  for (std::uint64_t raw = kFew + 1; raw <= kMany; ++raw) {
    table.Erase(table.Find(EngineHash{raw}));
    ASSERT_LE(table.bytes(), 40 * std::max<std::size_t>(kKept, 8 * (table.size() + 1)));
  }
  EXPECT_EQ(table.bytes(), 40 * kKept);
  for (std::uint64_t raw = 1; raw <= kFew; ++raw) {
    ASSERT_NE(table.Find(EngineHash{raw}), nullptr);
    EXPECT_EQ(table.Find(EngineHash{raw})->copies[0], raw);
  }
  for (std::uint64_t raw = kFew; raw <= kMany; ++raw)
    table.Add(EngineHash{raw});
  table.Clear();
  EXPECT_EQ(table.bytes(), 0u);
  EXPECT_EQ(table.Find(EngineHash{1}), nullptr);
  ASSERT_NE(table.Add(EngineHash{1}), nullptr);
  EXPECT_EQ(table.Find(EngineHash{1})->copies[0], 0u);
}

// Around any size, a rank that takes and gives a tenth of its blocks keeps its room.
TEST(CopyTable, KeepsItsRoomInSteadyState) {
  for (const std::uint64_t size : {50u, 500u, 511u, 512u, 6'000u, 6'144u}) {
    SCOPED_TRACE(size);
    CopyTable table(10'000);
    for (std::uint64_t raw = 1; raw <= size; ++raw)
      table.Add(EngineHash{raw});
    const auto turn = [&] {
      for (std::uint64_t raw = 1; raw <= size / 10; ++raw)
        table.Erase(table.Find(EngineHash{raw}));
      const std::size_t low = table.bytes();
      for (std::uint64_t raw = 1; raw <= size / 10; ++raw)
        table.Add(EngineHash{raw});
      EXPECT_EQ(table.bytes(), low);
    };
    for (int i = 0; i < 3; ++i)
      turn();
  }
}

TEST(CopyTable, ForgetsCountsAndKeepsSalts) {
  CopyTable table(10);
  BlockRecord* record = table.Add(EngineHash{5});
  record->copies[1] = 2;
  record->salt_state = SaltState::kSalted;
  table.ForgetCounts();
  record = table.Find(EngineHash{5});
  EXPECT_EQ(record->copies[1], 0u);
  EXPECT_EQ(record->salt_state, SaltState::kSalted);
}

TEST(CopyTable, CountsStayForgottenHoweverOftenTheyAre) {
  CopyTable table(10);
  for (const std::uint64_t raw : {0u, 5u})
    table.Add(EngineHash{raw})->copies[1] = 2;
  for (int i = 0; i < 65'536; ++i)
    table.ForgetCounts();
  for (const std::uint64_t raw : {0u, 5u})
    EXPECT_EQ(table.Find(EngineHash{raw})->copies[1], 0u);
}

}  // namespace
}  // namespace kvr::placement
