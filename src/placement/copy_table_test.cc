#include "placement/copy_table.h"

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
