// Recorded event messages in a file, with the times at which they were received.
//
// All numbers are little-endian.
//
//   file    = magic "\x89KVRCAP\n" (8 bytes), u32 version = 1, u32 reserved = 0, record...
//   record  = u32 length of the body, u32 CRC-32 (IEEE) of the body, body
//   body    = u8 kind, then by kind
//     1 source   u16 number, u32 length, endpoint, u32 length, topic filter
//     2 message  u16 number of its source, u64 nanoseconds since the Unix epoch,
//                u32 count, then for each frame u32 length, bytes
//
// A source comes before its messages; numbers are 0, 1, ... in order of appearance. Bodies of other
// kinds are skipped by readers. A file whose writer was killed ends inside a record: readers take
// what is before it. Frames are as received, so they hold tokens and cache salts: the writer makes
// the file readable to its owner only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace kvr::wire {

inline constexpr std::string_view kCaptureMagic = "\x89KVRCAP\n";
inline constexpr std::uint32_t kCaptureVersion = 1;

// Ceilings of a record, held by writer and reader.
struct CaptureLimits {
  std::size_t record_bytes_max = std::size_t{257}
                                 << 20;  // the transport's largest message, and some
  std::size_t frames_max = 64;
  std::size_t sources_max = 4'096;
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, FileCloser>;

// Not thread-safe.
class CaptureWriter {
 public:
  // Makes the file, readable to its owner. kAlreadyExists: it is there. kIo: the system's reason.
  static Result<CaptureWriter> Create(const std::string& path);

  // Returns the number of the source. kOverloaded beyond the limit, kIo.
  Result<std::uint16_t> AddSource(std::string_view endpoint, std::string_view topic);
  // False: the message is beyond a limit, and left out. kIo.
  Result<bool> AddMessage(std::uint16_t source, Nanos received,
                          std::span<const std::span<const std::byte>> frames);
  // What was written so far is then in the file whatever happens to the process.
  Result<void> Flush();

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  CaptureWriter(FilePtr file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Result<void> WriteRecord();

  FilePtr file_;
  std::string path_;
  CaptureLimits limits_;
  std::string body_;  // of the record at hand
  std::uint16_t sources_ = 0;
  std::uint64_t bytes_ = 0;
};

struct CaptureSource {
  std::string endpoint;
  std::string topic;
};

// Valid until the next read.
struct CaptureMessage {
  std::uint16_t source = 0;
  Nanos received{};
  std::vector<std::span<const std::byte>> frames;
};

// Not thread-safe. No content makes it throw or read out of bounds.
class CaptureReader {
 public:
  // Takes the file from its first byte. kUnprocessable: no capture, or of another version.
  static Result<CaptureReader> Open(FilePtr file, const CaptureLimits& limits);

  // The next message; false at the end. The end may be early, see damage().
  bool Next(CaptureMessage& message);

  // Sources that were named so far, by number.
  [[nodiscard]] const std::vector<CaptureSource>& sources() const { return sources_; }
  // Why the reading ended before the end of the file, empty when it did not. `torn` says that it
  // ended inside the last record, as after a writer was killed.
  [[nodiscard]] const std::string& damage() const { return damage_; }
  [[nodiscard]] bool torn() const { return torn_; }

 private:
  CaptureReader(FilePtr file, const CaptureLimits& limits)
      : file_(std::move(file)), limits_(limits) {}
  bool ReadRecord();
  bool TakeMessage(CaptureMessage& message);
  bool TakeSource();
  bool Damaged(std::string_view what);
  bool Torn(std::string_view what);

  FilePtr file_;
  CaptureLimits limits_;
  std::vector<std::byte> body_;
  std::vector<CaptureSource> sources_;
  std::uint64_t offset_ = 0;  // of the record at hand
  std::uint64_t next_ = 0;    // of the one after it
  std::string damage_;
  bool torn_ = false;
};

// CRC-32 as of IEEE 802.3, of "123456789" 0xCBF43926.
std::uint32_t Crc32(std::span<const std::byte> bytes);

}  // namespace kvr::wire
