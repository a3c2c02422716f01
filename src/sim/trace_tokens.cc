#include "sim/trace_tokens.h"

#include "base/check.h"
#include "base/rng.h"

namespace kvr::sim {

std::vector<TokenId> SynthesizePrompt(const TraceRequest& request, std::uint32_t block_tokens,
                                      std::uint32_t vocabulary, std::uint64_t seed) {
  KVR_CHECK(block_tokens > 0 && vocabulary > 0);
  std::vector<TokenId> tokens;
  tokens.reserve(request.input_tokens);
  for (const std::uint64_t id : request.blocks) {
    // Odd multipliers keep (id, seed) pairs apart; the generator mixes them.
    Rng rng(id * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u + 1);
    for (std::uint32_t i = 0; i < block_tokens && tokens.size() < request.input_tokens; ++i)
      tokens.push_back(static_cast<TokenId>(rng.Below(vocabulary)));
  }
  return tokens;
}

}  // namespace kvr::sim
