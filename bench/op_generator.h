// Makes operation files from a recorded trace, by way of engines with bounded caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "bench/op_file.h"
#include "sim/trace.h"

namespace kvr::bench {

// The expansion, in this order. Length: each trace block becomes `length_factor` ones, prompts are
// so many times longer. Copies: as many sessions as requests times `copies`, which share nothing
// between copies. Blocks: a trace block is trace.block_tokens / block_tokens blocks; only full ones
// are asked for and stored. Partition: each session goes to a rank drawn uniformly, whatever the
// rank holds. Engines: one a rank, see below. Then all is put in order of time, queries before
// events, then by rank.
//
// An engine keeps `engine_blocks` blocks, drops the least recently used idle ones, tails first, and
// limits neither batches nor tokens. A request that finds no room waits for its turn. What it
// computes of the prompt is one Stored when the prefill ends, each block that decoding fills is
// one more, and what is dropped to make room is one Removed.
struct GeneratorOptions {
  std::size_t requests_max = 1'000;  // of the trace, from its beginning
  std::uint32_t length_factor = 1;
  std::uint32_t copies = 20;
  std::uint32_t block_tokens = 128;  // divides trace.block_tokens
  std::uint32_t ranks = 128;
  std::uint32_t engine_blocks = 4'096;  // at least the longest request
  std::uint64_t seed = 42;
  // Ten times what one engine of today does, so that few requests run at once.
  double prefill_tokens_per_ms = 100;
  double decode_ms_per_token = 1;
};

// "small", "big" and "huge": 20, 60 and 300 copies against 4,096, 16,384 and 65,536 blocks.
std::optional<GeneratorOptions> GeneratorPreset(std::string_view name);

// The same bytes for the same trace and options on every machine. kInvalidArgument: an option is
// out of range, or a request does not fit into an engine.
Result<OpTrace> GenerateOps(const sim::Trace& trace, const GeneratorOptions& options);

// One shape, to see how an index grows: `chains` prefixes of `depth` blocks that share nothing,
// each stored whole by `holders` ranks that follow each other, wrapping around. Then each chain is
// asked for `queries_each` times, in an order without pattern.
struct ShapeOptions {
  std::uint32_t ranks = 128;
  std::uint32_t depth = 64;
  std::uint32_t holders = 1;  // at most `ranks`
  std::uint32_t chains = 1'024;
  std::uint32_t queries_each = 4;
  std::uint64_t seed = 42;
};
Result<OpTrace> GenerateShape(const ShapeOptions& options);

}  // namespace kvr::bench
