#include "hashing/block_hash.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "hashing/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvr::hashing {
namespace {

// How tokens and hashes are laid out in the hashed bytes, whatever the host is.
template <typename T>
constexpr T LittleEndian(T value) {
  if constexpr (std::endian::native == std::endian::little) {
    return value;
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<T>(__builtin_bswap64(value));
  } else {
    return static_cast<T>(__builtin_bswap32(value));
  }
}

// Room on the stack for what is hashed of a block with objects; what is longer goes to the heap.
constexpr std::size_t kInlineBytes = 4096;

// The bytes of the tokens with the hashes of `items` behind them, ascending. `hash_of` takes an
// item to its hash.
template <typename Item, typename HashOf>
std::uint64_t HashWithMm(std::span<const std::byte> tokens, const Seed& seed,
                         std::span<const Item> items, HashOf hash_of) {
  const std::size_t mm_words = items.size();
  const std::size_t size = tokens.size() + mm_words * sizeof(MmHash);
  // Words, so that the hashes can be sorted in place in front of where the tokens go.
  std::array<MmHash, 2 * kInlineBytes / sizeof(MmHash)> inline_room;
  std::vector<MmHash> heap_room;
  std::span<MmHash> room = inline_room;
  const std::size_t words = mm_words + size / sizeof(MmHash) + 1;
  if (words > room.size()) {
    heap_room.resize(words);
    room = heap_room;
  }
  const auto sorted = room.first(mm_words);
  std::transform(items.begin(), items.end(), sorted.begin(), hash_of);
  std::sort(sorted.begin(), sorted.end());
  std::transform(sorted.begin(), sorted.end(), sorted.begin(), LittleEndian<MmHash>);

  const auto input = std::as_writable_bytes(room.subspan(mm_words)).first(size);
  std::copy(tokens.begin(), tokens.end(), input.begin());
  const auto mm_bytes = std::as_bytes(sorted);
  std::copy(mm_bytes.begin(), mm_bytes.end(), input.last(mm_bytes.size()).begin());
  return seed.Hash(input);
}

// Up to here XXH3 takes the seed as it is; beyond it expands it to a secret.
constexpr std::size_t kUnexpandedBytes = 240;

// Windows of at most kUnexpandedBytes each: kBytes, or `bytes` when that is 0.
template <std::size_t kBytes>
void HashShort(const std::byte* data, std::size_t stride, std::size_t bytes, std::uint64_t seed,
               std::span<BlockHash> out) {
  const std::size_t size = kBytes != 0 ? kBytes : bytes;
  for (BlockHash& hash : out) {
    hash = BlockHash{XXH3_64bits_withSeed(data, size, seed)};
    data += stride;
  }
}

// Calls `hash` with the little-endian bytes of `tokens`.
template <typename Hash>
auto WithBytes(std::span<const TokenId> tokens, Hash hash) {
  if constexpr (std::endian::native == std::endian::little) {
    return hash(std::as_bytes(tokens));
  } else {
    std::vector<TokenId> swapped(tokens.size());
    std::transform(tokens.begin(), tokens.end(), swapped.begin(), LittleEndian<TokenId>);
    return hash(std::as_bytes(std::span<const TokenId>(swapped)));
  }
}

}  // namespace

Seed::Seed(std::uint64_t raw) : raw_(raw) {
  static_assert(sizeof secret_ == XXH_SECRET_DEFAULT_SIZE);
  XXH3_generateSecret_fromSeed(secret_.data(), raw);
}

Seed::Seed(std::string_view lora, std::string_view cache_salt) : Seed(RawOf(lora, cache_salt)) {}

std::uint64_t Seed::RawOf(std::string_view lora, std::string_view cache_salt) {
  return kBaseSeed + (lora.empty() ? 0 : Xxh3(lora, 0)) +
         (cache_salt.empty() ? 0 : Xxh3(cache_salt, 1));
}

