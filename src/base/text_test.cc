#include "base/text.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr {
namespace {

using testing::ElementsAre;

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseNumber<std::uint16_t>("65535"), 65'535);
  EXPECT_EQ(ParseNumber<std::int64_t>("-7"), -7);
  EXPECT_EQ(ParseNumber<double>("2.5"), 2.5);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "0x1", "1.0", "65536"})
    EXPECT_FALSE(ParseNumber<std::uint16_t>(text)) << text;
}

TEST(ParseNumber, InAnotherBase) {
  EXPECT_EQ(ParseNumber<std::uint64_t>("fFffFfffFFffffff", 16), UINT64_MAX);
  for (const char* text : {"", "g", "0x1", "10000000000000000"})
    EXPECT_FALSE(ParseNumber<std::uint64_t>(text, 16)) << text;
}

TEST(Trim, CutsBlanksAtBothEnds) {
  EXPECT_EQ(Trim(" \t\r\na b\n"), "a b");
  EXPECT_EQ(Trim("a"), "a");
  EXPECT_EQ(Trim(" \n "), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(Split("a,bc", ','), ElementsAre("a", "bc"));
  EXPECT_THAT(Split(",a,", ','), ElementsAre("", "a", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
}

}  // namespace
}  // namespace kvr
