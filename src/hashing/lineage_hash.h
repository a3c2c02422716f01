// 128-bit names of a block that carry its position: the lineage hash (this block and a fragment of
// its parent) and the positional sequence hash (sequence hash and a fragment of the block hash).
// The wider the position, the fewer bits are left for the fragment.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/ids.h"

namespace kvr::hashing {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

// Big-endian, as it is serialised.
std::array<std::byte, 16> ToBytes(Hash128 hash);

// high → low: mode (2) | position (P) | sequence hash (64) | low bits of the parent's (R), with
// (P, R) = (8, 54), (16, 46), (24, 38) for modes 0, 1, 2.
class LineageHash {
 public:
  static constexpr std::uint64_t kPositionEnd = std::uint64_t{1} << 24;

  // The first block of a sequence.
  static LineageHash Root(BlockHash first);
  // kInvalidArgument from kPositionEnd on. `parent` is meaningless at position 0.
  static Result<LineageHash> Make(SequenceHash current, SequenceHash parent,
                                  std::uint64_t position);
  // The block behind this one. Fails as Make() does.
  [[nodiscard]] Result<LineageHash> Child(BlockHash block) const;

  [[nodiscard]] Hash128 raw() const { return raw_; }
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] SequenceHash current() const;
  [[nodiscard]] std::uint64_t parent_fragment() const;

  // "POSITION:CURRENT" and behind the root ":PARENT FRAGMENT", both base58 of 8 bytes.
  [[nodiscard]] std::string Text() const;

  // By position, then sequence hash, then the rest.
  friend std::strong_ordering operator<=>(const LineageHash& a, const LineageHash& b);
  friend bool operator==(const LineageHash&, const LineageHash&) = default;

 private:
  explicit LineageHash(Hash128 raw) : raw_(raw) {}

  Hash128 raw_;
};

// The bits of a sequence hash that a lineage hash at `position` keeps of its parent; position must
// be below LineageHash::kPositionEnd.
std::uint64_t ParentFragment(SequenceHash parent, std::uint64_t position);

// low 64: the sequence hash; high 64: mode (2) | position (P) | low bits of the block hash (R),
// with (P, R) = (8, 54), (16, 46), (24, 38), (31, 31). kInvalidArgument from position 2^31 on.
Result<Hash128> PositionalSequenceHash(SequenceHash sequence, std::uint64_t position,
                                       BlockHash block);

}  // namespace kvr::hashing
