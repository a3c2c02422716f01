// The frame of a binary dump: a head, then chunks with checksums. docs/dump-format.md describes it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace kvr::service {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

inline constexpr std::string_view kDumpMediaType = "application/x-kvroute-dump";
inline constexpr std::string_view kDumpMagic = "\x89KVRDUMP";
inline constexpr std::uint32_t kDumpVersion = 1;

enum class DumpChunk : std::uint32_t {
  kPartition = 1,
  kRank = 2,
  kRuns = 3,
  kSides = 4,
  kPartitionEnd = 5,
  kEnd = 6,
};
// Later versions may add kinds; a reader passes over those that have this bit.
inline constexpr std::uint32_t kOptionalChunk = 0x8000'0000u;
inline constexpr auto kAboutChunk = static_cast<DumpChunk>(kOptionalChunk | 1);
inline constexpr auto kDigestChunk = static_cast<DumpChunk>(kOptionalChunk | 2);

// Appends a dump's head and chunks to texts, one after the other. Not thread-safe.
class DumpChunkWriter {
 public:
  // What one chunk should carry at most, as far as its parts allow.
  static constexpr std::size_t kPayloadBytes = 256u << 10;

  static void Head(std::string& out);
  // The payload is what is appended to `out` between the two.
  void Begin(DumpChunk kind, std::string& out);
  void End(std::string& out);

 private:
  std::size_t begin_ = 0;     // in the text, of the chunk under way
  std::uint64_t number_ = 0;  // of that chunk
};

// Takes the bytes of a dump as they come and hands over each chunk that is whole and unharmed. What
// stays in memory is one chunk. Not thread-safe.
class DumpChunkReader {
 public:
  static constexpr std::size_t kPayloadBytesMax = 1u << 20;  // beyond: kCorrupt

  // `kind` may be one that DumpChunk does not name.
  using Use = std::function<Result<void>(std::uint32_t kind, std::string_view payload)>;

  // kCorrupt: the bytes are no dump, or damaged; kUnprocessable: of another version. Else what
  // `use` fails with. Nothing is to be put afterwards.
  Result<void> Put(std::string_view bytes, const Use& use);
  // After the last byte: kCorrupt when more should have come.
  [[nodiscard]] Result<void> Finish() const;

 private:
  Result<std::size_t> TakeHead(std::string_view bytes);
  // How many bytes were used; 0 when the next chunk is not complete.
  Result<std::size_t> TakeChunk(std::string_view bytes, const Use& use);

  std::string kept_;  // what has come of the next chunk
  std::uint64_t taken_ = 0;
  std::uint64_t number_ = 0;  // of the next chunk
  bool begun_ = false;
  bool ended_ = false;
};

template <typename Number>
void AppendNumber(std::string& out, Number value) {
  static_assert(std::is_integral_v<Number>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads a payload from its begin.
class PayloadCursor {
 public:
  explicit PayloadCursor(std::string_view payload) : left_(payload) {}

  // False when too few bytes are left.
  template <typename Number>
  [[nodiscard]] bool Read(Number& value) {
    static_assert(std::is_integral_v<Number>);
    std::string_view bytes;
    if (!Read(sizeof(Number), bytes)) return false;
    std::memcpy(&value, bytes.data(), sizeof(Number));
    return true;
  }
  [[nodiscard]] bool Read(std::uint64_t size, std::string_view& bytes) {
    if (left_.size() < size) return false;
    bytes = left_.substr(0, static_cast<std::size_t>(size));
    left_.remove_prefix(bytes.size());
    return true;
  }
  [[nodiscard]] bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace kvr::service
