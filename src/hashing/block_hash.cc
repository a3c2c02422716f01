#include "hashing/block_hash.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

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

std::uint64_t HashPlain(std::span<const std::byte> bytes, const Seed& seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed.raw());
}

// Enough for every block met in practice; more objects than this fall back to the heap.
constexpr std::size_t kMmInline = 32;

// `hash_of` takes an item to its multimodal hash.
template <typename Item, typename HashOf>
std::uint64_t HashWithMm(std::span<const std::byte> bytes, const Seed& seed,
                         std::span<const Item> items, HashOf hash_of) {
  std::array<MmHash, kMmInline> inline_room;
  std::vector<MmHash> heap_room;
  std::span<MmHash> sorted;
  if (items.size() <= kMmInline) {
    sorted = std::span(inline_room).first(items.size());
  } else {
    heap_room.resize(items.size());
    sorted = heap_room;
  }
  std::transform(items.begin(), items.end(), sorted.begin(), hash_of);
  std::sort(sorted.begin(), sorted.end());
  std::transform(sorted.begin(), sorted.end(), sorted.begin(), LittleEndian<MmHash>);

  XXH3_state_t state;
  XXH3_64bits_reset_withSeed(&state, seed.raw());
  XXH3_64bits_update(&state, bytes.data(), bytes.size());
  XXH3_64bits_update(&state, sorted.data(), sorted.size_bytes());
  return XXH3_64bits_digest(&state);
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

Seed::Seed(std::string_view lora, std::string_view cache_salt) {
  if (!lora.empty()) raw_ += XXH3_64bits_withSeed(lora.data(), lora.size(), 0);
  if (!cache_salt.empty()) raw_ += XXH3_64bits_withSeed(cache_salt.data(), cache_salt.size(), 1);
}

Seed Seed::FromRaw(std::uint64_t raw) {
  Seed seed;
  seed.raw_ = raw;
  return seed;
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
  if (mm.empty()) return BlockHash{HashPlain(window, seed)};
  return BlockHash{HashWithMm(window, seed, mm, [](MmHash hash) { return hash; })};
}

BlockHash HashBlock(std::span<const TokenId> window, const Seed& seed, std::span<const MmHash> mm) {
  return WithBytes(
      window, [&](std::span<const std::byte> bytes) { return HashBlockBytes(bytes, seed, mm); });
}

void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::vector<BlockHash>& out) {
  HashBlocks(tokens, how, {}, out);
}

void HashBlocks(std::span<const TokenId> tokens, const BlockHashing& how,
                std::span<const BlockMm> mm, std::vector<BlockHash>& out) {
  const std::size_t count = BlockCount(tokens.size(), how.block_size, how.eagle);
  out.resize(count);
  std::size_t next = 0;  // the first object that is not before block i
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = next;
    while (next < mm.size() && mm[next].block == i)
      ++next;
    const auto objects = mm.subspan(first, next - first);
    out[i] =
        BlockHash{WithBytes(BlockWindow(tokens, how, i), [&](std::span<const std::byte> bytes) {
          if (objects.empty()) return HashPlain(bytes, how.seed);
          return HashWithMm(bytes, how.seed, objects,
                            [](const BlockMm& object) { return object.hash; });
        })};
  }
}

SequenceHash NextSequenceHash(SequenceHash parent, BlockHash block) {
  const std::array<std::uint64_t, 2> link = {LittleEndian(Raw(parent)), LittleEndian(Raw(block))};
  return SequenceHash{XXH3_64bits_withSeed(link.data(), sizeof link, kBaseSeed)};
}

void ChainHashes(std::span<const BlockHash> blocks, std::vector<SequenceHash>& out) {
  out.resize(blocks.size());
  if (blocks.empty()) return;
  out[0] = FirstSequenceHash(blocks[0]);
  for (std::size_t i = 1; i < blocks.size(); ++i)
    out[i] = NextSequenceHash(out[i - 1], blocks[i]);
}

}  // namespace kvr::hashing
