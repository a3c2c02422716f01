// Block hashes of prompts whose images, videos or audio clips occupy runs of token positions: every
// slot of a block that a run touches is hashed as a 13-byte frame. Neither equal to the appended
// hashes of block_hash.h nor to the pads of mm_pads.h.
//
//   token        00 ‖ token as u32 LE ‖ 8 zero bytes
//   placeholder  01 ‖ position within the run as u32 LE ‖ hash of the object as u64 LE
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hashing/block_hash.h"

namespace kvr::hashing {

// One object at the token positions [offset, offset + length).
struct MmRun {
  MmHash hash = 0;
  std::size_t offset = 0;
  std::size_t length = 0;

  friend bool operator==(const MmRun&, const MmRun&) = default;
};

enum class MmRunError { kEmptyRun, kOffsetOverflow, kOutOfBounds, kOverlapping };

// "EmptyRun", "OffsetOverflow", "OutOfBounds", "Overlapping".
std::string_view MmRunErrorName(MmRunError error);

struct MmRunFailure {
  MmRunError error = MmRunError::kEmptyRun;
  std::size_t position = 0;  // the token position where it shows
};

// Sorts runs by offset and checks that each holds tokens of the prompt that no other run holds.
Result<void, MmRunFailure> SortMmRuns(std::vector<MmRun>& runs, std::size_t token_count);

// The hashes of all complete blocks; replaces the content of `out`. `runs` went through SortMmRuns
// for these tokens. `scratch` keeps its room between calls.
void HashFramedBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                      std::span<const MmRun> runs, std::vector<std::byte>& scratch,
                      std::vector<BlockHash>& out);

}  // namespace kvr::hashing
