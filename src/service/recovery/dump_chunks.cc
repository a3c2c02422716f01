#include "service/recovery/dump_chunks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "hashing/xxh3.h"

namespace kvr::service {
namespace {

constexpr std::size_t kHeadBytes = 16;      // magic, version, 0
constexpr std::size_t kChunkHeadBytes = 8;  // kind, length of the payload
constexpr std::size_t kChecksumBytes = 8;

// Seeded by its number, so that a chunk in a wrong place is noticed too.
std::uint64_t ChecksumOf(std::string_view head_and_payload, std::uint64_t number) {
  return hashing::Xxh3(head_and_payload, number);
}

}  // namespace

void DumpChunkWriter::Head(std::string& out) {
  out += kDumpMagic;
  AppendNumber(out, kDumpVersion);
  AppendNumber(out, std::uint32_t{0});
}

void DumpChunkWriter::Begin(DumpChunk kind, std::string& out) {
  begin_ = out.size();
  AppendNumber(out, static_cast<std::uint32_t>(kind));
  AppendNumber(out, std::uint32_t{0});
}

void DumpChunkWriter::End(std::string& out) {
  const std::size_t bytes = out.size() - begin_ - kChunkHeadBytes;
  KVR_CHECK(bytes <= DumpChunkReader::kPayloadBytesMax);
  const auto length = static_cast<std::uint32_t>(bytes);
  std::memcpy(out.data() + begin_ + sizeof(std::uint32_t), &length, sizeof(length));
  AppendNumber(out, ChecksumOf(std::string_view(out).substr(begin_), number_));
  ++number_;
}

Result<void> DumpChunkReader::Put(std::string_view bytes, const Use& use) {
  // What waits is completed by as little as possible, the rest is read where it is.
  while (true) {
    const bool from_kept = !kept_.empty();
    if (from_kept) {
      const std::size_t more = std::min<std::size_t>(bytes.size(), 64u << 10);
      kept_ += bytes.substr(0, more);
      bytes.remove_prefix(more);
    }
    const std::string_view all = from_kept ? std::string_view(kept_) : bytes;
    std::string_view left = all;
    while (!left.empty()) {
      KVR_TRY(const std::size_t used, begun_ ? TakeChunk(left, use) : TakeHead(left));
      if (used == 0) break;
      left.remove_prefix(used);
      taken_ += used;
    }
    if (!from_kept) {
      kept_ = left;
      return {};
    }
    kept_.erase(0, all.size() - left.size());
    if (bytes.empty()) return {};
  }
}

Result<std::size_t> DumpChunkReader::TakeHead(std::string_view bytes) {
  const std::size_t known = std::min(bytes.size(), kDumpMagic.size());
  if (bytes.substr(0, known) != kDumpMagic.substr(0, known)) {
    return Fail(ErrorCode::kCorrupt, "no dump: it begins otherwise than a binary dump does");
  }
  if (bytes.size() < kHeadBytes) return 0;
  PayloadCursor head(bytes.substr(kDumpMagic.size()));
  std::uint32_t version = 0;
  KVR_CHECK(head.Read(version));
  if (version != kDumpVersion) {
    return Fail(ErrorCode::kUnprocessable,
                fmt::format("the dump has version {}, this program reads version {}", version,
                            kDumpVersion));
  }
  begun_ = true;
  return kHeadBytes;
}

Result<std::size_t> DumpChunkReader::TakeChunk(std::string_view bytes, const Use& use) {
  if (ended_) return Fail(ErrorCode::kCorrupt, "the dump goes on behind its end");
  PayloadCursor cursor(bytes);
  std::uint32_t kind = 0;
  std::uint32_t length = 0;
  if (!cursor.Read(kind) || !cursor.Read(length)) return 0;
  if (length > kPayloadBytesMax) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("the dump is damaged at byte {}: chunk {} says it has {} bytes, {} is "
                            "the most",
                            taken_, number_, length, kPayloadBytesMax));
  }
  std::string_view payload;
  std::uint64_t checksum = 0;
  if (!cursor.Read(length, payload) || !cursor.Read(checksum)) return 0;
  const std::size_t head_and_payload = kChunkHeadBytes + payload.size();
  if (checksum != ChecksumOf(bytes.substr(0, head_and_payload), number_)) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("the dump is damaged at byte {}: the checksum of chunk {} is wrong",
                            taken_, number_));
  }
  ++number_;
  ended_ = kind == static_cast<std::uint32_t>(DumpChunk::kEnd);
  KVR_TRY_VOID(use(kind, payload));
  return head_and_payload + kChecksumBytes;
}

Result<void> DumpChunkReader::Finish() const {
  if (ended_ && kept_.empty()) return {};
  return Fail(ErrorCode::kCorrupt,
              fmt::format("the dump ends early, after {} bytes", taken_ + kept_.size()));
}

}  // namespace kvr::service
