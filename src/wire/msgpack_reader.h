// A forward cursor over MessagePack bytes that are not trusted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "wire/decode_error.h"
#include "wire/short_text.h"

namespace kvr::wire {

// The first part of one value: all of a scalar, string or bin; of a container its size only.
struct MsgpackItem {
  enum class Kind : std::uint8_t {
    kNil,
    kBool,
    kUint,  // any integer >= 0
    kInt,   // an integer < 0
    kFloat,
    kString,
    kBin,
    kArray,
    kMap,
    kExt
  };

  Kind kind = Kind::kNil;
  // kBool 0 or 1; kUint the value; kInt its two's complement; kArray elements; kMap pairs.
  std::uint64_t number = 0;
  double real = 0;         // kFloat
  std::string_view bytes;  // kString, kBin, kExt: borrowed from the payload

  [[nodiscard]] bool is_integer() const { return kind == Kind::kUint || kind == Kind::kInt; }
};

inline std::uint64_t FromBigEndian(std::uint64_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}
inline std::uint32_t FromBigEndian(std::uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}
inline std::uint16_t FromBigEndian(std::uint16_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap16(value) : value;
}
inline std::uint8_t FromBigEndian(std::uint8_t value) {
  return value;
}

// Every read answers whether it worked; after a false, error() says why and the cursor is at an
// unspecified place: Seek before going on. No input makes it read out of bounds, throw or allocate.
// Sizes are checked against the bytes left before anyone sees them. Borrows the payload.
class MsgpackReader {
 public:
  using Kind = MsgpackItem::Kind;

  explicit MsgpackReader(std::span<const std::byte> payload)
      : begin_(reinterpret_cast<const unsigned char*>(payload.data())),
        at_(begin_),
        end_(begin_ + payload.size()) {}

  [[nodiscard]] std::size_t offset() const { return static_cast<std::size_t>(at_ - begin_); }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  [[nodiscard]] const DecodeError& error() const { return error_; }
  // The bytes from `from`, an earlier offset(), to the cursor.
  [[nodiscard]] std::string_view Since(std::size_t from) const;

  // `offset` is one that offset() returned.
  void Seek(std::size_t offset) { at_ = begin_ + offset; }
  // Records why the value at `offset` is refused. Always false, to be returned.
  bool Fail(DecodeErrc code, std::size_t offset) {
    error_ = DecodeError{code, offset};
    return false;
  }

