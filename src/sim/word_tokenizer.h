// The mock engine's tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"

namespace kvr::sim {

// A tokenizer without a model: a token is a word, so that text and ids can be told from each other
// by eye and nothing has to be downloaded.
//
//   text → ids   A run of characters that are not white space is one token; one space between two
//                words belongs to the second; every other white space character is one token. The
//                word `wN` with N below the vocabulary is token N; any other is a hash of its
//                bytes.
//   ids → text   `wN` each, with a space before it. So ids survive the way to text and back; text
//                survives the way to ids and back only when it is of such words.
//
// A prefix of the text that ends at a word's end gives a prefix of the tokens. Thread-safe.
class WordTokenizer {
 public:
  // `vocabulary` > 0; ids are below it.
  explicit WordTokenizer(std::uint32_t vocabulary) : vocabulary_(vocabulary) {}

  [[nodiscard]] std::vector<TokenId> Encode(std::string_view text) const;
  [[nodiscard]] std::string Decode(std::span<const TokenId> tokens) const;

  [[nodiscard]] std::uint32_t vocabulary() const { return vocabulary_; }

 private:
  [[nodiscard]] TokenId EncodeWord(std::string_view word) const;

  std::uint32_t vocabulary_;
};

// Appends the text of one token, " wN".
void AppendTokenText(std::string& out, TokenId token);

// One message of a chat.
struct ChatMessage {
  std::string role;
  std::string content;
};

// The chat template: "<|role|> content <|end|> " for each message, then "<|assistant|>" when the
// model is to answer.
std::string RenderChat(std::span<const ChatMessage> messages, bool add_generation_prompt);

}  // namespace kvr::sim
