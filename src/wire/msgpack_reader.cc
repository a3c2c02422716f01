#include "wire/msgpack_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>

#include <simdjson.h>

#include "wire/u32_run.h"

namespace kvr::wire {
namespace {

constexpr std::size_t kDepthCap = 64;

}  // namespace

bool IsUtf8(std::string_view text) {
  return IsAscii(text) || simdjson::validate_utf8(text.data(), text.size());
}

std::string_view MsgpackReader::Since(std::size_t from) const {
  return {reinterpret_cast<const char*>(begin_ + from), offset() - from};
}

template <typename Wire>
bool MsgpackReader::ReadInteger(MsgpackItem& item) {
  if (!ReadBig<std::make_unsigned_t<Wire>>(item.number)) return false;
  item.kind = Kind::kUint;
  if constexpr (std::is_signed_v<Wire>) {
    constexpr int kAbove = 64 - 8 * static_cast<int>(sizeof(Wire));  // the sign is spread over them
    const std::int64_t value = static_cast<std::int64_t>(item.number << kAbove) >> kAbove;
    if (value < 0) item.kind = Kind::kInt;
    item.number = static_cast<std::uint64_t>(value);
  }
  return true;
}

bool MsgpackReader::ReadBytes(MsgpackItem& item, Kind kind, std::uint64_t size) {
  if (size > left()) return Fail(DecodeErrc::kTruncated, offset());
  item.kind = kind;
  item.bytes = {reinterpret_cast<const char*>(at_), static_cast<std::size_t>(size)};
  at_ += size;
  return true;
}

// A size, and for strings and bins the content after it.
template <typename Size>
bool MsgpackReader::ReadSized(MsgpackItem& item, Kind kind) {
  if (!ReadBig<Size>(item.number)) return false;
  if (kind == Kind::kString || kind == Kind::kBin) return ReadBytes(item, kind, item.number);
  if (kind == Kind::kExt) return ReadBytes(item, kind, item.number + 1);
  item.kind = kind;
  // Every element takes a byte at least, so a larger count is a lie.
  const std::uint64_t fewest = kind == Kind::kMap ? item.number * 2 : item.number;
  return fewest <= left() || Fail(DecodeErrc::kTruncated, offset());
}

bool MsgpackReader::Read(MsgpackItem& item) {
  const std::size_t start = offset();
  if (at_ == end_) return Fail(DecodeErrc::kTruncated, start);
  const unsigned char head = *at_++;
  const auto small = [&](Kind kind, std::uint64_t count) {
    item.kind = kind;
    item.number = count;
    const std::uint64_t fewest = kind == Kind::kMap ? count * 2 : count;
    return fewest <= left() || Fail(DecodeErrc::kTruncated, offset());
  };
  if (head < 0x80) {
    item.kind = Kind::kUint;
    item.number = head;
    return true;
  }
  if (head >= 0xe0) {
    item.kind = Kind::kInt;
    item.number = static_cast<std::uint64_t>(std::int64_t{head} - 256);
    return true;
  }
  if (head < 0x90) return small(Kind::kMap, head & 0x0fu);
  if (head < 0xa0) return small(Kind::kArray, head & 0x0fu);
  if (head < 0xc0) return ReadBytes(item, Kind::kString, head & 0x1fu);
  switch (head) {
    case 0xc0:
      item.kind = Kind::kNil;
      return true;
    case 0xc2:
    case 0xc3:
      item.kind = Kind::kBool;
      item.number = head & 1u;
      return true;
    case 0xc4:
      return ReadSized<std::uint8_t>(item, Kind::kBin);
    case 0xc5:
      return ReadSized<std::uint16_t>(item, Kind::kBin);
    case 0xc6:
      return ReadSized<std::uint32_t>(item, Kind::kBin);
    case 0xc7:
      return ReadSized<std::uint8_t>(item, Kind::kExt);
    case 0xc8:
      return ReadSized<std::uint16_t>(item, Kind::kExt);
    case 0xc9:
      return ReadSized<std::uint32_t>(item, Kind::kExt);
    case 0xca:
      if (!ReadBig<std::uint32_t>(item.number)) return false;
      item.kind = Kind::kFloat;
      item.real =
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(item.number)));
      return true;
    case 0xcb:
      if (!ReadBig<std::uint64_t>(item.number)) return false;
      item.kind = Kind::kFloat;
      item.real = std::bit_cast<double>(item.number);
      return true;
    case 0xcc:
      return ReadInteger<std::uint8_t>(item);
    case 0xcd:
      return ReadInteger<std::uint16_t>(item);
    case 0xce:
      return ReadInteger<std::uint32_t>(item);
    case 0xcf:
      return ReadInteger<std::uint64_t>(item);
    case 0xd0:
      return ReadInteger<std::int8_t>(item);
    case 0xd1:
      return ReadInteger<std::int16_t>(item);
    case 0xd2:
      return ReadInteger<std::int32_t>(item);
    case 0xd3:
      return ReadInteger<std::int64_t>(item);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return ReadBytes(item, Kind::kExt, (std::uint64_t{1} << (head - 0xd4)) + 1);
    case 0xd9:
      return ReadSized<std::uint8_t>(item, Kind::kString);
    case 0xda:
      return ReadSized<std::uint16_t>(item, Kind::kString);
    case 0xdb:
      return ReadSized<std::uint32_t>(item, Kind::kString);
    case 0xdc:
      return ReadSized<std::uint16_t>(item, Kind::kArray);
    case 0xdd:
      return ReadSized<std::uint32_t>(item, Kind::kArray);
    case 0xde:
      return ReadSized<std::uint16_t>(item, Kind::kMap);
    case 0xdf:
      return ReadSized<std::uint32_t>(item, Kind::kMap);
    default:
      return Fail(DecodeErrc::kNotMsgpack, start);
  }
}

