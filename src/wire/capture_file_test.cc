#include "wire/capture_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace kvr::wire {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A reader over bytes in memory.
Result<CaptureReader> Reader(std::string_view content, const CaptureLimits& limits = {}) {
  FilePtr file(std::tmpfile());
  std::fwrite(content.data(), 1, content.size(), file.get());
  std::rewind(file.get());
  return CaptureReader::Open(std::move(file), limits);
}

class CaptureFile : public testing::Test {
 protected:
  CaptureFile()
      : path_(std::filesystem::temp_directory_path() /
              ("capture_file_test." + std::to_string(::getpid()) + "." +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~CaptureFile() override { std::filesystem::remove(path_); }

  // Two sources, three messages.
  std::string Written() {
    auto writer = CaptureWriter::Create(path_);
    EXPECT_TRUE(writer) << writer.error().message;
    EXPECT_EQ(writer->AddSource("tcp://a:1", "kv").value(), 0);
    EXPECT_EQ(writer->AddSource("tcp://b:2", "").value(), 1);
    const std::array first = {Bytes("kv"), Bytes(std::string_view("\0\0\0\0\0\0\0\7", 8)),
                              Bytes("payload")};
    EXPECT_TRUE(writer->AddMessage(0, Nanos{1'000}, first).value());
    EXPECT_TRUE(writer->AddMessage(1, Nanos{2'000}, {}).value());
    const std::array third = {Bytes("")};
    EXPECT_TRUE(writer->AddMessage(0, Nanos{3'000}, third).value());
    EXPECT_TRUE(writer->Flush());
    std::ifstream in(path_, std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(writer->bytes(), content.size());
    return content;
  }

  std::string path_;
};

std::size_t CountMessages(CaptureReader& reader) {
  CaptureMessage message;
  std::size_t count = 0;
  while (reader.Next(message))
    ++count;
  return count;
}

TEST_F(CaptureFile, WhatIsWrittenIsRead) {
  auto reader = Reader(Written());
  ASSERT_TRUE(reader);
  CaptureMessage message;
  ASSERT_TRUE(reader->Next(message));
  EXPECT_EQ(message.source, 0);
  EXPECT_EQ(message.received, Nanos{1'000});
  ASSERT_EQ(message.frames.size(), 3u);
  EXPECT_EQ(Text(message.frames[0]), "kv");
  EXPECT_EQ(message.frames[1].size(), 8u);
  EXPECT_EQ(Text(message.frames[2]), "payload");
  ASSERT_TRUE(reader->Next(message));
  EXPECT_EQ(message.source, 1);
  EXPECT_TRUE(message.frames.empty());
  ASSERT_TRUE(reader->Next(message));
  ASSERT_EQ(message.frames.size(), 1u);
  EXPECT_TRUE(message.frames[0].empty());
  EXPECT_FALSE(reader->Next(message));
  EXPECT_EQ(reader->damage(), "");
  ASSERT_EQ(reader->sources().size(), 2u);
  EXPECT_EQ(reader->sources()[0].endpoint, "tcp://a:1");
  EXPECT_EQ(reader->sources()[0].topic, "kv");
}

TEST_F(CaptureFile, IsItsOwnersOnlyAndNeverOverwritten) {
  Written();
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(CaptureWriter::Create(path_).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(CaptureWriter::Create("/nonexistent/x").error().code, ErrorCode::kIo);
}

// A writer may be killed at any byte.
TEST_F(CaptureFile, ATornTailCostsTheLastRecordOnly) {
  const std::string whole = Written();
  std::size_t most = 0;
  for (std::size_t size = 16; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    auto reader = Reader(std::string_view(whole).substr(0, size));
    ASSERT_TRUE(reader);
    const std::size_t count = CountMessages(*reader);
    EXPECT_GE(count, most);
    most = count;
    EXPECT_EQ(reader->torn(), !reader->damage().empty());
  }
  EXPECT_EQ(most, 2u);
}

TEST_F(CaptureFile, EveryChangedByteIsNoticed) {
  const std::string whole = Written();
  for (std::size_t at = 16; at < whole.size(); ++at) {
    SCOPED_TRACE(at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    auto reader = Reader(changed);
    ASSERT_TRUE(reader);
    EXPECT_LT(CountMessages(*reader), 3u);
    EXPECT_NE(reader->damage(), "");
  }
}

TEST_F(CaptureFile, OtherFilesAndVersionsAreRefused) {
  EXPECT_EQ(Reader("").error().code, ErrorCode::kUnprocessable);
  EXPECT_EQ(Reader("93cb3ff8000000000000\n").error().code, ErrorCode::kUnprocessable);
  std::string newer = Written();
  newer[8] = 2;
  EXPECT_NE(Reader(newer).error().message.find("version 2"), std::string::npos);
}

TEST_F(CaptureFile, LimitsHoldOnReading) {
  const std::string whole = Written();
  CaptureLimits limits;
  limits.frames_max = 2;
  auto few_frames = Reader(whole, limits);
  EXPECT_EQ(CountMessages(*few_frames), 0u);
  limits = {};
  limits.record_bytes_max = 16;
  auto short_records = Reader(whole, limits);
  EXPECT_EQ(CountMessages(*short_records), 0u);
  limits = {};
  limits.sources_max = 1;
  auto one_source = Reader(whole, limits);
  EXPECT_EQ(CountMessages(*one_source), 0u);
  // A record that says 256 MiB and has a few bytes costs no such memory and is torn.
  auto lying = Reader(whole.substr(0, 16) + std::string("\0\0\0\x10", 4) + "abcdxyz");
  EXPECT_EQ(CountMessages(*lying), 0u);
  EXPECT_TRUE(lying->torn());
}

TEST_F(CaptureFile, UnknownKindsAreSkipped) {
  std::string content = Written();
  const std::string body = "\x09zzz";
  content += std::string("\4\0\0\0", 4);
  const std::uint32_t crc = Crc32(Bytes(body));
  for (int i = 0; i < 4; ++i)
    content.push_back(static_cast<char>(crc >> (8 * i)));
  content += body;
  auto reader = Reader(content);
  EXPECT_EQ(CountMessages(*reader), 3u);
  EXPECT_EQ(reader->damage(), "");
}

TEST(Crc32, KnownAnswer) {
  EXPECT_EQ(Crc32(Bytes("123456789")), 0xCBF43926u);
  EXPECT_EQ(Crc32({}), 0u);
}

}  // namespace
}  // namespace kvr::wire