  bool Read(MsgpackItem& item);
  // Whether the next value is of the kind, well-formed or not. Reads nothing.
  [[nodiscard]] bool AtText() const {
    return at_ != end_ && ((*at_ & 0xe0u) == 0xa0 || (*at_ >= 0xd9 && *at_ <= 0xdb));
  }
  [[nodiscard]] bool AtArray() const {
    return at_ != end_ && ((*at_ & 0xf0u) == 0x90 || *at_ == 0xdc || *at_ == 0xdd);
  }
  [[nodiscard]] bool AtMap() const {
    return at_ != end_ && ((*at_ & 0xf0u) == 0x80 || *at_ == 0xde || *at_ == 0xdf);
  }
  // Takes the next value when it is nil; else nothing is read.
  bool TakeNil() {
    const bool nil = at_ != end_ && *at_ == 0xc0;
    at_ += nil ? 1 : 0;
    return nil;
  }
  // Read, then kWrongType unless the kind is as asked.
  bool ReadArray(std::size_t& count) {
    if (left() > 15 && (*at_ & 0xf0u) == 0x90) {  // up to 15 elements, for which there are bytes
      count = *at_++ & 0x0fu;
      return true;
    }
    if (left() < 3 || *at_ != 0xdc) return ReadCount(Kind::kArray, count);
    count = std::size_t{at_[1]} << 8 | at_[2];
    at_ += 3;
    return count <= left() || Fail(DecodeErrc::kTruncated, offset());
  }
  bool ReadMap(std::size_t& pairs) {
    if (left() > 30 && (*at_ & 0xf0u) == 0x80) {
      pairs = *at_++ & 0x0fu;
      return true;
    }
    return ReadCount(Kind::kMap, pairs);
  }
  // A string of valid UTF-8.
  bool ReadText(std::string_view& text) {
    const std::size_t start = offset();
    if (!ReadKey(text)) return false;
    return IsAscii(text) || CheckText(text, start);
  }
  // A string of any bytes.
  bool ReadKey(std::string_view& key) {
    const std::size_t size = at_ == end_ ? 0 : std::size_t{*at_} - 0xa0;
    if (size > 31 || size >= left()) return ReadLongKey(key);
    key = {reinterpret_cast<const char*>(at_) + 1, size};
    at_ += 1 + size;
    return true;
  }
  // Takes the next value when it is just this string, of at most 31 bytes; else nothing is read.
  bool TakeKey(std::string_view key) {
    const std::size_t size = key.size();
    if (size > 31 || size >= left() || *at_ != (0xa0 | size)) return false;
    if (!SameText(key, {reinterpret_cast<const char*>(at_) + 1, size})) return false;
    at_ += 1 + size;
    return true;
  }
  // nil gives none.
  bool ReadOptionalText(std::optional<std::string_view>& text) {
    if (!TakeNil()) return ReadText(text.emplace());
    text.reset();
    return true;
  }
  // An integer that fits.
  bool ReadU32(std::uint32_t& value) {
    if (at_ != end_ && *at_ < 0x80) {  // most tokens of a test, none of them slow
      value = *at_++;
      return true;
    }
    return ReadWideU32(value);
  }

  // As many integers as `values` holds, each as ReadU32 takes it.
  bool ReadU32s(std::span<std::uint32_t> values);
  // The next value when it is an integer of 9 bytes, as most hashes are; false, and nothing is
  // read, when it is anything else.
  bool TakeU64(std::uint64_t& value) {
    if (left() < 9 || *at_ != 0xcf) return false;
    ++at_;
    return ReadBig<std::uint64_t>(value);
  }

  // The same for a float of 9 bytes, as every timestamp is.
  bool TakeF64(double& value) {
    if (left() < 9 || *at_ != 0xcb) return false;
    ++at_;
    std::uint64_t bits = 0;
    ReadBig<std::uint64_t>(bits);
    value = std::bit_cast<double>(bits);
    return true;
  }

  // Passes over one value of any type. kOverLimit when containers nest deeper than `depth_max`,
  // itself capped at 64.
  bool Skip(std::size_t depth_max) { return TakeNil() || SkipValue(depth_max); }
  // The same for a value that may nest as deep as it likes; uses no memory for it.
  bool SkipAnyDepth();

 private:
  // The number of type Wire at the cursor, big-endian.
  template <typename Wire>
  bool ReadBig(std::uint64_t& value) {
    if (left() < sizeof(Wire)) return Fail(DecodeErrc::kTruncated, offset());
    Wire wire = 0;
    std::memcpy(&wire, at_, sizeof wire);
    at_ += sizeof wire;
    value = FromBigEndian(wire);
    return true;
  }
  template <typename Wire>
  bool ReadInteger(MsgpackItem& item);
  template <typename Size>
  bool ReadSized(MsgpackItem& item, Kind kind);
  bool ReadBytes(MsgpackItem& item, Kind kind, std::uint64_t size);
  bool ReadCount(Kind kind, std::size_t& count);
  bool ReadLongKey(std::string_view& key);
  bool CheckText(std::string_view text, std::size_t start);
  bool ReadWideU32(std::uint32_t& value);
  bool SkipValue(std::size_t depth_max);

  const unsigned char* begin_;
  const unsigned char* at_;
  const unsigned char* end_;
  DecodeError error_;
};

// True when `text` is valid UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace kvr::wire
