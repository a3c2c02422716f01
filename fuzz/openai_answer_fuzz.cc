// What engines answer: whole completions and /tokenize.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "openai/tokenize_body.h"
#include "openai/usage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view answer(reinterpret_cast<const char*>(data), size);
  kvr::openai::UsageOfAnswer(answer);
  constexpr std::size_t kTokensMax = 100;
  const auto tokens = kvr::openai::ParseTokenizeAnswer(answer, kTokensMax);
  KVR_CHECK(!tokens || tokens->size() <= kTokensMax);
  return 0;
}
