#include "placement/event_translator.h"

#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hex.h"

namespace kvr::placement {
namespace {

using ::testing::ElementsAre;

std::vector<std::byte> Bytes(std::string_view hex) {
  auto bytes = FromHex(hex);
  EXPECT_TRUE(bytes);
  return *bytes;
}

TEST(EventTranslator, B10GoldenPositionalBatch) {
  EventTranslator translator({.rank = {WorkerId{7}, 0}, .block_size = 4});
  PlacementBatch batch;
  ASSERT_TRUE(translator.Translate(Bytes("93cb3ff80000000000009197ab426c6f636b53746f726564920102c09"
                                         "8010203040506070804c0a347505500"),
                                   batch));
  EXPECT_EQ(batch.ts, 1.5);
  EXPECT_EQ(batch.dp_rank, 0u);
  ASSERT_EQ(batch.events.size(), 1u);
  const PlacementEvent& event = batch.events[0];
  EXPECT_EQ(event.kind, PlacementKind::kStored);
  EXPECT_EQ(event.rank, (Rank{WorkerId{7}, 0}));
  EXPECT_EQ(event.parent, std::nullopt);
  EXPECT_TRUE(event.eligible);
  EXPECT_THAT(event.blocks,
              ElementsAre(PlacedBlock{EngineHash{1}, BlockHash{14643705804678351452u}},
                          PlacedBlock{EngineHash{2}, BlockHash{16777012769546811212u}}));
}

TEST(EventTranslator, B11GoldenMapBatch) {
  EventTranslator translator({.rank = {WorkerId{7}, 0}, .block_size = 4});
  PlacementBatch batch;
  ASSERT_TRUE(translator.Translate(
      Bytes(
          "93cb3ff80000000000009183a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739"
          "1ffa66d656469756da343505503"),
      batch));
  ASSERT_EQ(batch.events.size(), 1u);
  EXPECT_EQ(batch.events[0].kind, PlacementKind::kRemoved);
  EXPECT_EQ(batch.events[0].tier, Tier::kHostPinned);
  EXPECT_EQ(batch.events[0].rank, (Rank{WorkerId{7}, 3}));
  EXPECT_THAT(batch.events[0].removed, ElementsAre(EngineHash{0xFFFFFFFFFFFFFFFFu}));
}

}  // namespace
}  // namespace kvr::placement
