// Traces. Byte 0 is the trace's block size, byte 1 the change of its lengths, byte 2 its window;
// the rest is JSONL. What is accepted, and what is made of it, keeps every promise of Trace.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sim/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::sim::Trace;
using kvr::sim::TraceRequest;

void CheckRequest(const Trace& trace, std::size_t i) {
  const TraceRequest& request = trace.requests[i];
  KVR_CHECK(std::isfinite(request.timestamp_ms) && request.timestamp_ms >= 0);
  KVR_CHECK(std::isfinite(request.delay_ms) && request.delay_ms >= 0);
  KVR_CHECK(request.input_tokens >= 1);
  KVR_CHECK(request.blocks.size() ==
            (request.input_tokens + std::uint64_t{trace.block_tokens} - 1) / trace.block_tokens);
  KVR_CHECK(request.output_ids.empty() || request.output_ids.size() == request.output_tokens);
  KVR_CHECK(!request.after.empty() || request.delay_ms == 0);
  for (const std::size_t before : request.after) {
    KVR_CHECK(before < i);
    KVR_CHECK(trace.requests[before].timestamp_ms <= request.timestamp_ms);
  }
}

void CheckTrace(const Trace& trace) {
  KVR_CHECK(trace.block_tokens >= 1);
  KVR_CHECK(trace.requests.empty() || trace.requests.front().timestamp_ms == 0);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    CheckRequest(trace, i);
    KVR_CHECK(i == 0 || trace.requests[i - 1].timestamp_ms <= trace.requests[i].timestamp_ms);
  }
  const auto bound = kvr::sim::InfiniteCacheBound(trace, 16);
  KVR_CHECK(bound.cached_tokens <= bound.input_tokens);
  KVR_CHECK(bound.cached_tokens % 16 == 0);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  auto trace = kvr::sim::ParseTrace(text, {.block_tokens = 1u + data[0], .line_bytes_max = 4096});
  if (!trace) {
    KVR_CHECK(trace.error().code == kvr::ErrorCode::kCorrupt);
    KVR_CHECK(trace.error().message.starts_with("trace line "));
    return 0;
  }
  CheckTrace(*trace);
  kvr::sim::TraceTransform transform;
  transform.input_scale = (1 + data[1] % 16) / 4.0;
  transform.output_scale = (1 + data[1] / 16) / 4.0;
  transform.speedup = transform.output_scale;
  transform.from_ms = data[2] % 16;
  if (data[2] >= 128) transform.to_ms = transform.from_ms + data[2] % 64;
  if (data[2] % 2 == 1) transform.limit = data[2] / 32;
  const auto changed = Transform(*std::move(trace), transform);
  KVR_CHECK(changed.has_value());
  CheckTrace(*changed);
  KVR_CHECK(!transform.limit || changed->requests.size() <= *transform.limit);
  return 0;
}
