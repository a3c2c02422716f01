// Why bytes could not be decoded: a small value, made without allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvr::wire {

enum class DecodeErrc : std::uint8_t {
  kTruncated,     // the bytes end inside a value, or a length says more than there is
  kNotMsgpack,    // a byte that starts no value
  kWrongType,     // a value of another type than the field takes
  kOutOfRange,    // a number that the field cannot hold
  kMissingField,  // a required field is not there
  kUnknownEvent,  // a tag that names no event we know
  kBadText,       // a string that is no UTF-8
  kOverLimit,     // beyond one of DecodeLimits
  kBadJson,       // text that starts like JSON and is none
  kTooManyRanks,  // of a batch: its stream named as many other ranks as are remembered
  kSecondRank,    // in a list of one rank, an event of another one
};

inline constexpr std::array<std::string_view, 11> kDecodeErrcNames = {
    "truncated", "not_msgpack", "wrong_type", "out_of_range",   "missing_field", "unknown_event",
    "bad_text",  "over_limit",  "bad_json",   "too_many_ranks", "second_rank"};
constexpr std::string_view DecodeErrcName(DecodeErrc code) {
  return kDecodeErrcNames[static_cast<std::size_t>(code)];
}

struct DecodeError {
  DecodeErrc code = DecodeErrc::kNotMsgpack;
  std::size_t offset = 0;  // byte of the payload at which decoding stopped

  friend bool operator==(const DecodeError&, const DecodeError&) = default;
};

}  // namespace kvr::wire
