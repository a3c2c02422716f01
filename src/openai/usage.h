// Token counts as engines report them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvr::openai {

struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  // prompt_tokens_details.cached_tokens: engines report it only when told to.
  std::optional<std::uint64_t> cached_tokens;

  friend bool operator==(const Usage&, const Usage&) = default;
};

// More tokens than any engine holds. Larger numbers are an engine's mistake, and would spoil every
// sum they are added to.
inline constexpr std::uint64_t kUsageTokensMax = std::uint64_t{1} << 26;

// No count above the maximum, and no more tokens cached than asked for.
[[nodiscard]] bool IsPlausible(const Usage& usage);

// The `usage` of a whole answer that is no stream. Nothing when the body is no JSON object, holds
// no usage, or counts that are no numbers.
std::optional<Usage> UsageOfAnswer(std::string_view body);

}  // namespace kvr::openai
