#include "hashing/lineage_hash.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "hashing/block_hash.h"

namespace kvr::hashing {
namespace {

constexpr int kModeBits = 2;
// Bits of the position, by mode; with the mode they fill 64 bits up with the fragment.
constexpr std::array<int, 4> kPositionBits = {8, 16, 24, 31};
constexpr std::size_t kLineageModes = 3;

constexpr int FragmentBits(std::size_t mode) {
  return 64 - kModeBits - kPositionBits[mode];
}

constexpr std::uint64_t LowBits(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

// The first of `modes` modes that holds the position, or `modes`.
std::size_t ModeOf(std::uint64_t position, std::size_t modes) {
  std::size_t mode = 0;
  while (mode < modes && position >> kPositionBits[mode] != 0)
    ++mode;
  return mode;
}

std::size_t ModeOf(Hash128 raw) {
  return static_cast<std::size_t>(raw.high >> (64 - kModeBits));
}

// mode | position, at the top of 64 bits.
std::uint64_t Head(std::size_t mode, std::uint64_t position) {
  return std::uint64_t{mode} << (64 - kModeBits) | position << FragmentBits(mode);
}

std::string Base58(std::uint64_t value) {
  static constexpr std::string_view kAlphabet =
      "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  std::string out;
  for (std::uint64_t rest = value; rest != 0; rest /= 58)
    out += kAlphabet[static_cast<std::size_t>(rest % 58)];
  // A leading zero byte is a leading 1.
  for (int shift = 56; shift >= 0 && value >> shift == 0; shift -= 8)
    out += kAlphabet[0];
  std::reverse(out.begin(), out.end());
  return out;
}

tl::unexpected<Error> FailPosition(std::uint64_t position, int bits) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("block position {} does not fit in {} bits", position, bits));
}

}  // namespace

std::array<std::byte, 16> ToBytes(Hash128 hash) {
  std::array<std::byte, 16> out;
  for (std::size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<std::byte>(hash.high >> (56 - 8 * i));
    out[i + 8] = static_cast<std::byte>(hash.low >> (56 - 8 * i));
  }
  return out;
}

LineageHash LineageHash::Root(BlockHash first) {
  return *Make(FirstSequenceHash(first), SequenceHash{0}, 0);
}

Result<LineageHash> LineageHash::Make(SequenceHash current, SequenceHash parent,
                                      std::uint64_t position) {
  const std::size_t mode = ModeOf(position, kLineageModes);
  if (mode == kLineageModes) return FailPosition(position, kPositionBits[kLineageModes - 1]);
  const int fragment_bits = FragmentBits(mode);
  Hash128 raw;
  raw.high = Head(mode, position) | Raw(current) >> (64 - fragment_bits);
  raw.low = Raw(current) << fragment_bits;
  if (position > 0) raw.low |= ParentFragment(parent, position);
  return LineageHash(raw);
}

Result<LineageHash> LineageHash::Child(BlockHash block) const {
  return Make(NextSequenceHash(current(), block), current(), position() + 1);
}

std::uint64_t LineageHash::position() const {
  const std::size_t mode = ModeOf(raw_);
  return LowBits(raw_.high >> FragmentBits(mode), kPositionBits[mode]);
}

SequenceHash LineageHash::current() const {
  const int fragment_bits = FragmentBits(ModeOf(raw_));
  return SequenceHash{raw_.high << (64 - fragment_bits) | raw_.low >> fragment_bits};
}

std::uint64_t LineageHash::parent_fragment() const {
  return LowBits(raw_.low, FragmentBits(ModeOf(raw_)));
}

std::string LineageHash::Text() const {
  std::string out = fmt::format("{}:{}", position(), Base58(Raw(current())));
  if (position() > 0) out += ":" + Base58(parent_fragment());
  return out;
}

std::strong_ordering operator<=>(const LineageHash& a, const LineageHash& b) {
  const auto key = [](const LineageHash& hash) {
    return std::tuple(hash.position(), Raw(hash.current()), hash.raw_);
  };
  return key(a) <=> key(b);
}

std::uint64_t ParentFragment(SequenceHash parent, std::uint64_t position) {
  const std::size_t mode = ModeOf(position, kLineageModes);
  KVR_CHECK(mode < kLineageModes);
  return LowBits(Raw(parent), FragmentBits(mode));
}

Result<Hash128> PositionalSequenceHash(SequenceHash sequence, std::uint64_t position,
                                       BlockHash block) {
  const std::size_t mode = ModeOf(position, kPositionBits.size());
  if (mode == kPositionBits.size()) return FailPosition(position, kPositionBits.back());
  return Hash128{Head(mode, position) | LowBits(Raw(block), FragmentBits(mode)), Raw(sequence)};
}

}  // namespace kvr::hashing
