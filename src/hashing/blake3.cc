#include "hashing/blake3.h"

#include <algorithm>
#include <bit>

#include <string.h>

#include "base/check.h"

namespace kvr::hashing {
namespace {

using Words = Blake3::Words;
using Block = std::array<std::uint32_t, 16>;

constexpr Words kIv = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                       0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
constexpr std::array<std::size_t, 16> kPermutation = {2, 6,  3,  10, 7, 0,  4,  13,
                                                      1, 11, 12, 5,  9, 14, 15, 8};
constexpr std::size_t kRounds = 7;

// Which word of the message each round takes where: the permutation applied once more a round.
constexpr auto kSchedule = [] {
  std::array<std::array<std::size_t, 16>, kRounds> out{};
  for (std::size_t i = 0; i < 16; ++i)
    out[0][i] = i;
  for (std::size_t round = 1; round < kRounds; ++round) {
    for (std::size_t i = 0; i < 16; ++i)
      out[round][i] = out[round - 1][kPermutation[i]];
  }
  return out;
}();

constexpr std::uint32_t kChunkStart = 1;
constexpr std::uint32_t kChunkEnd = 2;
constexpr std::uint32_t kParent = 4;
constexpr std::uint32_t kRoot = 8;
constexpr std::uint32_t kKeyedHash = 16;

// Inlined so that the state stays in registers.
[[gnu::always_inline]] inline void Mix(Block& v, std::size_t a, std::size_t b, std::size_t c,
                                       std::size_t d, std::uint32_t x, std::uint32_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 7);
}

// The first half of the compression's output: all that a 32-byte digest needs.
Words Compress(const Words& chaining, const Block& m, std::uint64_t counter,
               std::size_t block_bytes, std::uint32_t flags) {
  Block v = {chaining[0],
             chaining[1],
             chaining[2],
             chaining[3],
             chaining[4],
             chaining[5],
             chaining[6],
             chaining[7],
             kIv[0],
             kIv[1],
             kIv[2],
             kIv[3],
             static_cast<std::uint32_t>(counter),
             static_cast<std::uint32_t>(counter >> 32),
             static_cast<std::uint32_t>(block_bytes),
             flags};
  for (const auto& word : kSchedule) {
    Mix(v, 0, 4, 8, 12, m[word[0]], m[word[1]]);
    Mix(v, 1, 5, 9, 13, m[word[2]], m[word[3]]);
    Mix(v, 2, 6, 10, 14, m[word[4]], m[word[5]]);
    Mix(v, 3, 7, 11, 15, m[word[6]], m[word[7]]);
    Mix(v, 0, 5, 10, 15, m[word[8]], m[word[9]]);
    Mix(v, 1, 6, 11, 12, m[word[10]], m[word[11]]);
    Mix(v, 2, 7, 8, 13, m[word[12]], m[word[13]]);
    Mix(v, 3, 4, 9, 14, m[word[14]], m[word[15]]);
  }
  Words out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = v[i] ^ v[i + 8];
  return out;
}

template <std::size_t N>
std::array<std::uint32_t, N> ToWords(std::span<const std::byte> bytes) {
  std::array<std::uint32_t, N> out{};
  for (std::size_t i = 0; i < N * 4; ++i)
    out[i / 4] |= std::to_integer<std::uint32_t>(bytes[i]) << (i % 4 * 8);
  return out;
}

Block Concatenate(const Words& left, const Words& right) {
  Block out;
  std::copy(left.begin(), left.end(), out.begin());
  std::copy(right.begin(), right.end(), out.begin() + 8);
  return out;
}

}  // namespace

Blake3::Blake3() : key_(kIv), flags_(0), chaining_(kIv) {}

Blake3::Blake3(std::span<const std::byte, 32> key)
    : key_(ToWords<8>(key)), flags_(kKeyedHash), chaining_(key_) {}

Blake3::~Blake3() {
  explicit_bzero(key_.data(), sizeof key_);
  explicit_bzero(chaining_.data(), sizeof chaining_);
  explicit_bzero(block_.data(), sizeof block_);
  explicit_bzero(stack_.data(), sizeof stack_);
}

std::uint32_t Blake3::StartFlag() const {
  return blocks_done_ == 0 ? kChunkStart : 0;
}

void Blake3::CompressBlock() {
  chaining_ =
      Compress(chaining_, ToWords<16>(block_), chunks_done_, block_bytes_, flags_ | StartFlag());
  ++blocks_done_;
  block_bytes_ = 0;
}

// Finishes a full chunk that is not the last, and merges the subtrees it completes.
void Blake3::EndChunk() {
  Words node = Compress(chaining_, ToWords<16>(block_), chunks_done_, block_bytes_,
                        flags_ | StartFlag() | kChunkEnd);
  ++chunks_done_;
  for (std::uint64_t rest = chunks_done_; rest % 2 == 0; rest /= 2)
    node = Compress(key_, Concatenate(stack_[--depth_], node), 0, kBlockBytes, flags_ | kParent);
  KVR_CHECK(depth_ < kDepthMax);
  stack_[depth_++] = node;
  chaining_ = key_;
  blocks_done_ = 0;
  block_bytes_ = 0;
}

void Blake3::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (block_bytes_ == kBlockBytes) {
      if (blocks_done_ + 1 == kChunkBytes / kBlockBytes) {
        EndChunk();
      } else {
        CompressBlock();
      }
    }
    const std::size_t take = std::min(kBlockBytes - block_bytes_, bytes.size());
    std::copy_n(bytes.begin(), take, block_.begin() + static_cast<std::ptrdiff_t>(block_bytes_));
    block_bytes_ += take;
    bytes = bytes.subspan(take);
  }
}

Blake3Digest Blake3::Finish() const {
  std::array<std::byte, kBlockBytes> padded{};
  std::copy_n(block_.begin(), block_bytes_, padded.begin());
  // The node whose compression is still to come: its flags depend on whether it is the root.
  Words chaining = chaining_;
  Block message = ToWords<16>(padded);
  std::uint64_t counter = chunks_done_;
  std::size_t bytes = block_bytes_;
  std::uint32_t flags = flags_ | StartFlag() | kChunkEnd;
  for (std::size_t i = depth_; i-- > 0;) {
    message = Concatenate(stack_[i], Compress(chaining, message, counter, bytes, flags));
    chaining = key_;
    counter = 0;
    bytes = kBlockBytes;
    flags = flags_ | kParent;
  }
  const Words root = Compress(chaining, message, 0, bytes, flags | kRoot);
  Blake3Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(root[i / 4] >> (i % 4 * 8));
  return digest;
}

Blake3Digest Blake3Hash(std::span<const std::byte> bytes) {
  Blake3 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Blake3Digest Blake3Hash(std::string_view text) {
  return Blake3Hash(std::as_bytes(std::span(text)));
}

}  // namespace kvr::hashing
