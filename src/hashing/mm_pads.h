// Multimodal identity through token ids: some engines replace the placeholder tokens of an image by
// a number made from its hash, and hash plain tokens from there on.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hashing/block_hash.h"
#include "model/ids.h"

namespace kvr::hashing {

// 1 000 000 + (mm mod 2^30): the token id that stands for an object.
constexpr TokenId PadToken(MmHash mm) {
  return static_cast<TokenId>(1'000'000 + mm % (std::uint64_t{1} << 30));
}

// The placeholder ids a model uses, where configured.
struct Placeholders {
  std::optional<TokenId> image = {};
  std::optional<TokenId> video = {};
};

// Replaces each maximal run of one placeholder id by the pad of an object: the k-th run takes the
// k-th object, the runs beyond the last object take the last. Leaves `window` alone when there is
// no object. Returns the number of runs; where it is not the number of objects the result is a
// guess.
std::size_t SubstitutePads(std::span<TokenId> window, const Placeholders& placeholders,
                           std::span<const MmHash> objects);

// The block hash of a window whose placeholders are substituted; the objects themselves are not
// appended. `scratch` is overwritten. Without objects it equals HashBlock(window, seed); where
// there is nothing to substitute the objects are appended, so that the block never looks like plain
// text.
BlockHash HashBlockWithPads(std::span<const TokenId> window, const Seed& seed,
                            const Placeholders& placeholders, std::span<const MmHash> objects,
                            std::vector<TokenId>& scratch);

}  // namespace kvr::hashing
