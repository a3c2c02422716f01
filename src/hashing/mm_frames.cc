#include "hashing/mm_frames.h"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>

namespace kvr::hashing {
namespace {

constexpr std::byte kToken{0};
constexpr std::byte kPlaceholder{1};

void AppendLittleEndian(std::vector<std::byte>& out, std::unsigned_integral auto value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void AppendFrame(std::vector<std::byte>& out, std::byte kind, std::uint32_t slot, MmHash object) {
  out.push_back(kind);
  AppendLittleEndian(out, slot);
  AppendLittleEndian(out, object);
}

// Frames of the tokens from position `at` on; `runs` starts with the first that ends behind `at`.
void AppendFrames(std::vector<std::byte>& out, std::span<const TokenId> window, std::size_t at,
                  std::span<const MmRun> runs) {
  for (const TokenId token : window) {
    if (!runs.empty() && at >= runs[0].offset + runs[0].length) runs = runs.subspan(1);
    if (!runs.empty() && at >= runs[0].offset) {
      AppendFrame(out, kPlaceholder, static_cast<std::uint32_t>(at - runs[0].offset), runs[0].hash);
    } else {
      AppendFrame(out, kToken, token, 0);
    }
    ++at;
  }
}

tl::unexpected<MmRunFailure> FailRun(MmRunError error, std::size_t position) {
  return tl::unexpected<MmRunFailure>(MmRunFailure{error, position});
}

}  // namespace

std::string_view MmRunErrorName(MmRunError error) {
  switch (error) {
    case MmRunError::kEmptyRun:
      return "EmptyRun";
    case MmRunError::kOffsetOverflow:
      return "OffsetOverflow";
    case MmRunError::kOutOfBounds:
      return "OutOfBounds";
    case MmRunError::kOverlapping:
      break;
  }
  return "Overlapping";
}

Result<void, MmRunFailure> SortMmRuns(std::vector<MmRun>& runs, std::size_t token_count) {
  for (const MmRun& run : runs) {
    if (run.length == 0) return FailRun(MmRunError::kEmptyRun, run.offset);
    if (run.length > std::numeric_limits<std::size_t>::max() - run.offset)
      return FailRun(MmRunError::kOffsetOverflow, run.offset);
    if (run.offset + run.length > token_count)
      return FailRun(MmRunError::kOutOfBounds, std::max(run.offset, token_count));
  }
  std::sort(runs.begin(), runs.end(),
            [](const MmRun& a, const MmRun& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].offset < runs[i - 1].offset + runs[i - 1].length)
      return FailRun(MmRunError::kOverlapping, runs[i].offset);
  }
  return {};
}

void HashFramedBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                      std::span<const MmRun> runs, std::vector<std::byte>& scratch,
                      std::vector<BlockHash>& out) {
  out.resize(BlockCount(tokens.size(), how.block_size, how.eagle));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto window = BlockWindow(tokens, how, i);
    const std::size_t begin = i * how.block_size;
    while (!runs.empty() && runs[0].offset + runs[0].length <= begin)
      runs = runs.subspan(1);
    if (runs.empty() || runs[0].offset >= begin + window.size()) {
      out[i] = HashBlock(window, how.seed);
      continue;
    }
    scratch.clear();
    AppendFrames(scratch, window, begin, runs);
    out[i] = BlockHash{how.seed.Hash(scratch)};
  }
}

}  // namespace kvr::hashing
