// Event streams. The first two bytes place two cuts, the third the longest line; the rest is the
// stream. Where it is cut must change neither the bytes that go on nor what is seen in them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "openai/stream_scanner.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

using kvr::openai::StreamScanner;

namespace {

struct Outcome {
  std::string bytes;
  std::vector<std::uint64_t> facts;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Scan(std::string_view stream, std::initializer_list<std::size_t> cuts,
             std::size_t line_bytes_max) {
  StreamScanner scanner({.line_bytes_max = line_bytes_max});
  Outcome outcome;
  std::size_t begin = 0;
  const auto feed = [&](std::size_t end) {
    const std::vector<char> piece(stream.begin() + static_cast<std::ptrdiff_t>(begin),
                                  stream.begin() + static_cast<std::ptrdiff_t>(end));
    outcome.bytes += scanner.Feed({piece.data(), piece.size()});
    begin = end;
  };
  for (const std::size_t cut : cuts)
    feed(cut);
  feed(stream.size());
  outcome.facts = {
      scanner.output_chunks(),    scanner.output_tokens(),  scanner.malformed(),
      scanner.finished_choices(), scanner.unread_lines(),   scanner.saw_done(),
      scanner.saw_error(),        scanner.between_events(), scanner.usage().has_value()};
  outcome.bytes += scanner.Rest();
  return outcome;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t a = data[0] % (stream.size() + 1);
  const std::size_t b = data[1] % (stream.size() + 1);
  const std::size_t line_bytes_max = 1 + std::size_t{data[2]} * 16;
  const Outcome whole = Scan(stream, {}, line_bytes_max);
  KVR_CHECK(whole.bytes == stream);
  KVR_CHECK(Scan(stream, {std::min(a, b), std::max(a, b)}, line_bytes_max) == whole);
  return 0;
}
