// The bodies of the mock engine's HTTP API, without HTTP.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "openai/api_error.h"
#include "openai/request.h"
#include "sim/word_tokenizer.h"

namespace kvr::sim {

// What a completion or chat request asks for.
struct GenerateRequest {
  openai::Api api = openai::Api::kCompletions;
  std::string model;
  std::vector<TokenId> prompt;
  std::optional<std::uint32_t> max_tokens;
  bool stream = false;
  bool include_usage = false;
};

// One prompt of text, token ids or chat messages. Refused with a 400, because answering would be
// untrue: several prompts or choices, embeddings, content that is no text, a cache salt.
Result<GenerateRequest, openai::ApiError> ParseGenerate(openai::Api api, std::string_view body,
                                                        const WordTokenizer& tokenizer);

// {"prompt": text} or {"messages": [...], "add_generation_prompt": true} as vLLM's /tokenize.
Result<std::vector<TokenId>, openai::ApiError> ParseTokenize(std::string_view body,
                                                             const WordTokenizer& tokenizer);
// {"tokens": [ids]} as vLLM's /detokenize.
Result<std::vector<TokenId>, openai::ApiError> ParseDetokenize(std::string_view body);

struct GenerateUsage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
};

// Writes the answer to one request: whole, or as the events of a stream.
class AnswerWriter {
 public:
  AnswerWriter(openai::Api api, std::string_view id, std::string_view model, std::int64_t created);

  // Appends one event for each token; the very last one of the answer carries the finish reason.
  // Of a request that was to generate nothing, that is an event without text.
  void AppendTokens(std::string& out, std::span<const TokenId> tokens, bool finished);
  void AppendUsage(std::string& out, const GenerateUsage& usage) const;
  static void AppendDone(std::string& out) { out += "data: [DONE]\n\n"; }

  [[nodiscard]] std::string Whole(std::string_view text, const GenerateUsage& usage) const;

 private:
  void AppendEvent(std::string& out, std::string_view text, bool last);

  const openai::Api api_;
  std::string head_;  // of a whole answer, up to "choices"
  std::string chunk_head_;
  bool begun_ = false;
};

}  // namespace kvr::sim
