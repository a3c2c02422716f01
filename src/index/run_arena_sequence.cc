#include <cstddef>

#include "hashing/block_hash.h"
#include "index/run_arena.h"
#include "index/run_arena_ask.h"

namespace kvr::index {
namespace {

// Appends the blocks of the chain that are found.
void FindPath(const RunDirectory& directory, std::span<const SequenceHash> sequence,
              std::vector<BlockHash>& blocks) {
  RunId id = kRootRun;
  const RunState* run = nullptr;
  std::size_t branches = PrefixIndex::kBranchesMax;
  for (std::uint32_t depth = 0; depth < sequence.size(); ++depth) {
    const auto is_next = [&](BlockHash local) {
      return hashing::NextSequenceHash(sequence[depth - 1], local) == sequence[depth];
    };
    const auto local_at = [&](std::uint32_t at) {
      return BlockHash{run->fields.locals[at - run->fields.blocks.begin]};
    };
    if (depth == 0) {
      run = directory.FindChild(kRootRun, 0, 0, BlockHash{Raw(sequence[0])}, id);
    } else if (depth == run->fields.blocks.end || !is_next(local_at(depth))) {
      run = directory.FindChildIf(id, run->fields.generation, depth, branches, is_next, id);
    }
    if (run == nullptr) return;
    blocks.push_back(local_at(depth));
  }
}

}  // namespace

void RunArena::FindBlocks(std::span<const SequenceHash> sequence,
                          std::vector<BlockHash>& blocks) const {
  Ask([&](const auto& of_one_shape) {
    blocks.clear();
    FindPath(directory_, sequence, blocks);
    return blocks.size() == sequence.size() || of_one_shape();
  });
}

}  // namespace kvr::index
