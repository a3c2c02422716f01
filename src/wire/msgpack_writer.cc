#include "wire/msgpack_writer.h"

#include <bit>
#include <limits>

namespace kvr::wire {

void MsgpackWriter::Big(std::uint64_t value, std::size_t width) {
  for (std::size_t i = width; i-- > 0;)
    Byte(static_cast<unsigned>(value >> (8 * i) & 0xff));
}

void MsgpackWriter::Uint(std::uint64_t value) {
  if (value < 0x80) {
    Byte(static_cast<unsigned>(value));
  } else if (value <= 0xff) {
    Byte(0xcc);
    Big(value, 1);
  } else if (value <= 0xffff) {
    Byte(0xcd);
    Big(value, 2);
  } else if (value <= 0xffff'ffff) {
    Byte(0xce);
    Big(value, 4);
  } else {
    Byte(0xcf);
    Big(value, 8);
  }
}

void MsgpackWriter::Int(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0) {
    Uint(bits);
  } else if (value >= -32) {
    Byte(static_cast<unsigned>(bits & 0xff));
  } else if (value >= std::numeric_limits<std::int8_t>::min()) {
    Byte(0xd0);
    Big(bits, 1);
  } else if (value >= std::numeric_limits<std::int16_t>::min()) {
    Byte(0xd1);
    Big(bits, 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min()) {
    Byte(0xd2);
    Big(bits, 4);
  } else {
    Byte(0xd3);
    Big(bits, 8);
  }
}

void MsgpackWriter::Double(double value) {
  Byte(0xcb);
  Big(std::bit_cast<std::uint64_t>(value), 8);
}

void MsgpackWriter::Text(std::string_view text) {
  if (text.size() < 32) {
    Byte(0xa0 | static_cast<unsigned>(text.size()));
  } else if (text.size() <= 0xff) {
    Byte(0xd9);
    Big(text.size(), 1);
  } else if (text.size() <= 0xffff) {
    Byte(0xda);
    Big(text.size(), 2);
  } else {
    Byte(0xdb);
    Big(text.size(), 4);
  }
  out_.append(text);
}

void MsgpackWriter::Bin(std::string_view bytes) {
  const std::size_t width = bytes.size() <= 0xff ? 1 : bytes.size() <= 0xffff ? 2 : 4;
  Byte(width == 1 ? 0xc4 : width == 2 ? 0xc5 : 0xc6);
  Big(bytes.size(), width);
  out_.append(bytes);
}

void MsgpackWriter::Array(std::size_t count) {
  if (count < 16) {
    Byte(0x90 | static_cast<unsigned>(count));
  } else if (count <= 0xffff) {
    Byte(0xdc);
    Big(count, 2);
  } else {
    Byte(0xdd);
    Big(count, 4);
  }
}

void MsgpackWriter::Map(std::size_t pairs) {
  if (pairs < 16) {
    Byte(0x80 | static_cast<unsigned>(pairs));
  } else if (pairs <= 0xffff) {
    Byte(0xde);
    Big(pairs, 2);
  } else {
    Byte(0xdf);
    Big(pairs, 4);
  }
}

}  // namespace kvr::wire
