#include "sim/word_tokenizer.h"

#include <optional>

#include "base/text.h"

namespace kvr::sim {
namespace {

bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The N of `wN`; nothing for other spellings, leading zeros included.
std::optional<TokenId> NumberedWord(std::string_view word) {
  if (word.size() < 2 || word[0] != 'w' || (word[1] == '0' && word.size() > 2)) return std::nullopt;
  return ParseNumber<TokenId>(word.substr(1));
}

}  // namespace

std::vector<TokenId> WordTokenizer::Encode(std::string_view text) const {
  std::vector<TokenId> tokens;
  std::size_t i = 0;
  while (i < text.size()) {
    const bool leading_space = text[i] == ' ' && i + 1 < text.size() && !IsSpace(text[i + 1]);
    if (leading_space) ++i;
    std::size_t end = i;
    while (end < text.size() && !IsSpace(text[end]))
      ++end;
    if (end == i) ++end;
    tokens.push_back(EncodeWord(text.substr(i, end - i)));
    i = end;
  }
  return tokens;
}

std::string WordTokenizer::Decode(std::span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens)
    AppendTokenText(text, token);
  return text;
}

TokenId WordTokenizer::EncodeWord(std::string_view word) const {
  if (const auto id = NumberedWord(word); id && *id < vocabulary_) return *id;
  // FNV-1a, 64 bits.
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : word)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return static_cast<TokenId>((hash ^ (hash >> 32)) % vocabulary_);
}

void AppendTokenText(std::string& out, TokenId token) {
  char digits[10];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), token);
  out.append(" w").append(digits, end);
}

std::string RenderChat(std::span<const ChatMessage> messages, bool add_generation_prompt) {
  std::string text;
  for (const ChatMessage& message : messages) {
    text.append("<|")
        .append(message.role)
        .append("|> ")
        .append(message.content)
        .append(" <|end|> ");
  }
  if (add_generation_prompt) text.append("<|assistant|>");
  return text;
}

}  // namespace kvr::sim