std::uint64_t Seed::Hash(std::span<const std::byte> bytes) const {
  return XXH3_64bits_withSecretandSeed(bytes.data(), bytes.size(), secret_.data(), secret_.size(),
                                       raw_);
}

std::size_t BlockCount(std::size_t tokens, std::size_t block_size, bool eagle) {
  if (block_size == 0 || tokens == 0) return 0;
  return (eagle ? tokens - 1 : tokens) / block_size;
}

std::span<const TokenId> BlockWindow(std::span<const TokenId> tokens, const BlockHashing& how,
                                     std::size_t index) {
  KVR_DCHECK(index < BlockCount(tokens.size(), how.block_size, how.eagle));
  return tokens.subspan(index * how.block_size, how.block_size + (how.eagle ? 1 : 0));
}

BlockHash HashBlockBytes(std::span<const std::byte> window, const Seed& seed,
                         std::span<const MmHash> mm) {
  window = window.first(window.size() - window.size() % sizeof(TokenId));
  if (mm.empty()) return BlockHash{seed.Hash(window)};
  return BlockHash{HashWithMm(window, seed, mm, [](MmHash hash) { return hash; })};
}

BlockHash HashBlock(std::span<const TokenId> window, const Seed& seed, std::span<const MmHash> mm) {
  return WithBytes(
      window, [&](std::span<const std::byte> bytes) { return HashBlockBytes(bytes, seed, mm); });
}

void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::vector<BlockHash>& out) {
  out.resize(BlockCount(tokens.size(), how.block_size, how.eagle));
  const std::size_t bytes = (how.block_size + (how.eagle ? 1 : 0)) * sizeof(TokenId);
  WithBytes(tokens, [&](std::span<const std::byte> data) {
    const std::size_t stride = how.block_size * sizeof(TokenId);
    const std::uint64_t seed = how.seed.raw();
    // The usual block sizes, known when compiled, cost half of what a size in a variable does.
    switch (bytes) {
      case 16 * sizeof(TokenId):
        return HashShort<16 * sizeof(TokenId)>(data.data(), stride, bytes, seed, out);
      case 32 * sizeof(TokenId):
        return HashShort<32 * sizeof(TokenId)>(data.data(), stride, bytes, seed, out);
      default:
        if (bytes <= kUnexpandedBytes) return HashShort<0>(data.data(), stride, bytes, seed, out);
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = BlockHash{how.seed.Hash(data.subspan(i * stride, bytes))};
  });
}

void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::span<const BlockMm> mm, std::vector<BlockHash>& out) {
  HashBlocks(tokens, how, out);
  while (!mm.empty() && mm[0].block < out.size()) {
    const std::size_t block = mm[0].block;
    const auto end = std::find_if(mm.begin(), mm.end(),
                                  [block](const BlockMm& object) { return object.block != block; });
    const auto objects = mm.first(static_cast<std::size_t>(end - mm.begin()));
    const auto hash = [&](std::span<const std::byte> bytes) {
      return HashWithMm(bytes, how.seed, objects,
                        [](const BlockMm& object) { return object.hash; });
    };
    out[block] = BlockHash{WithBytes(BlockWindow(tokens, how, block), hash)};
    mm = mm.subspan(objects.size());
  }
}

SequenceHash NextSequenceHash(SequenceHash parent, BlockHash block, std::uint64_t chain_seed) {
  const std::array<std::uint64_t, 2> link = {LittleEndian(Raw(parent)), LittleEndian(Raw(block))};
  return SequenceHash{XXH3_64bits_withSeed(link.data(), sizeof link, chain_seed)};
}

void ChainHashes(std::span<const BlockHash> blocks, std::vector<SequenceHash>& out,
                 std::uint64_t chain_seed) {
  out.resize(blocks.size());
  if (blocks.empty()) return;
  out[0] = FirstSequenceHash(blocks[0]);
  for (std::size_t i = 1; i < blocks.size(); ++i)
    out[i] = NextSequenceHash(out[i - 1], blocks[i], chain_seed);
}

}  // namespace kvr::hashing
