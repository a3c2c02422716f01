// Event streams. The first two bytes place two cuts, the third the longest line; the rest is the
// stream. Where it is cut must change neither the bytes that go on nor what is seen in them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "openai/stream_pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

using kvr::openai::ScanOutcome;
using kvr::openai::ScanPieces;

namespace {

// All of `stream`, or all up to [DONE] and the empty line after it.
bool IsOf(const ScanOutcome& outcome, std::string_view stream) {
  if (!outcome.facts.done) return outcome.relayed + outcome.rest == stream;
  constexpr std::string_view kEnd = "[DONE]\n\n";
  return outcome.rest.empty() && outcome.relayed.ends_with(kEnd) &&
         stream.starts_with(
             std::string_view(outcome.relayed).substr(0, outcome.relayed.size() - 2));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t a = data[0] % (stream.size() + 1);
  const std::size_t b = data[1] % (stream.size() + 1);
  const std::size_t line_bytes_max = 1 + std::size_t{data[2]} * 16;
  const ScanOutcome whole = ScanPieces(stream, {}, line_bytes_max);
  KVR_CHECK(IsOf(whole, stream));
  // Where a line is held back may differ; the bytes and what is seen may not.
  const std::array<std::size_t, 2> cuts = {std::min(a, b), std::max(a, b)};
  const ScanOutcome cut = ScanPieces(stream, cuts, line_bytes_max);
  KVR_CHECK(IsOf(cut, stream));
  KVR_CHECK(cut.facts == whole.facts);
  return 0;
}
