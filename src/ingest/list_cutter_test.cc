#include "ingest/list_cutter.h"

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "wire/json_items.h"

namespace kvr::ingest {
namespace {

// "a|b." are two items of a list that ended, "a|b" of one that did not, "a|b!" of one that is none
// after all.
std::string Cut(std::string_view list, std::size_t piece_bytes, std::size_t item_bytes_max = 1000) {
  ListCutter cutter(item_bytes_max);
  std::string text;
  for (; !list.empty(); list.remove_prefix(std::min(piece_bytes, list.size()))) {
    std::string_view piece = list.substr(0, piece_bytes);
    while (true) {
      const auto step = cutter.Take(piece);
      if (step == ListCutter::Step::kMore) break;
      if (step == ListCutter::Step::kWrong) return text + "!";
      text += fmt::format("{}{}{}", text.empty() ? "" : "|", cutter.item(),
                          cutter.too_long() ? "~" : "");
    }
  }
  return text + (cutter.ended() ? "." : "");
}

// Wherever the list is torn on its way.
TEST(ListCutter, ItemsAreCutAtTheirCommas) {
  const struct {
    std::string_view list;
    std::string_view items;
  } rows[] = {
      {"[]", "."},
      {" [ ] \n", "."},
      {"[1]", "1."},
      {" [1,[2,3] ,{\"a\":[4,{}]}]\n", "1|[2,3] |{\"a\":[4,{}]}."},
      {R"(["a]\"",b,"\\",{"}":","}])", R"("a]\""|b|"\\"|{"}":","}.)"},
      {R"({"a":[1,2]})", R"({"a":[1,2]}.)"},
      {"[1,,2]", "1||2."},
      {"[1}2]", "1}2."},
      {"[1,2", "1"},
      {R"([1,"2])", "1"},
      {"[", ""},
      {"", ""},
      {"7", "!"},
      {"<html>", "!"},
      {"[1] 2", "1!"},
      {"{}{}", "{}!"},
  };
  for (const auto& row : rows) {
    for (const std::size_t piece : {1u, 2u, 3u, 5u, 100u})
      EXPECT_EQ(Cut(row.list, piece), row.items) << row.list << " in pieces of " << piece;
  }
}

// The decoder cuts what it gets once more.
TEST(ListCutter, ItemsAreThoseOfTheDecoder) {
  for (const std::string_view list :
       {"[1,{\"a\":[1,\"]\"]},,\"\\\"\" , }3]", "[[[1],2],{}]", "[\"\\\\\",2]"}) {
    wire::JsonItems items(std::as_bytes(std::span(list)));
    std::string text;
    for (auto item = items.Next(); item; item = items.Next())
      text += fmt::format("{}{}", text.empty() ? "" : "|", *item);
    EXPECT_EQ(Cut(list, 3), text + ".");
  }
}

TEST(ListCutter, OfALongItemOnlyTheBeginningIsKept) {
  EXPECT_EQ(Cut("[1,[1,2,3,4],5]", 2, 4), "1|[1,2~|5.");
  EXPECT_EQ(Cut("[1,[1,2],5]", 2, 5), "1|[1,2]|5.");
}

TEST(ListCutter, BeginsAnew) {
  ListCutter cutter(10);
  std::string_view torn = "[1,\"a";
  EXPECT_EQ(cutter.Take(torn), ListCutter::Step::kItem);
  EXPECT_EQ(cutter.Take(torn), ListCutter::Step::kMore);
  cutter.Reset();
  std::string_view list = "[2]";
  EXPECT_EQ(cutter.Take(list), ListCutter::Step::kItem);
  EXPECT_EQ(cutter.item(), "2");
}

}  // namespace
}  // namespace kvr::ingest
