// For tests and fuzz targets: a stream fed to the scanner in pieces, and all that it saw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/stream_scanner.h"
#include "openai/usage.h"

namespace kvr::openai {

struct ScanFacts {
  std::uint64_t output_chunks = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t finished = 0;
  bool done = false;
  bool error = false;
  bool between_events = true;
  std::uint64_t malformed = 0;
  std::uint64_t unread = 0;
  std::optional<Usage> usage;

  friend bool operator==(const ScanFacts&, const ScanFacts&) = default;
};

struct ScanOutcome {
  std::string relayed;
  std::string rest;
  ScanFacts facts;

  friend bool operator==(const ScanOutcome&, const ScanOutcome&) = default;
};

// `cuts` ascend and are at most the stream's length.
inline ScanOutcome ScanPieces(std::string_view stream, std::span<const std::size_t> cuts,
                              std::size_t line_bytes_max) {
  StreamScanner scanner({.line_bytes_max = line_bytes_max});
  ScanOutcome outcome;
  std::size_t begin = 0;
  const auto feed = [&](std::size_t end) {
    // A copy with exact bounds, so that a read beyond the piece is seen by the sanitizer.
    const std::vector<char> piece(stream.begin() + static_cast<std::ptrdiff_t>(begin),
                                  stream.begin() + static_cast<std::ptrdiff_t>(end));
    outcome.relayed += scanner.Feed({piece.data(), piece.size()});
    begin = end;
  };
  for (const std::size_t cut : cuts)
    feed(cut);
  feed(stream.size());
  outcome.facts = {scanner.output_chunks(), scanner.output_tokens(), scanner.finished_choices(),
                   scanner.saw_done(),      scanner.saw_error(),     scanner.between_events(),
                   scanner.malformed(),     scanner.unread_lines(),  scanner.usage()};
  outcome.rest = scanner.Rest();
  return outcome;
}

}  // namespace kvr::openai
