// How long a pass of the mock engine takes.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::sim {

// What one scheduler pass has to do, as far as its duration depends on it.
struct PassLoad {
  std::uint32_t prefills = 0;         // requests with prompt tokens scheduled in this pass
  std::uint64_t prefill_context = 0;  // sum over them of computed or cached + scheduled tokens
  std::uint64_t prefill_prefix = 0;   // sum over them of computed or cached tokens
  std::uint32_t decodes = 0;          // requests that emit a token at the end of the pass
  std::uint64_t decode_context = 0;   // sum over them of all their tokens; shared ones count twice
  std::uint64_t host_tokens = 0;      // loaded back from the host tier
};

// How long a pass takes: prefill plus decode plus loads from the host.
//
//   t          = prefills * (mean context - mean prefix), integer means
//   prefill_ms = 4.209989e-7 t^2 + 1.518344e-2 t + 16.50142, 0 for t = 0
//   decode_ms  = decode_base_ms + decode_ms_per_request * decodes
//                + decode_ms_per_token * decode_context, 0 without decodes
//
// The prefill curve is the published fit of an 8B model on one H100. Its companion for decode,
//
//   p = min(1, decode_context / pool tokens);  max(1, -25.74 p^2 + 54.01 p + 5.74) ms
//
// is free of the batch size, which makes piling all decodes on one engine nearly free and so
// flatters every policy that concentrates. The default is therefore linear in batch and context. It
// equals the published curve for one request in a pool of 2^20 tokens, at 0 context exactly and to
// first order in it: base + per_request = 5.74 and per_token = 54.01 / 2^20. The part of 5.74 that
// each further request costs again, 0.05 ms, is our estimate.
struct TimeModel {
  enum class Decode { kLinear, kPublishedCurve };

  Decode decode = Decode::kLinear;
  double decode_base_ms = 5.69;
  double decode_ms_per_request = 0.05;
  double decode_ms_per_token = 54.01 / (1 << 20);
  // 128 KiB of KV for a token of an 8B model over 25 GB/s.
  double host_load_ms_per_token = 0.005;
  // Everything happens so much faster; 0 and below mean unscaled.
  double speedup = 1;
  double decode_speedup = 1;  // on top, for decode alone

  // kInvalidArgument: a negative or non-finite cost.
  [[nodiscard]] Result<void> Validate() const;

  // Unscaled.
  [[nodiscard]] double PrefillMs(std::uint64_t tokens) const;
  [[nodiscard]] double DecodeMs(std::uint32_t requests, std::uint64_t context,
                                std::uint64_t pool_tokens) const;

  [[nodiscard]] Nanos PassTime(const PassLoad& load, std::uint64_t pool_tokens) const;
};

}  // namespace kvr::sim
