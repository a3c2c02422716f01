// Sends a trace to a running router, open loop: each request at its own time, whatever the others
// do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/http.h"
#include "sim/replay_stats.h"
#include "sim/trace.h"

namespace kvr::sim {

struct ReplayOptions {
  std::string model = "mock";
  std::uint64_t seed = 1;             // of the tokens made up for the trace's block ids
  std::uint32_t vocabulary = 32'000;  // token ids are below it
  // More requests under way than this fail at once, as an error of their own: a client that
  // silently waits would not be open loop.
  std::size_t in_flight_max = 8'192;
  Millis silence_max{300'000};  // longest wait for the head or the next piece of an answer
};

// Called after each request that ended, on the I/O thread.
using ReplayProgress = std::function<void(std::size_t done, std::size_t errors)>;

// Sends every request of `trace` as a streaming completion whose prompt is token ids, at
// `timestamp_ms` after the start (or after the requests it waits for), and returns a record each,
// in trace order. Blocks until the last one ended; all I/O runs on one thread of its own. A failed
// request is a record with an error, never a failure of the replay.
std::vector<RequestRecord> RunReplay(const net::Url& router, const Trace& trace,
                                     const ReplayOptions& options, const ReplayProgress& progress);

// The body of one request.
std::string CompletionBody(const TraceRequest& request, std::uint32_t block_tokens,
                           const ReplayOptions& options);

}  // namespace kvr::sim
