#include "openai/usage.h"

#include <simdjson.h>

#include "openai/usage_reader.h"

namespace kvr::openai {

namespace dom = simdjson::dom;

std::optional<Usage> ReadUsage(const dom::element& element) {
  Usage usage;
  if (element["prompt_tokens"].get(usage.prompt_tokens) != simdjson::SUCCESS) return std::nullopt;
  // Absent in answers without output.
  if (element["completion_tokens"].get(usage.completion_tokens) != simdjson::SUCCESS) {
    usage.completion_tokens = 0;
  }
  std::uint64_t cached = 0;
  if (element["prompt_tokens_details"]["cached_tokens"].get(cached) == simdjson::SUCCESS) {
    usage.cached_tokens = cached;
  }
  return usage;
}

bool IsPlausible(const Usage& usage) {
  return usage.prompt_tokens <= kUsageTokensMax && usage.completion_tokens <= kUsageTokensMax &&
         usage.cached_tokens.value_or(0) <= usage.prompt_tokens;
}

std::optional<Usage> UsageOfAnswer(std::string_view body) {
  dom::parser parser;
  dom::element usage;
  if (parser.parse(body.data(), body.size())["usage"].get(usage) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return ReadUsage(usage);
}

}  // namespace kvr::openai
