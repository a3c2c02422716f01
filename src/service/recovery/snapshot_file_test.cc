#include "service/recovery/snapshot_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kvr::service {
namespace {

using testing::HasSubstr;

class SnapshotFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "kvr_snapshot_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "snapshot";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(std::string_view content) const {
    std::ofstream file(path_, std::ios::binary);
    file << content;
  }
  static std::string Read(const std::string& path) {
    std::string all;
    const auto read = ReadSnapshotFile(path, [&](std::string_view piece) -> Result<void> {
      all += piece;
      return {};
    });
    return read ? all : read.error().message;
  }
  [[nodiscard]] std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    return names;
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(SnapshotFileTest, IsInPlaceOnlyWhenItIsWhole) {
  Write("old");
  auto file = SnapshotFile::Begin(path_);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Append("new "));
  ASSERT_TRUE(file->Append(std::string(3'000'000, 'x')));
  EXPECT_EQ(Read(path_), "old");
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(Read(path_), "new " + std::string(3'000'000, 'x'));
  EXPECT_EQ(file->bytes(), 3'000'004u);
  EXPECT_THAT(Files(), testing::ElementsAre("snapshot"));
  const auto mode = std::filesystem::status(path_).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(SnapshotFileTest, WithoutACommitNothingIsLeft) {
  Write("old");
  {
    auto file = SnapshotFile::Begin(path_);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Append("new"));
    SnapshotFile moved = *std::move(file);
  }
  EXPECT_EQ(Read(path_), "old");
  EXPECT_THAT(Files(), testing::ElementsAre("snapshot"));
}

TEST_F(SnapshotFileTest, WhatAKilledWriterLeftIsWrittenOver) {
  std::ofstream(path_ + ".tmp") << std::string(100, 'x');
  auto file = SnapshotFile::Begin(path_);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Append("new"));
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(Read(path_), "new");
}

TEST_F(SnapshotFileTest, FailuresNameTheFile) {
  const std::string nowhere = folder_ / "none" / "snapshot";
  const auto begun = SnapshotFile::Begin(nowhere);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, ErrorCode::kIo);
  EXPECT_THAT(begun.error().message, HasSubstr(nowhere + ".tmp: No such file"));

  std::filesystem::create_directory(path_);
  auto file = SnapshotFile::Begin(path_);
  ASSERT_TRUE(file);
  const auto committed = file->Commit();
  ASSERT_FALSE(committed);
  EXPECT_THAT(committed.error().message, HasSubstr("cannot replace " + path_));
}

TEST_F(SnapshotFileTest, ALinkInTheWayIsNotFollowed) {
  std::filesystem::create_symlink("/dev/full", path_ + ".tmp");
  EXPECT_FALSE(SnapshotFile::Begin(path_));
}

TEST_F(SnapshotFileTest, APipeInTheWayHoldsNobodyUp) {
  const std::string aside = path_ + ".tmp";
  ASSERT_EQ(::mkfifo(aside.c_str(), 0600), 0);
  EXPECT_FALSE(SnapshotFile::Begin(path_));
  const int reader = ::open(aside.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_FALSE(SnapshotFile::Begin(path_)) << "somebody reads it";
  ::close(reader);
}

TEST_F(SnapshotFileTest, OnlyRegularFilesAreRead) {
  EXPECT_THAT(Read(path_), HasSubstr("No such file"));
  EXPECT_THAT(Read(folder_), HasSubstr("is no regular file"));
  EXPECT_THAT(Read("/dev/zero"), HasSubstr("is no regular file"));
  Write("");
  EXPECT_EQ(Read(path_), "");
}

TEST_F(SnapshotFileTest, ReadingEndsWhenNobodyWantsMore) {
  Write(std::string(5u << 20, 'x'));
  std::size_t bytes = 0;
  const auto read = ReadSnapshotFile(path_, [&](std::string_view piece) -> Result<void> {
    EXPECT_LE(piece.size(), 1u << 20);
    bytes += piece.size();
    if (bytes < 2u << 20) return {};
    return Fail(ErrorCode::kCorrupt, "enough");
  });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "enough");
  EXPECT_LT(bytes, 4u << 20);
}

TEST_F(SnapshotFileTest, SomebodyElsesFileIsNotReplaced) {
  EXPECT_TRUE(CheckReplaceable(path_, "MAGIC"));
  for (const char* mine : {"", "MA", "MAGIC", "MAGIC and more"}) {
    Write(mine);
    EXPECT_TRUE(CheckReplaceable(path_, "MAGIC")) << mine;
  }
  for (const char* other : {"x", "MAGIK", "precious"}) {
    Write(other);
    const auto checked = CheckReplaceable(path_, "MAGIC");
    ASSERT_FALSE(checked) << other;
    EXPECT_THAT(checked.error().message, HasSubstr("is no snapshot and is left alone"));
  }
}

TEST_F(SnapshotFileTest, OneWriterAtATime) {
  {
    const auto first = SnapshotLock::Take(path_);
    ASSERT_TRUE(first);
    const auto second = SnapshotLock::Take(path_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(SnapshotLock::Take(path_ + "2"));
  }
  EXPECT_TRUE(SnapshotLock::Take(path_));
  EXPECT_EQ(SnapshotLock::Take(folder_ / "none" / "x").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace kvr::service
