// Recorded workloads: the Mooncake JSONL format, checked, and what can be done to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace kvr::sim {

// One request of a trace. It arrives at `timestamp_ms`, or, when it waits for others, `delay_ms`
// after the last of `after` has completed.
struct TraceRequest {
  double timestamp_ms = 0;
  double delay_ms = 0;
  std::vector<std::size_t> after;  // places in Trace::requests
  std::uint32_t input_tokens = 0;  // at least 1
  std::uint32_t output_tokens = 0;
  // One id for each `Trace::block_tokens` of the prompt; the last block may be partial. Equal
  // leading ids are an equal prefix.
  std::vector<std::uint64_t> blocks;

  std::string request_id;  // empty when the trace has none
  std::string session_id;
  std::vector<TokenId> output_ids;  // empty, or exactly output_tokens
  std::int32_t priority = 0;        // hints for a router's queue
  std::uint32_t strict_priority = 0;
  std::string policy_class;
};

// In order of `timestamp_ms`, the first at 0; requests that wait come after those they wait for.
struct Trace {
  std::uint32_t block_tokens = 512;
  std::vector<TraceRequest> requests;
};

struct TraceOptions {
  std::uint32_t block_tokens = 512;  // tokens that one id stands for
  std::size_t line_bytes_max = 16u << 20;
};

// Reads JSONL: `timestamp` (or `created_time`), `input_length` (`input_tokens`), `output_length`
// (`output_tokens`), `hash_ids`, and optionally `session_id`, `delay` (`delay_ms`), `wait_for`,
// `tool_wait_ms`, `request_id`, `output_token_ids`, `priority`, `strict_priority`, `policy_class`.
// Rows of one session are turns: each waits for the one before, by default for as long as their
// timestamps are apart. Unknown fields are ignored; `branches` and `prefix_reset` are refused,
// because without them the prompts would be others. Lengths beyond hash_ids are cut.
//
// kCorrupt names the line and what is wrong with it. kIo: the file cannot be read.
Result<Trace> ParseTrace(std::string_view text, const TraceOptions& options);
Result<Trace> ReadTrace(const std::string& path, const TraceOptions& options);

struct TraceTransform {
  std::optional<std::size_t> limit{};  // the first so many requests
  double from_ms = 0;                  // arrivals in [from_ms, to_ms)
  std::optional<double> to_ms{};
  // Lengths times so much, at least 1 input token. A trace block then stands for so many more
  // tokens, so that what is shared stays shared.
  double input_scale = 1;
  double output_scale = 1;
  double speedup = 1;  // arrivals and delays divided by it
};

// Window, then limit, then lengths and time. A request whose session began outside the window
// starts at its own timestamp. kInvalidArgument: a scale or speed-up that is not above 0.
Result<Trace> Transform(Trace trace, const TraceTransform& transform);

// What a cache that never forgets, shared by all, would save: the upper bound beside every result.
struct CacheBound {
  std::uint64_t input_tokens = 0;
  std::uint64_t cached_tokens = 0;

  [[nodiscard]] double ratio() const {
    return input_tokens == 0
               ? 0
               : static_cast<double>(cached_tokens) / static_cast<double>(input_tokens);
  }
};

// Counts, request by request in trace order, the tokens that an earlier prompt began with, in whole
// blocks of `block_size` and never the last token of a prompt.
CacheBound InfiniteCacheBound(const Trace& trace, std::uint32_t block_size);

}  // namespace kvr::sim
