// A request's prompt as block and sequence hashes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "routing/router.h"

namespace kvr::routing {

// Borrows from the request or from the buffers given to ReadPrompt.
struct Prompt {
  std::uint64_t isl_tokens = 0;
  std::span<const BlockHash> blocks;
  std::span<const SequenceHash> sequence;
};

struct PromptBuffers {
  std::vector<BlockHash> blocks;
  std::vector<SequenceHash> sequence;
};

// kInvalidArgument for what does not fit together, kTooLarge beyond `tokens_max`.
Result<void> CheckPrompt(const RouteRequest& request, std::size_t tokens_max);

// Hashes what the caller did not. `request` passed CheckPrompt.
Prompt ReadPrompt(const RouteRequest& request, std::uint32_t block_size, bool eagle,
                  PromptBuffers& buffers);

}  // namespace kvr::routing
