#include "tokens/token_cache.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace kvr::tokens {
namespace {

TokenList List(std::size_t n) {
  auto tokens = std::make_shared<std::vector<TokenId>>();
  tokens->assign(n, 7);
  return tokens;
}

TEST(TokenCache, FindsWhatWasPut) {
  TokenCache cache({});
  EXPECT_EQ(cache.Find("a"), nullptr);
  const TokenList list = List(3);
  cache.Put("a", list);
  EXPECT_EQ(cache.Find("a"), list);
  EXPECT_EQ(cache.Find("b"), nullptr);
  const auto stats = cache.stats();
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 2u);
}

TEST(TokenCache, TheLeastRecentlyUsedGivesWay) {
  // Three lists of 100 ids fit, four do not.
  TokenCache cache({.bytes_max = 3 * (400 + 160) + 100});
  cache.Put("a", List(100));
  cache.Put("b", List(100));
  cache.Put("c", List(100));
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Put("d", List(100));
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("c"), nullptr);
  EXPECT_NE(cache.Find("d"), nullptr);
  EXPECT_EQ(cache.stats().evicted, 1u);
}

TEST(TokenCache, BytesNeverPassTheMaximum) {
  constexpr std::size_t kMax = 10'000;
  TokenCache cache({.bytes_max = kMax});
  for (std::size_t i = 0; i < 1'000; ++i) {
    cache.Put(std::to_string(i % 50), List(i % 300));
    ASSERT_LE(cache.stats().bytes, kMax);
  }
  EXPECT_GT(cache.stats().entries, 0u);
}

TEST(TokenCache, ReplacingDoesNotCountTwice) {
  TokenCache cache({});
  cache.Put("a", List(100));
  const auto before = cache.stats();
  cache.Put("a", List(100));
  EXPECT_EQ(cache.stats().bytes, before.bytes);
  EXPECT_EQ(cache.stats().entries, 1u);
}

TEST(TokenCache, TooLargeAListIsNotKept) {
  TokenCache cache({.bytes_max = 1'000});
  cache.Put("small", List(10));
  cache.Put("large", List(1'000));
  EXPECT_EQ(cache.Find("large"), nullptr);
  EXPECT_NE(cache.Find("small"), nullptr);
  TokenCache off({.bytes_max = 0});
  off.Put("a", List(0));
  EXPECT_EQ(off.Find("a"), nullptr);
}

}  // namespace
}  // namespace kvr::tokens
