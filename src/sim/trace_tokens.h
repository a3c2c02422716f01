// Prompts for traces that were recorded without their texts.
#pragma once

#include <cstdint>
#include <vector>

#include "model/ids.h"
#include "sim/trace.h"

namespace kvr::sim {

// The prompt of a trace request: a recording keeps no text, so tokens are made up from its block
// ids. A token depends on the id of its block, its place in the block and `seed`; nothing else, so
// equal leading ids are equal leading tokens for any block size of an engine, in every run. Another
// seed is the same trace in tokens never seen before.
//
// `vocabulary` > 0; tokens are below it. The chance that two blocks agree by accident in k tokens
// is vocabulary^-k.
std::vector<TokenId> SynthesizePrompt(const TraceRequest& request, std::uint32_t block_tokens,
                                      std::uint32_t vocabulary, std::uint64_t seed = 0);

}  // namespace kvr::sim
