#include "hashing/mm_pads.h"

#include <algorithm>

namespace kvr::hashing {

std::size_t SubstitutePads(std::span<TokenId> window, const Placeholders& placeholders,
                           std::span<const MmHash> objects) {
  if (objects.empty()) return 0;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < window.size();) {
    const TokenId token = window[i];
    if (token != placeholders.image && token != placeholders.video) {
      ++i;
      continue;
    }
    const TokenId pad = PadToken(objects[std::min(runs, objects.size() - 1)]);
    for (; i < window.size() && window[i] == token; ++i)
      window[i] = pad;
    ++runs;
  }
  return runs;
}

BlockHash HashBlockWithPads(std::span<const TokenId> window, const Seed& seed,
                            const Placeholders& placeholders, std::span<const MmHash> objects,
                            std::vector<TokenId>& scratch) {
  if (objects.empty()) return HashBlock(window, seed);
  scratch.assign(window.begin(), window.end());
  if (SubstitutePads(scratch, placeholders, objects) == 0) return HashBlock(window, seed, objects);
  return HashBlock(scratch, seed);
}

}  // namespace kvr::hashing
