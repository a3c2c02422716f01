// Bodies of the engines' /tokenize endpoint, made from the client's own words.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "openai/request.h"

namespace kvr::openai {

// The request for `/tokenize` that yields the first prompt of `request`, whose body is `body`. What
// shapes the prompt (messages, tools, template arguments ...) is copied without re-encoding.
// Nothing for forms kTokens and kEmbeddings. `body` must have passed ParseRequest.
std::optional<std::string> TokenizeBody(const Request& request, std::string_view body);

// The `tokens` of an engine's answer. kUpstream when it is none, kTooLarge beyond `tokens_max`.
Result<std::vector<TokenId>> ParseTokenizeAnswer(std::string_view answer, std::size_t tokens_max);

}  // namespace kvr::openai
