#include <cstddef>

#include "hashing/block_hash.h"
#include "index/run_arena.h"

namespace kvr::index {

void RunArena::FindBlocks(std::span<const SequenceHash> sequence,
                          std::vector<BlockHash>& blocks) const {
  blocks.clear();
  FairLock lock(mutex_);
  BlockPlace at;
  std::size_t branches = kBranchesMax;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const auto is_next = [&](BlockHash local) {
      return hashing::NextSequenceHash(sequence[i - 1], local) == sequence[i];
    };
    if (i == 0) {
      at.run = runs_.FindChild(at, BlockHash{Raw(sequence[0])});
    } else if (at.depth == runs_.BlocksOf(at.run).end || !is_next(runs_.LocalAt(at))) {
      at.run = runs_.FindChildIf(at, branches, is_next);
    }
    if (at.run == kRootRun) return;
    blocks.push_back(runs_.LocalAt(at));
    ++at.depth;
  }
}

}  // namespace kvr::index
