// JSON text as MessagePack, so that a wire that comes in both has one decoder.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "wire/decode_error.h"
#include "wire/event_decoder.h"

namespace kvr::wire {

// Not thread-safe. Reuses its memory, and that of `out`, from call to call, but for what only an
// extraordinary text needed.
class JsonToMsgpack {
 public:
  JsonToMsgpack();
  ~JsonToMsgpack();
  JsonToMsgpack(JsonToMsgpack&&) noexcept;
  JsonToMsgpack& operator=(JsonToMsgpack&&) noexcept;

  // Replaces `out`. Whole numbers stay whole, from -2^63 to 2^64-1; text stays text; keys keep
  // their order. kBadJson: no JSON, or a whole number beyond that; kOverLimit: too long, or nested
  // deeper than MessagePack readers here follow.
  Result<void, DecodeError> Convert(std::span<const std::byte> text, const DecodeLimits& limits,
                                    std::string& out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvr::wire
