#include "hashing/mm_pads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::hashing {
namespace {

using testing::ElementsAre;

constexpr TokenId kImage = 151655;
constexpr TokenId kVideo = 151656;
constexpr MmHash kMm = 0x0123456789abcdef;

std::vector<TokenId> Substituted(std::vector<TokenId> window, const std::vector<MmHash>& objects,
                                 const Placeholders& placeholders = {.image = kImage}) {
  SubstitutePads(window, placeholders, objects);
  return window;
}

TEST(PadToken, C21Vectors) {
  EXPECT_EQ(PadToken(42), 1000042u);
  EXPECT_EQ(PadToken(9533257059414191570u), 49115154u);
  EXPECT_EQ(PadToken(kMm), 163254319u);
  EXPECT_EQ(PadToken(~MmHash{0}), 1'000'000u + (1u << 30) - 1);  // the largest fits
}

TEST(HashBlockWithPads, C15OneRun) {
  std::vector<TokenId> scratch;
  const TokenId window[] = {1, kImage, kImage, 2};
  const MmHash objects[] = {kMm};
  EXPECT_EQ(Raw(HashBlockWithPads(window, Seed(), {.image = kImage}, objects, scratch)),
            11976489796984064783u);
}

TEST(HashBlockWithPads, C16NoObjectIsThePlainHash) {
  std::vector<TokenId> scratch;
  const TokenId window[] = {1, kImage, kImage, 2};
  EXPECT_EQ(HashBlockWithPads(window, Seed(), {.image = kImage}, {}, scratch),
            HashBlock(window, Seed()));
}

TEST(HashBlockWithPads, NothingToSubstituteNeverLooksLikePlainText) {
  std::vector<TokenId> scratch;
  const TokenId window[] = {1, kImage, kImage, 2};
  const MmHash objects[] = {kMm};
  for (const Placeholders& placeholders : {Placeholders{}, Placeholders{.image = kVideo}}) {
    EXPECT_EQ(HashBlockWithPads(window, Seed(), placeholders, objects, scratch),
              HashBlock(window, Seed(), objects));
  }
}

TEST(SubstitutePads, RunsTakeObjectsInOrder) {
  EXPECT_THAT(Substituted({kImage, 5, kImage, kImage}, {1, 2}),
              ElementsAre(1000001, 5, 1000002, 1000002));
}

TEST(SubstitutePads, C17MoreRunsThanObjects) {
  EXPECT_THAT(Substituted({kImage, 5, kImage, 6}, {1}), ElementsAre(1000001, 5, 1000001, 6));
}

TEST(SubstitutePads, C18MoreObjectsThanRuns) {
  EXPECT_THAT(Substituted({4, kImage, kImage, 6}, {1, 2}), ElementsAre(4, 1000001, 1000001, 6));
}

TEST(SubstitutePads, CountsRuns) {
  std::vector<TokenId> window = {kImage, 5, kImage, 6};
  const MmHash objects[] = {1};
  EXPECT_EQ(SubstitutePads(window, {.image = kImage}, objects), 2u);
  EXPECT_EQ(SubstitutePads(window, {.image = kImage}, objects), 0u);
}

TEST(SubstitutePads, VideoRunsLikewise) {
  EXPECT_THAT(Substituted({kImage, kVideo, kVideo, 6}, {1, 2}, {.image = kImage, .video = kVideo}),
              ElementsAre(1000001, 1000002, 1000002, 6));
  EXPECT_THAT(Substituted({kImage, kVideo, kVideo, 6}, {1, 2}, {.video = kVideo}),
              ElementsAre(kImage, 1000001, 1000001, 6));
}

TEST(SubstitutePads, APadThatLooksLikeAPlaceholderIsNotReplacedAgain) {
  const TokenId odd = PadToken(3);
  EXPECT_THAT(Substituted({odd, odd, 1, odd}, {3, 4}, {.image = odd}),
              ElementsAre(odd, odd, 1, PadToken(4)));
}

}  // namespace
}  // namespace kvr::hashing
