// What routing needs to know of an OpenAI request body. The body itself is never changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "openai/api_error.h"

namespace kvr::openai {

enum class Api : std::uint8_t { kCompletions, kChat };

// "completions", "chat": the `route` label of metrics.
std::string_view ApiName(Api api);
// "/v1/completions", "/v1/chat/completions".
std::string_view ApiPath(Api api);

enum class PromptForm : std::uint8_t {
  kMessages,    // chat
  kText,        // a string, or an array of strings
  kTokens,      // ids, or an array of arrays of ids; for chat the engine extension `input_ids`
  kEmbeddings,  // no prompt but `prompt_embeds`: no token ids exist
};

// Ceilings that hold whatever the client sends; beyond one the request is refused.
struct RequestLimits {
  std::size_t depth_max = 128;         // nested brackets; tool schemas need some tens
  std::size_t prompts_max = 1'024;     // of one request
  std::size_t tokens_max = 4u << 20;   // ids in all prompts of one request
  std::size_t messages_max = 65'536;   // of one chat
  std::size_t name_bytes_max = 1'024;  // model, cache_salt
};

struct Request {
  Api api = Api::kCompletions;
  std::string model;
  std::string cache_salt;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  std::optional<std::uint32_t> max_tokens;
  std::uint32_t choices = 1;  // n

  PromptForm form = PromptForm::kText;
  std::size_t prompts = 1;  // more than 1: a batch, described by its first prompt
  bool empty_prompt = false;
  // Form kTokens: the first prompt's ids, as the engine uses them (truncate_prompt_tokens applied).
  std::vector<TokenId> tokens;
  // The engine keeps only so many last prompt tokens.
  std::optional<std::uint32_t> truncate_prompt_tokens;
  // Content parts other than text: their blocks hash by content that token ids do not show.
  bool multimodal = false;
  // Fields that an engine's tokenize endpoint treats otherwise than serving does.
  bool template_extras = false;
};

// Reads a body. Pure; takes any bytes. The whole of it is validated as JSON, so that what is
// forwarded is what was read. Errors name the field; a field that is given twice is refused,
// because an engine may read the other one.
Result<Request, ApiError> ParseRequest(Api api, std::string_view body, const RequestLimits& limits);

}  // namespace kvr::openai
