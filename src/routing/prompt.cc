#include "routing/prompt.h"

#include <fmt/core.h>

#include "hashing/block_hash.h"
#include "hashing/cache_salt.h"

namespace kvr::routing {

Result<void> CheckPrompt(const RouteRequest& request, std::size_t tokens_max) {
  const auto too_large = [tokens_max](std::uint64_t tokens) {
    return Fail(
        ErrorCode::kTooLarge,
        fmt::format("the prompt has {} tokens, prompt_tokens_max is {}", tokens, tokens_max));
  };
  if (!request.tokens.empty()) {
    if (request.tokens.size() > tokens_max) return too_large(request.tokens.size());
    if (request.block_hashes.empty() && request.sequence_hashes.empty()) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "both tokens and hashes are given: they could contradict each other, send one");
  }
  if (request.isl_tokens == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "the prompt is empty: send tokens, or hashes with isl_tokens above 0");
  }
  if (request.isl_tokens > tokens_max) return too_large(request.isl_tokens);
  if (request.block_hashes.size() > tokens_max) return too_large(request.block_hashes.size());
  if (!request.sequence_hashes.empty() &&
      request.sequence_hashes.size() != request.block_hashes.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("block_hashes length {} must match sequence_hashes length {}",
                            request.block_hashes.size(), request.sequence_hashes.size()));
  }
  return {};
}

Prompt ReadPrompt(const RouteRequest& request, std::uint32_t block_size, bool eagle,
                  PromptBuffers& buffers) {
  Prompt prompt{request.isl_tokens, request.block_hashes, request.sequence_hashes};
  if (!request.tokens.empty()) {
    const std::string_view salt = hashing::NamedSalt(request.cache_salt);
    const hashing::BlockHashing how{
        .block_size = block_size, .eagle = eagle, .seed = hashing::Seed(request.lora_name, salt)};
    hashing::HashBlocks(request.tokens, how, request.mm, buffers.blocks);
    prompt.isl_tokens = request.tokens.size();
    prompt.blocks = buffers.blocks;
  }
  if (prompt.sequence.size() != prompt.blocks.size()) {
    hashing::ChainHashes(prompt.blocks, buffers.sequence);
    prompt.sequence = buffers.sequence;
  }
  return prompt;
}

}  // namespace kvr::routing
