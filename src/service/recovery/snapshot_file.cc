#include "service/recovery/snapshot_file.h"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kvr::service {
namespace {

constexpr std::size_t kPieceBytes = 1u << 20;
// Hashes of prompts tell whether a prompt was asked, so they are nobody else's.
constexpr mode_t kMode = 0600;

tl::unexpected<Error> Failed(std::string_view what, const std::string& path,
                             ErrorCode code = ErrorCode::kIo) {
  return Fail(code,
              fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(errno)));
}

std::string Aside(const std::string& path) {
  return path + ".tmp";
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Until then a renamed file may be found under its old name after the power went.
Result<void> SyncFolder(const std::string& folder) {
  const FileHandle opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.fd() < 0 || ::fsync(opened.fd()) != 0) return Failed("sync", folder);
  return {};
}

Result<void> CheckRegular(const FileHandle& file, const std::string& path) {
  struct stat about = {};
  if (::fstat(file.fd(), &about) != 0) return Failed("read", path);
  if (S_ISREG(about.st_mode)) return {};
  return Fail(ErrorCode::kIo, fmt::format("{} is no regular file", path));
}

}  // namespace

FileHandle::FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> FileHandle::Close() {
  if (::close(std::exchange(fd_, -1)) == 0) return {};
  return Fail(ErrorCode::kIo, std::generic_category().message(errno));
}

Result<SnapshotLock> SnapshotLock::Take(const std::string& path) {
  const std::string name = path + ".lock";
  FileHandle file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (file.fd() < 0) return Failed("open", name);
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) return SnapshotLock(std::move(file));
  if (errno != EWOULDBLOCK) return Failed("lock", name);
  return Fail(ErrorCode::kUnavailable,
              fmt::format("another process writes {}; give each its own snapshot.path", path));
}

SnapshotFile::SnapshotFile(std::string path, FileHandle file)
    : path_(std::move(path)), file_(std::move(file)) {}

Result<SnapshotFile> SnapshotFile::Begin(const std::string& path) {
  const std::string aside = Aside(path);
  // Not blocking, so that a pipe of that name holds nobody up.
  FileHandle file(::open(
      aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode));
  if (file.fd() < 0) return Failed("open", aside);
  KVR_TRY_VOID(CheckRegular(file, aside));
  return SnapshotFile(path, std::move(file));
}

SnapshotFile::~SnapshotFile() {
  if (file_.fd() >= 0) ::unlink(Aside(path_).c_str());
}

Result<void> SnapshotFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_.fd(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Failed("write", Aside(path_));
    bytes_ += static_cast<std::uint64_t>(wrote);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

Result<void> SnapshotFile::Commit() {
  const std::string aside = Aside(path_);
  if (::fsync(file_.fd()) != 0) return Failed("sync", aside);
  if (std::rename(aside.c_str(), path_.c_str()) != 0) return Failed("replace", path_);
  KVR_TRY_VOID(file_.Close());
  return SyncFolder(FolderOf(path_));
}

Result<void> CheckReplaceable(const std::string& path, std::string_view magic) {
  std::string begin;
  auto read = ReadSnapshotFile(path, [&](std::string_view piece) -> Result<void> {
    begin += piece;
    if (begin.size() < magic.size()) return {};
    return Fail(ErrorCode::kCancelled, "enough is read");
  });
  if (!read && read.error().code == ErrorCode::kNotFound) return {};
  if (!read && read.error().code != ErrorCode::kCancelled) return read;
  if (begin.substr(0, magic.size()) == magic.substr(0, begin.size())) return {};
  return Fail(ErrorCode::kIo, fmt::format("{} is no snapshot and is left alone; remove it or "
                                          "choose another snapshot.path",
                                          path));
}

Result<void> ReadSnapshotFile(const std::string& path,
                              const std::function<Result<void>(std::string_view)>& put) {
  // Not blocking, so that a pipe of that name holds nobody up.
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) {
    return Failed("open", path, errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo);
  }
  KVR_TRY_VOID(CheckRegular(file, path));
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t got = ::read(file.fd(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) return {};
    KVR_TRY_VOID(put(std::string_view(piece.data(), static_cast<std::size_t>(got))));
  }
}

}  // namespace kvr::service
