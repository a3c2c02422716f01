#include "sim/word_tokenizer.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvr::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const WordTokenizer kTokenizer(1'000);

TEST(WordTokenizer, NumberedWordsAreTheirNumber) {
  EXPECT_THAT(kTokenizer.Encode("w0 w5 w999"), ElementsAre(0u, 5u, 999u));
  EXPECT_THAT(kTokenizer.Encode(" w7"), ElementsAre(7u));
}

TEST(WordTokenizer, IdsSurviveTheWayToTextAndBack) {
  std::vector<TokenId> ids(1'000);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_EQ(kTokenizer.Encode(kTokenizer.Decode(ids)), ids);
}

TEST(WordTokenizer, OtherWordsAreHashedIntoTheVocabulary) {
  const auto tokens = kTokenizer.Encode("Hello, world w1000 w007 w4294967296 wx");
  ASSERT_THAT(tokens, SizeIs(6));
  for (const TokenId token : tokens)
    EXPECT_LT(token, 1'000u);
  EXPECT_EQ(tokens, kTokenizer.Encode("Hello, world w1000 w007 w4294967296 wx"));
  EXPECT_NE(tokens[0], tokens[1]);
}

TEST(WordTokenizer, WhiteSpaceIsKept) {
  EXPECT_THAT(kTokenizer.Encode(""), SizeIs(0));
  EXPECT_THAT(kTokenizer.Encode("a b"), SizeIs(2));
  EXPECT_THAT(kTokenizer.Encode("a  b"), SizeIs(3)) << "one space of its own, one with b";
  EXPECT_THAT(kTokenizer.Encode("a\n\nb "), SizeIs(5));
  EXPECT_NE(kTokenizer.Encode("a\nb"), kTokenizer.Encode("a\tb"));
}

TEST(WordTokenizer, APrefixAtAWordsEndIsAPrefixOfTheTokens) {
  const std::string text = "one two\nthree  four w5 ";
  const auto whole = kTokenizer.Encode(text);
  for (std::size_t end = 1; end <= text.size(); ++end) {
    if (end < text.size() && text[end] != ' ' && text[end] != '\n') continue;
    // A space that is followed by a word belongs to it.
    if (text[end - 1] == ' ') continue;
    const auto part = kTokenizer.Encode(std::string_view(text).substr(0, end));
    ASSERT_LE(part.size(), whole.size());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << end;
  }
}

TEST(RenderChat, WrapsEachMessage) {
  const std::vector<ChatMessage> messages = {{"system", "be kind"}, {"user", "w1 w2"}};
  EXPECT_EQ(RenderChat(messages, true),
            "<|system|> be kind <|end|> <|user|> w1 w2 <|end|> <|assistant|>");
  EXPECT_EQ(RenderChat(messages, false), "<|system|> be kind <|end|> <|user|> w1 w2 <|end|> ");
}

}  // namespace
}  // namespace kvr::sim
