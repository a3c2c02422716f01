#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "base/rng.h"
#include "wire/msgpack_reader.h"
#include "wire/msgpack_writer.h"
#include "wire/short_text.h"

namespace kvr::wire {
namespace {

using Kind = MsgpackItem::Kind;

std::vector<std::byte> Bytes(std::string_view hex) {
  auto bytes = FromHex(hex);
  EXPECT_TRUE(bytes) << hex;
  return *bytes;
}

std::string Hex(const std::string& bytes) {
  return ToHex(std::as_bytes(std::span(bytes)));
}

TEST(Msgpack, IntegersTakeTheirShortestForm) {
  const struct {
    std::int64_t value;
    std::string_view hex;
  } rows[] = {
      {0, "00"},
      {127, "7f"},
      {128, "cc80"},
      {255, "ccff"},
      {256, "cd0100"},
      {65535, "cdffff"},
      {65536, "ce00010000"},
      {0xffffffff, "ceffffffff"},
      {0x100000000, "cf0000000100000000"},
      {-1, "ff"},
      {-32, "e0"},
      {-33, "d0df"},
      {-128, "d080"},
      {-129, "d1ff7f"},
      {-32768, "d18000"},
      {-32769, "d2ffff7fff"},
      {std::numeric_limits<std::int32_t>::min(), "d280000000"},
      {std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1, "d3ffffffff7fffffff"},
      {std::numeric_limits<std::int64_t>::min(), "d38000000000000000"},
  };
  for (const auto& row : rows) {
    std::string out;
    MsgpackWriter(out).Int(row.value);
    EXPECT_EQ(Hex(out), row.hex);
    const auto bytes = Bytes(row.hex);
    MsgpackReader in(bytes);
    MsgpackItem item;
    ASSERT_TRUE(in.Read(item)) << row.hex;
    EXPECT_EQ(item.kind, row.value < 0 ? Kind::kInt : Kind::kUint);
    EXPECT_EQ(static_cast<std::int64_t>(item.number), row.value);
    EXPECT_EQ(in.left(), 0u);
  }
}

TEST(Msgpack, SizedValuesRoundTrip) {
  for (const std::size_t size : {0u, 1u, 15u, 16u, 31u, 32u, 255u, 256u, 65535u, 65536u}) {
    std::string out;
    MsgpackWriter writer(out);
    const std::string text(size, 'x');
    writer.Array(size);
    for (std::size_t i = 0; i < size; ++i)
      writer.Nil();
    writer.Map(size);
    for (std::size_t i = 0; i < 2 * size; ++i)
      writer.Bool(true);
    writer.Text(text);
    writer.Bin(text);
    writer.Double(-0.5);

    MsgpackReader in(std::as_bytes(std::span(out)));
    std::size_t count = 0;
    ASSERT_TRUE(in.ReadArray(count));
    EXPECT_EQ(count, size);
    MsgpackItem item;
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_TRUE(in.Read(item) && item.kind == Kind::kNil);
    ASSERT_TRUE(in.ReadMap(count));
    EXPECT_EQ(count, size);
    for (std::size_t i = 0; i < 2 * size; ++i)
      ASSERT_TRUE(in.Read(item) && item.kind == Kind::kBool && item.number == 1);
    std::string_view read;
    ASSERT_TRUE(in.ReadText(read));
    EXPECT_EQ(read, text);
    ASSERT_TRUE(in.Read(item));
    EXPECT_EQ(item.kind, Kind::kBin);
    EXPECT_EQ(item.bytes, text);
    ASSERT_TRUE(in.Read(item));
    EXPECT_EQ(item.kind, Kind::kFloat);
    EXPECT_EQ(item.real, -0.5);
    EXPECT_EQ(in.left(), 0u);

    in.Seek(0);
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(in.Skip(1));
    EXPECT_EQ(in.left(), 0u);
    in.Seek(0);
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(in.SkipAnyDepth());
    EXPECT_EQ(in.left(), 0u);
  }
}

TEST(Msgpack, ForeignTypesAreSkipped) {
  // fixext 1, 2, 4, 8, 16, ext 8, 16, 32, float32
  const std::vector<std::string> values = {"d401aa",
                                           "d501aaaa",
                                           "d601aaaaaaaa",
                                           "d701aaaaaaaaaaaaaaaa",
                                           "d801" + std::string(32, 'a'),
                                           "c70201aaaa",
                                           "c8000201aaaa",
                                           "c90000000201aaaa",
                                           "ca3f800000"};
  for (const auto& hex : values) {
    const auto bytes = Bytes(hex);
    MsgpackReader in(bytes);
    EXPECT_TRUE(in.Skip(0)) << hex;
    EXPECT_EQ(in.left(), 0u) << hex;
    for (std::size_t size = 0; size < bytes.size(); ++size) {  // and every cut is noticed
      MsgpackReader cut(std::span<const std::byte>(bytes).first(size));
      EXPECT_FALSE(cut.Skip(0)) << hex;
      EXPECT_EQ(cut.error().code, DecodeErrc::kTruncated) << hex;
    }
  }
}

TEST(Msgpack, SizesThatLieAreTruncation) {
  for (const std::string_view hex :
       {"ddffffffff0000000000", "dfffffffff0000", "dcffff00", "9f", "8f", "c6ffffffff00",
        "dbffffffff00", "c9ffffffff00", "a5616263"}) {
    const auto bytes = Bytes(hex);
    MsgpackReader in(bytes);
    MsgpackItem item;
    EXPECT_FALSE(in.Read(item)) << hex;
    EXPECT_EQ(in.error().code, DecodeErrc::kTruncated) << hex;
  }
}

TEST(Msgpack, U32) {
  const struct {
    std::string_view hex;
    std::int64_t value;  // -1: out of range, -2: wrong type
  } rows[] = {{"00", 0},
              {"7f", 127},
              {"cc80", 128},
              {"cd0100", 256},
              {"ceffffffff", 0xffffffff},
              {"cf00000000ffffffff", 0xffffffff},
              {"d07f", 127},
              {"d300000000ffffffff", 0xffffffff},
              {"ff", -1},
              {"cf0000000100000000", -1},
              {"d0ff", -1},
              {"a0", -2},
              {"c0", -2},
              {"cb3ff0000000000000", -2}};
  for (const auto& row : rows) {
    const auto bytes = Bytes(row.hex);
    MsgpackReader in(bytes);
    std::uint32_t value = 0;
    EXPECT_EQ(in.ReadU32(value), row.value >= 0) << row.hex;
    if (row.value >= 0) {
      EXPECT_EQ(value, row.value) << row.hex;
    } else {
      EXPECT_EQ(in.error().code, row.value == -1 ? DecodeErrc::kOutOfRange : DecodeErrc::kWrongType)
          << row.hex;
    }
  }
}

TEST(Msgpack, SkipKeepsToItsDepth) {
  std::string deep(100'000, '\x91');
  deep += '\xc0';
  MsgpackReader in(std::as_bytes(std::span(deep)));
  EXPECT_FALSE(in.Skip(16));
  EXPECT_EQ(in.error(), (DecodeError{DecodeErrc::kOverLimit, 16}));
  in.Seek(0);
  EXPECT_FALSE(in.Skip(1'000'000));
  EXPECT_EQ(in.error(), (DecodeError{DecodeErrc::kOverLimit, 64}));
  in.Seek(0);
  EXPECT_TRUE(in.SkipAnyDepth());
  EXPECT_EQ(in.left(), 0u);
}

TEST(Msgpack, TextMustBeUtf8) {
  const auto bytes = Bytes("a2c328");
  MsgpackReader in(bytes);
  std::string_view text;
  EXPECT_FALSE(in.ReadText(text));
  EXPECT_EQ(in.error().code, DecodeErrc::kBadText);
  EXPECT_TRUE(IsUtf8("grün"));
  EXPECT_FALSE(IsUtf8("\xff"));
}

// One value in one of the forms that may hold it, the shortest or another, or no token at all.
void AppendValue(Rng& rng, std::string& out) {
  static constexpr std::array<std::uint32_t, 6> kLimits = {0x80, 0x100, 0x10000, 0x20000, ~0u, 1};
  const auto value = static_cast<std::uint32_t>(rng.Below(kLimits[rng.Below(kLimits.size())]));
  const auto big = [&](char head, std::size_t width) {
    out.push_back(head);
    for (std::size_t i = width; i-- > 0;)
      out.push_back(i < 4 ? static_cast<char>(value >> (8 * i)) : '\0');
  };
  switch (rng.Below(40)) {
    case 0:
      return big('\xcf', 8);
    case 1:
      return big('\xd3', 8);
    case 2:
      return big('\xce', 4);
    case 3:
      return big('\xd1', 2);  // negative when the value's 16th bit is set
    case 4:
      return out.push_back('\xc0');  // nil
    default:
      break;
  }
  if (value < 0x80) return out.push_back(static_cast<char>(value));
  if (value < 0x100) return big('\xcc', 1);
  if (value < 0x10000) return big('\xcd', 2);
  big('\xce', 4);
}

// The run must take and refuse what one read after the other does, at the same place, wherever the
// bytes end.
TEST(MsgpackReader, ReadsRunsAsItReadsOne) {
  Rng rng(7);
  for (std::size_t round = 0; round < 2'000; ++round) {
    const std::size_t count = rng.Below(40);
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i)
      AppendValue(rng, bytes);
    const std::size_t size = rng.Below(4) == 0 ? rng.Below(bytes.size() + 1) : bytes.size();
    // Of exactly that size, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> room(
        std::as_bytes(std::span(bytes)).begin(),
        std::as_bytes(std::span(bytes)).begin() + static_cast<std::ptrdiff_t>(size));
    MsgpackReader one(room);
    std::vector<std::uint32_t> expected(count);
    const bool good = std::all_of(expected.begin(), expected.end(),
                                  [&](std::uint32_t& value) { return one.ReadU32(value); });
    MsgpackReader run(room);
    std::vector<std::uint32_t> values(count);
    ASSERT_EQ(run.ReadU32s(values), good) << round;
    if (good) {
      ASSERT_EQ(values, expected) << round;
      ASSERT_EQ(run.offset(), one.offset()) << round;
    } else {
      ASSERT_EQ(run.error().code, one.error().code) << round;
      ASSERT_EQ(run.error().offset, one.error().offset) << round;
    }
  }
}

TEST(Msgpack, LooksAheadAtEveryFirstByte) {
  for (unsigned head = 0; head < 256; ++head) {
    std::vector<std::byte> room(40);  // more than any first byte alone asks for
    room[0] = static_cast<std::byte>(head);
    MsgpackItem item;
    const bool good = MsgpackReader(room).Read(item);
    MsgpackReader in(room);
    EXPECT_EQ(in.AtArray(), good && item.kind == Kind::kArray) << head;
    EXPECT_EQ(in.AtMap(), good && item.kind == Kind::kMap) << head;
    EXPECT_EQ(in.AtText(), good && item.kind == Kind::kString) << head;
    EXPECT_EQ(in.offset(), 0u);
    EXPECT_EQ(in.TakeNil(), good && item.kind == Kind::kNil) << head;
    EXPECT_EQ(in.offset(), head == 0xc0 ? 1u : 0u);
  }
  MsgpackReader empty({});
  EXPECT_FALSE(empty.AtArray() || empty.AtMap() || empty.AtText() || empty.TakeNil());
}

TEST(Msgpack, TakesAKeyOnlyWhole) {
  const struct {
    std::string_view hex;
    std::string_view key;
    bool taken;
  } rows[] = {
      {"a474797065", "type", true},
      {"a474797065c0", "type", true},
      {"a474797066", "type", false},
      {"a4747970", "type", false},
      {"a3747970", "type", false},
      {"a574797065", "type", false},
      {"d90474797065", "type", false},
      {"c40474797065", "type", false},
      {"", "type", false},
      {"a0", "", true},
  };
  for (const auto& row : rows) {
    const auto bytes = Bytes(row.hex);
    MsgpackReader in(bytes);
    EXPECT_EQ(in.TakeKey(row.key), row.taken) << row.hex;
    EXPECT_EQ(in.offset(), row.taken ? row.key.size() + 1 : 0u) << row.hex;
  }
}

TEST(Msgpack, CountsOfArraysAreCheckedInEveryWidth) {
  for (const std::string_view head : {"9f", "dc000f", "dd0000000f"}) {
    for (const std::size_t elements : {14u, 15u, 16u}) {
      auto bytes = Bytes(head);
      bytes.resize(bytes.size() + elements, std::byte{1});
      MsgpackReader in(bytes);
      std::size_t count = 0;
      EXPECT_EQ(in.ReadArray(count), elements >= 15) << head << ' ' << elements;
      if (elements >= 15) {
        EXPECT_EQ(count, 15u);
      } else {
        EXPECT_EQ(in.error().code, DecodeErrc::kTruncated);
      }
    }
  }
}

TEST(ShortText, ComparesEveryLength) {
  const std::string text = "kv_cache_spec_sliding_window";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    EXPECT_TRUE(SameText(part, std::string(part)));
    EXPECT_TRUE(IsAscii(part));
    for (std::size_t i = 0; i < size; ++i) {
      std::string other(part);
      other[i] = '\x80';
      EXPECT_FALSE(SameText(part, other)) << size << ' ' << i;
      EXPECT_FALSE(IsAscii(other)) << size << ' ' << i;
    }
  }
  EXPECT_FALSE(SameText("medium", "medium2"));
}

}  // namespace
}  // namespace kvr::wire
