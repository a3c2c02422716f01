#include "service/number_list.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace kvr::service {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(NumberList, IsCutOut) {
  const std::string text = R"( { "s\"[1]" : "[1,2]", "o":{"t":[3,[4]]}, "e":[], "n":-1.5e3,
      "t" : [ 5 ,6,	4294967295,0], "u":[7]} )";
  std::string rest;
  const auto list = CutNumberList(text, rest);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->field, "t");
  EXPECT_THAT(list->numbers, ElementsAre(5u, 6u, 4'294'967'295u, 0u));
  EXPECT_EQ(rest, R"( { "s\"[1]" : "[1,2]", "o":{"t":[3,[4]]}, "e":[], "n":-1.5e3,
      "t" : [ ], "u":[7]} )");
}

TEST(NumberList, IsLeftToTheParser) {
  for (const std::string_view text : {"",
                                      "{",
                                      "{}",
                                      "[1,2]",
                                      R"({"t":[]})",
                                      R"({"t":["1"]})",
                                      R"({"t":[1)",
                                      R"({"t":[1,])",
                                      R"({"t":[1,]})",
                                      R"({"t":[1 2]})",
                                      R"({"t":[1,,2]})",
                                      R"({"t":[,1]})",
                                      R"({"t":[01]})",
                                      R"({"t":[00]})",
                                      R"({"t":[1.0]})",
                                      R"({"t":[1e3]})",
                                      R"({"t":[-1]})",
                                      R"({"t":[1,-1]})",
                                      R"({"t":[4294967296]})",
                                      R"({"t":[18446744073709551617]})",
                                      R"({"t":[1,null]})",
                                      R"({"t":[1,[2]]})",
                                      R"({"\u0074":[1]})",
                                      R"({"o":{"t":[1]}})",
                                      R"({"a":"\",\"t\":[1]"})",
                                      R"({"a":1]"t":[1]})",
                                      R"({"a" "t":[1]})",
                                      R"({"t":[1}})"}) {
    std::string rest;
    EXPECT_FALSE(CutNumberList(text, rest)) << text;
  }
}

// Every length of a number at every place of a stride.
TEST(NumberList, ReadsWhatWasWritten) {
  Rng rng(7);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<std::uint32_t> numbers(1 + rng.Below(200));
    std::string text = "{\"" + std::string(rng.Below(70), 'k') + "\":[";
    const bool spaced = rng.Below(2) == 0;
    for (std::uint32_t& number : numbers) {
      number = static_cast<std::uint32_t>(rng.Below(std::uint64_t{1} << (1 + rng.Below(32))));
      if (&number != numbers.data()) text += spaced ? ", " : ",";
      text += std::to_string(number);
    }
    text += std::string(rng.Below(3), ' ') + "]}";
    std::string rest;
    const auto list = CutNumberList(text, rest);
    ASSERT_TRUE(list) << text;
    ASSERT_THAT(list->numbers, ElementsAreArray(numbers)) << text;
  }
}

// What is no ordinary number is seen wherever it stands among many that are.
TEST(NumberList, OddNumbersAmongOrdinaryOnes) {
  const struct {
    std::string_view text;
    std::optional<std::uint32_t> number;  // none: the parser has to read the list
  } rows[] = {{"", {}},
              {"01", {}},
              {"00000000", {}},
              {"4294967296", {}},
              {"12345678901", {}},
              {"1 2", {}},
              {"-1", {}},
              {"1.0", {}},
              {"null", {}},
              {"0", 0},
              {"12345678", 12'345'678},
              {"123456789", 123'456'789},
              {"4294967295", 4'294'967'295},
              {" 7", 7},
              {"7\n", 7}};
  constexpr std::size_t kNumbers = 60;
  for (const auto& row : rows) {
    for (std::size_t place = 0; place < kNumbers; ++place) {
      std::string text = R"({"t":[)";
      for (std::size_t i = 0; i < kNumbers; ++i) {
        if (i > 0) text += ',';
        text += i == place ? std::string(row.text) : std::to_string(i * 97);
      }
      text += "]}";
      std::string rest;
      const auto list = CutNumberList(text, rest);
      ASSERT_EQ(list.has_value(), row.number.has_value()) << text;
      if (!list) continue;
      ASSERT_EQ(list->numbers.size(), kNumbers);
      ASSERT_EQ(list->numbers[place], *row.number) << text;
      ASSERT_EQ(list->numbers[(place + 1) % kNumbers], (place + 1) % kNumbers * 97) << text;
    }
  }
}

}  // namespace
}  // namespace kvr::service
