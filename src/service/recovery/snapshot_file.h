// A dump on disk: written aside and put in place whole, read with suspicion.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace kvr::service {

// An open file that is closed at the end.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  [[nodiscard]] int fd() const { return fd_; }
  // kIo.
  Result<void> Close();

 private:
  int fd_;
};

// Keeps other processes from writing the file. The lock is PATH.lock, which stays behind, and goes
// with the process however that ends.
class SnapshotLock {
 public:
  // kUnavailable when another process has it, kIo.
  static Result<SnapshotLock> Take(const std::string& path);

 private:
  explicit SnapshotLock(FileHandle file) : file_(std::move(file)) {}

  FileHandle file_;
};

// Writes PATH.tmp, which only who has the lock may do, and at Commit puts it in the place of PATH.
// So PATH is at any time what it was or what it is to be, also after the power went. Without a
// Commit nothing is left. Not thread-safe.
class SnapshotFile {
 public:
  // kIo.
  static Result<SnapshotFile> Begin(const std::string& path);
  SnapshotFile(SnapshotFile&&) noexcept = default;
  SnapshotFile& operator=(SnapshotFile&&) = delete;
  ~SnapshotFile();

  Result<void> Append(std::string_view bytes);
  Result<void> Commit();

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  SnapshotFile(std::string path, FileHandle file);

  std::string path_;
  FileHandle file_;  // open as long as it is not committed
  std::uint64_t bytes_ = 0;
};

// Fails, with kIo, when PATH is a file that begins otherwise than `magic`: somebody else's, which a
// wrong path must not cost him. An empty one is nobody's.
Result<void> CheckReplaceable(const std::string& path, std::string_view magic);

// Hands on the file's bytes in pieces of at most 1 MiB until `put` fails, and says so. kNotFound
// when there is none; kIo, also of what is no regular file.
Result<void> ReadSnapshotFile(const std::string& path,
                              const std::function<Result<void>(std::string_view)>& put);

}  // namespace kvr::service