bool MsgpackReader::ReadCount(Kind kind, std::size_t& count) {
  const std::size_t start = offset();
  MsgpackItem item;
  if (!Read(item)) return false;
  count = static_cast<std::size_t>(item.number);
  return item.kind == kind || Fail(DecodeErrc::kWrongType, start);
}

bool MsgpackReader::ReadLongKey(std::string_view& key) {
  const std::size_t start = offset();
  MsgpackItem item;
  if (!Read(item)) return false;
  key = item.bytes;
  return item.kind == Kind::kString || Fail(DecodeErrc::kWrongType, start);
}

bool MsgpackReader::CheckText(std::string_view text, std::size_t start) {
  return IsUtf8(text) || Fail(DecodeErrc::kBadText, start);
}

bool MsgpackReader::ReadWideU32(std::uint32_t& value) {
  // The three widths that token ids come in.
  if (left() >= 5 && *at_ == 0xce) {
    value = std::uint32_t{at_[1]} << 24 | std::uint32_t{at_[2]} << 16 | std::uint32_t{at_[3]} << 8 |
            std::uint32_t{at_[4]};
    at_ += 5;
    return true;
  }
  if (left() >= 3 && *at_ == 0xcd) {
    value = std::uint32_t{at_[1]} << 8 | std::uint32_t{at_[2]};
    at_ += 3;
    return true;
  }
  const std::size_t start = offset();
  MsgpackItem item;
  if (!Read(item)) return false;
  if (!item.is_integer()) return Fail(DecodeErrc::kWrongType, start);
  if (item.kind == Kind::kInt || item.number > std::numeric_limits<std::uint32_t>::max()) {
    return Fail(DecodeErrc::kOutOfRange, start);
  }
  value = static_cast<std::uint32_t>(item.number);
  return true;
}

bool MsgpackReader::ReadU32s(std::span<std::uint32_t> values) {
  while (!values.empty()) {
    values = values.subspan(DecodeU32Run(begin_, at_, end_, values));
    if (values.empty()) break;
    if (!ReadU32(values.front())) return false;
    values = values.subspan(1);
  }
  return true;
}

bool MsgpackReader::SkipValue(std::size_t depth_max) {
  std::array<std::uint64_t, kDepthCap> open;  // elements left at each level
  const std::size_t cap = std::min(depth_max, kDepthCap);
  std::size_t depth = 0;
  MsgpackItem item;
  do {
    const std::size_t start = offset();
    if (!Read(item)) return false;
    const bool map = item.kind == Kind::kMap;
    if ((map || item.kind == Kind::kArray) && item.number > 0) {
      if (depth == cap) return Fail(DecodeErrc::kOverLimit, start);
      open[depth++] = item.number * (map ? 2 : 1);
      continue;
    }
    while (depth > 0 && --open[depth - 1] == 0)
      --depth;
  } while (depth > 0);
  return true;
}

bool MsgpackReader::SkipAnyDepth() {
  // Bounded: each element counted is at least one byte that was there when its container was read.
  std::uint64_t wanted = 1;
  MsgpackItem item;
  while (wanted > 0) {
    if (!Read(item)) return false;
    --wanted;
    if (item.kind == Kind::kArray) wanted += item.number;
    if (item.kind == Kind::kMap) wanted += item.number * 2;
    if (wanted > left()) return Fail(DecodeErrc::kTruncated, offset());
  }
  return true;
}

}  // namespace kvr::wire
