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

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t a = data[0] % (stream.size() + 1);
  const std::size_t b = data[1] % (stream.size() + 1);
  const std::size_t line_bytes_max = 1 + std::size_t{data[2]} * 16;
  const ScanOutcome whole = ScanPieces(stream, {}, line_bytes_max);
  KVR_CHECK(whole.relayed + whole.rest == stream);
  // Where a line is held back may differ; the bytes and what is seen may not.
  const std::array<std::size_t, 2> cuts = {std::min(a, b), std::max(a, b)};
  const ScanOutcome cut = ScanPieces(stream, cuts, line_bytes_max);
  KVR_CHECK(cut.relayed + cut.rest == stream);
  KVR_CHECK(cut.facts == whole.facts);
  return 0;
}
