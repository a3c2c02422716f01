// Token ids → block hashes → sequence hashes.
//
// A request and an engine event get the same block hash exactly when tokens, LoRA, cache salt,
// multimodal objects and eagle agree. All functions are pure, may be called from any thread and
// allocate only what the caller's output vector lacks.
//
//   Seed          1337 [+ XXH3(lora, seed 0)] [+ XXH3(salt, seed 1)], wrapping
//   block hash    XXH3(tokens as u32 LE [‖ multimodal hashes as u64 LE, ascending], Seed)
//   sequence hash first: the block hash; then XXH3(parent as u64 LE ‖ block as u64 LE, seed 1337)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/ids.h"

namespace kvr::hashing {

// Where every seed starts, and the seed of the chain. Another chain seed belongs to tracking
// hashes alone: engines and routers that are to match use this one.
inline constexpr std::uint64_t kBaseSeed = 1337;

// The engine's 64-bit name of one image, video or audio clip.
using MmHash = std::uint64_t;

// Who may share blocks: mixed into every block hash, so that prompts of different LoRA adapters or
// cache salts never match. An empty name is the same as none. Make it once per identity: it hashes
// the names.
class Seed {
 public:
  Seed() : Seed(kBaseSeed) {}
  Seed(std::string_view lora, std::string_view cache_salt);
  // raw() of Seed(lora, cache_salt), without what making the seed costs.
  static std::uint64_t RawOf(std::string_view lora, std::string_view cache_salt);
  // A seed that was derived elsewhere, for example by a tracking key.
  static Seed FromRaw(std::uint64_t raw) { return Seed(raw); }

  [[nodiscard]] std::uint64_t raw() const { return raw_; }

  // XXH3_64bits_withSeed(bytes, raw()). Beyond 240 bytes XXH3 expands the seed to a secret; here
  // that is done once per seed and not once per block.
  [[nodiscard]] std::uint64_t Hash(std::span<const std::byte> bytes) const;

 private:
  explicit Seed(std::uint64_t raw);

  std::uint64_t raw_;
  std::array<std::byte, 192> secret_;
};

// How the tokens of a model are cut and hashed.
struct BlockHashing {
  std::size_t block_size = 0;  // in tokens; 0 yields no blocks
  // Speculative engines of the EAGLE family: a window is one token longer than the block, so that
  // neighbouring windows share a token. The stride stays `block_size`.
  bool eagle = false;
  Seed seed = {};
};

// Complete blocks in `tokens` tokens: ⌊n / size⌋, with eagle ⌊(n − 1) / size⌋.
std::size_t BlockCount(std::size_t tokens, std::size_t block_size, bool eagle);

// Tokens that block `index` covers; the block must be complete.
std::span<const TokenId> BlockWindow(std::span<const TokenId> tokens, const BlockHashing& how,
                                     std::size_t index);

// The hash of one window. `mm` is every multimodal object of the block in any order; duplicates
// count. With objects it allocates beyond 4 KiB of tokens and hashes (so does HashBlocks, per
// block).
BlockHash HashBlock(std::span<const TokenId> window, const Seed& seed,
                    std::span<const MmHash> mm = {});

// The same for tokens that are little-endian u32 bytes at any alignment. Bytes after the last whole
// token are ignored.
BlockHash HashBlockBytes(std::span<const std::byte> window, const Seed& seed,
                         std::span<const MmHash> mm = {});

// One multimodal object inside a block.
struct BlockMm {
  std::size_t block = 0;
  MmHash hash = 0;
};

// The hashes of all complete blocks; replaces the content of `out`. `mm` is ascending by block;
// objects beyond the last complete block are ignored.
void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::vector<BlockHash>& out);
void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::span<const BlockMm> mm, std::vector<BlockHash>& out);

// The sequence hash of a first block, and of a block behind `parent`.
constexpr SequenceHash FirstSequenceHash(BlockHash first) {
  return SequenceHash{Raw(first)};
}
SequenceHash NextSequenceHash(SequenceHash parent, BlockHash block,
                              std::uint64_t chain_seed = kBaseSeed);

// The chain from the root over consecutive blocks; replaces the content of `out`.
void ChainHashes(std::span<const BlockHash> blocks, std::vector<SequenceHash>& out,
                 std::uint64_t chain_seed = kBaseSeed);

}  // namespace kvr::hashing
