// BLAKE3 with a 32-byte digest, from its public specification: hash and keyed hash, input of any
// length in any pieces. Portable and without SIMD: meant for identities of a few hundred bytes,
// never for the path of a request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvr::hashing {

using Blake3Digest = std::array<std::byte, 32>;

class Blake3 {
 public:
  Blake3();
  explicit Blake3(std::span<const std::byte, 32> key);
  // Wipes what it knows of key and input.
  ~Blake3();
  Blake3(const Blake3&) = default;
  Blake3& operator=(const Blake3&) = default;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  // May be followed by more updates.
  [[nodiscard]] Blake3Digest Finish() const;

  using Words = std::array<std::uint32_t, 8>;

 private:
  static constexpr std::size_t kBlockBytes = 64;
  static constexpr std::size_t kChunkBytes = 1024;
  // 2^54 chunks are 2^64 bytes.
  static constexpr std::size_t kDepthMax = 54;

  [[nodiscard]] std::uint32_t StartFlag() const;
  void CompressBlock();
  void EndChunk();

  Words key_;
  std::uint32_t flags_;
  // The chunk that is being filled. Its last block stays uncompressed until more bytes come,
  // because the last block of the input is compressed with other flags.
  Words chaining_;
  std::array<std::byte, kBlockBytes> block_{};
  std::size_t block_bytes_ = 0;
  std::size_t blocks_done_ = 0;
  std::uint64_t chunks_done_ = 0;
  // Roots of complete subtrees, largest first: one per bit set in `chunks_done_`.
  std::array<Words, kDepthMax> stack_{};
  std::size_t depth_ = 0;
};

Blake3Digest Blake3Hash(std::span<const std::byte> bytes);
Blake3Digest Blake3Hash(std::string_view text);

}  // namespace kvr::hashing
